//! An answer that a caller cannot read, whose own request is used up.

use std::{convert::Infallible, time::Duration};

use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{
    Config, FailureKind, FlightError, MemoryStore, SingleFlightLayer, key_fn,
};

use crate::rig::{Line, ms};

#[tokio::test(start_paused = true)]
async fn k8_a_value_of_another_release_for_a_request_that_is_used_up() {
    let store = MemoryStore::new();
    let line = Line::new(&store);
    let key = || key_fn(|city: &&str| Some(*city));
    let limit = Config::builder().hard_timeout(ms(1000)).build().unwrap();
    let old = SingleFlightLayer::values(key()).store(line.clone()).namespace("n").config(limit);
    let new = SingleFlightLayer::values(key()).store(store).namespace("n");
    let answer = |takes: Duration| {
        service_fn(move |city: &'static str| async move {
            tokio::time::sleep(takes).await;
            Ok::<_, Infallible>(city.len() as u64)
        })
    };
    let olds = old.layer(answer(ms(60_000)));
    let news = new.layer(answer(ms(500)).map_response(|length| length.to_string()));

    let first = tokio::spawn(olds.clone().oneshot("Rome"));
    let second = tokio::spawn(olds.oneshot("Rome"));
    tokio::time::sleep(ms(100)).await;
    let other = tokio::spawn(news.oneshot("Rome"));
    tokio::time::sleep(ms(100)).await;
    // The first run passes its limit, and the other release is quicker to take over.
    line.slow(ms(100));
    assert_eq!(other.await.unwrap().unwrap(), "4");
    match first.await.unwrap().unwrap_err() {
        FlightError::Failure(failure) => assert_eq!(failure.kind(), FailureKind::Unreadable),
        FlightError::Inner(never) => match never {},
    }
    // The second caller's request is still there, and is run for it alone.
    assert_eq!(second.await.unwrap().unwrap(), 4);
    let stats = old.stats();
    assert_eq!((stats.failed, stats.bypass, stats.bad_records), (1, 1, 2));
}
