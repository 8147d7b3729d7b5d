//! What callers in a process that follows read.

use http_body_util::BodyExt;
use tower_singleflight::{Delivery, FlightPhase};

use crate::{
    fleet::{Asked, Fleet, no_beats},
    support::redis_server::RedisServer,
};

/// However many they are, a body comes once, and is there once: in the push or fetched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_one_process_read_one_copy() {
    const CALLERS: usize = 20;
    for group in [1000, 10_000, 100_000] {
        let server = RedisServer::start();
        let config = no_beats().delivery(Delivery::Buffered).build().expect("settings");
        let fleet = Fleet::start(&server.url(), 2, &config, Asked { groups: 0, group }).await;
        let key = ["one".to_owned()];
        let first = fleet.all(0, &key, FlightPhase::Owning).await;
        let mut others = fleet.all(1, &key, FlightPhase::Following).await;
        let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(fleet.call(1, "one"))).collect();
        crate::support::eventually("all wait", async || {
            fleet.nodes[1].layer.flights()[0].callers == CALLERS + 1
        })
        .await;
        others.extend(first);
        fleet.land(others).await;
        let mut places = Vec::new();
        for caller in callers {
            let mut body = caller.await.expect("no panic").into_body();
            let frame = body.frame().await.expect("a frame").expect("a whole body");
            let data = frame.into_data().expect("data");
            assert_eq!(data.len(), group);
            places.push(data.as_ptr() as usize);
        }
        assert!(places.windows(2).all(|pair| pair[0] == pair[1]), "{group}: {places:?}");
    }
}
