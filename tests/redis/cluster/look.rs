//! Looking at what a whole cluster has.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tower_singleflight::{
    Fleet, KeyDigest, Store,
    store::{Join, Joined, KeyStatus, KeyView, Scan},
};

use super::{
    rig::{LEASE, ask, key_where, two_stores},
    support::cluster::Cluster,
};

async fn rest(scan: &mut dyn Scan, found: &mut HashMap<KeyDigest, KeyView>) {
    while let Some(page) = scan.next().await.expect("a page") {
        found.extend(page.keys.into_iter().map(|view| (view.key, view)));
    }
}

#[tokio::test]
async fn all_masters_are_looked_through() {
    let cluster = Cluster::start();
    let stores = two_stores(&cluster).await;
    let mut owned = HashMap::new();
    for n in 0..60 {
        let (key, join) = (key_where(|slot| slot % 3 == n % 3), ask());
        let join = Join { lease: LEASE * 20, ..join };
        let joined = stores[0].session(key).join(join).await.expect("a grant");
        let Joined::Own { token } = joined else { panic!("not owned: {joined:?}") };
        owned.insert(key, token);
    }
    let (mut scan, mut found) = (stores[1].scan(), HashMap::new());
    rest(&mut *scan, &mut found).await;
    for (key, token) in &owned {
        let view = &found[key];
        assert_eq!((view.flight.token, view.status), (*token, KeyStatus::Running));
        assert_eq!(stores[1].inspect(*key).await.unwrap().unwrap().flight, view.flight);
    }
    assert_eq!(Fleet::new(stores[1].clone()).flights(7).await.unwrap().len(), 7);

    // One that is away is not passed over in silence, and waited for.
    cluster.nodes[2].freeze();
    let (mut scan, mut found) = (stores[1].scan(), HashMap::new());
    let error = loop {
        match scan.next().await {
            Ok(page) => found.extend(page.expect("more").keys.into_iter().map(|v| (v.key, v))),
            Err(error) => break error,
        }
    };
    cluster.nodes[2].thaw();
    assert!(!error.to_string().is_empty());
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match scan.next().await {
            Ok(Some(page)) => found.extend(page.keys.into_iter().map(|v| (v.key, v))),
            Ok(None) => break,
            Err(error) => {
                assert!(Instant::now() < end, "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    assert!(owned.keys().all(|key| found.contains_key(key)));
}
