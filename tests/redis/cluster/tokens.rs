//! Tokens: each key's grow, and the counter that all look at is far away.

use std::time::Duration;

use bytes::Bytes;
use tower_singleflight::{Store, store::StoreErrorKind};

use super::{
    rig::{Node, key_on, one_flight, two_stores},
    support::{cluster::Cluster, eventually},
};

const SEQ: &str = "ai:flight:owner-seq";

#[tokio::test]
async fn grants_are_told_the_counter_and_it_is_a_lower_bound() {
    let cluster = Cluster::start();
    let stores = two_stores(&cluster).await;
    let home = cluster.owner(cluster.slot(SEQ)).unwrap();
    let count = || {
        let lines = cluster.nodes[home].lines(&["GET", SEQ]);
        lines.first().and_then(|line| line.parse::<u64>().ok()).unwrap_or(0)
    };
    let flight = Node::new(&stores[0], key_on(&cluster, (home + 1) % 3)).own().await;
    eventually("it counts on", async || count() > flight.token).await;
    // A counter that is ahead of all clocks is what the next tokens are above.
    let ahead = 5_000_000_000_000_000;
    cluster.nodes[home].command(&["SET", SEQ, &ahead.to_string()]);
    Node::new(&stores[0], key_on(&cluster, 0)).own().await;
    eventually("it is heard of", async || {
        Node::new(&stores[0], key_on(&cluster, 1)).own().await.token > ahead
    })
    .await;
    // One that is damaged is none, and disturbs nothing.
    cluster.nodes[home].command(&["DEL", SEQ]);
    cluster.nodes[home].command(&["HSET", SEQ, "a", "b"]);
    for master in 0..3 {
        one_flight(&stores, key_on(&cluster, master), &Bytes::from_static(b"x")).await;
    }
    assert!(stores[0].errors().is_empty(), "{:?}", stores[0].errors());
}

/// The counter's server says nothing more: keys elsewhere do not notice.
#[tokio::test]
async fn a_counter_that_is_away_disturbs_nothing() {
    let cluster = Cluster::start();
    let stores = two_stores(&cluster).await;
    let home = cluster.owner(cluster.slot(SEQ)).unwrap();
    let keys: Vec<_> = (0..40).map(|n| key_on(&cluster, (home + 1 + n % 2) % 3)).collect();
    cluster.nodes[home].freeze();
    for key in keys {
        let record = Bytes::from_static(b"x");
        let flight = one_flight(&stores, key, &record);
        let took = tokio::time::timeout(Duration::from_millis(200), flight).await;
        took.expect("nobody waits for the counter");
    }
    for store in &stores {
        let errors = store.errors();
        let timed_out = errors.iter().any(|(kind, _)| *kind == StoreErrorKind::TimedOut);
        assert!(!timed_out, "{errors:?}");
    }
}
