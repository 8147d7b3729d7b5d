//! Limits on how many callers wait (row T3).

use std::sync::Arc;

use futures_util::future::join_all;
use tower_singleflight::{
    Bypass, Config, ConfigBuilder, Crowded, FailureKind, FlightRole, MemoryStore,
};

use crate::{rig::*, tap::Taps};

fn limits(per_key: usize, in_all: usize) -> ConfigBuilder {
    Config::builder().max_followers_per_key(per_key).max_followers(in_all)
}

fn in_role(answers: &[Answer], why: Bypass) -> usize {
    answers.iter().filter(|answer| answer.role == Some(FlightRole::Bypass(why))).count()
}

#[tokio::test(start_paused = true)]
async fn t3_over_the_limit_of_a_key_callers_run_alone() {
    let counts = Arc::<Counts>::default();
    let config = limits(100, 1000).build().unwrap();
    let node = Node::new(MemoryStore::new(), &slow(&counts, ms(500)), config);
    let calls: Vec<_> = (0..5000).map(|_| node.call("/a")).collect();
    until(|| counts.calls() == 4900).await;
    assert_eq!(node.layer.flights()[0].callers, 101);
    let answers = join_all(calls).await;
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.took <= ms(510)));
    assert_eq!(in_role(&answers, Bypass::CrowdedKey), 4899);
    let stats = node.layer.stats();
    assert_eq!((stats.owner, stats.follower_local), (1, 100));
    assert_eq!((stats.crowded_key, stats.crowded), (4899, 0));
    assert_eq!(stats.bypassed(Bypass::CrowdedKey), 4899);
}

#[tokio::test(start_paused = true)]
async fn t3_over_the_limit_of_the_process_callers_run_alone() {
    let counts = Arc::<Counts>::default();
    let config = limits(100, 1000).build().unwrap();
    let node = Node::new(MemoryStore::new(), &slow(&counts, ms(500)), config);
    // 50 keys: each could have its 100 followers.
    let calls: Vec<_> = (0..5000).map(|nth| node.call(&format!("/{}", nth % 50))).collect();
    until(|| counts.calls() == 50 + 3950).await;
    let waiting: usize = node.layer.flights().iter().map(|flight| flight.callers).sum();
    assert_eq!(waiting, 1050);
    let answers = join_all(calls).await;
    assert_eq!(in_role(&answers, Bypass::Crowded), 3950);
    let stats = node.layer.stats();
    assert_eq!((stats.owner, stats.follower_local), (50, 1000));
    assert_eq!((stats.crowded_key, stats.crowded), (0, 3950));
    // All have left: there is room again.
    let again = join_all((0..101).map(|_| node.call("/a"))).await;
    assert_eq!(in_role(&again, Bypass::Crowded), 0);
}

#[tokio::test(start_paused = true)]
async fn t3_over_the_limit_callers_are_refused_where_it_is_set_so() {
    let counts = Arc::<Counts>::default();
    for (path, why) in [("/a", [7, 0]), ("/b", [0, 7])] {
        let (per_key, in_all) = if why[0] > 0 { (2, 100) } else { (100, 2) };
        let config = limits(per_key, in_all).crowded(Crowded::Reject).build().unwrap();
        let node = Node::new(MemoryStore::new(), &slow(&counts, ms(500)), config);
        let before = counts.calls();
        let answers = join_all((0..10).map(|_| node.call(path))).await;
        let (refused, served): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| answer.status == 503);
        assert_eq!((refused.len(), served.len(), counts.calls() - before), (7, 3, 1));
        for answer in refused {
            assert_eq!((answer.kind(), answer.took), (Some(FailureKind::Crowded), ms(0)));
            assert!(answer.headers.contains_key("retry-after"));
            assert_eq!(answer.headers["cache-status"], "tower-singleflight; detail=crowded");
        }
        let stats = node.layer.stats();
        assert_eq!([stats.crowded_key, stats.crowded], why);
        assert_eq!((stats.failed, stats.bypass), (7, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_makes_room_and_a_reader_of_a_stream_holds_its_place() {
    let taps = Taps::default();
    let config = limits(1, 100).build().unwrap();
    let node = Node::new(MemoryStore::new(), &taps.inner(), config);
    let first = node.opening("/a");
    until(|| taps.runs() == 1).await;
    taps.send(0, "a");
    let (first, second) = (first.await.unwrap(), node.open("/a").await);
    assert_eq!(second.role(), Some(FlightRole::FollowerLocal));
    let crowded = node.open("/a").await;
    assert_eq!(taps.runs(), 2);
    assert_eq!(crowded.role(), Some(FlightRole::Bypass(Bypass::CrowdedKey)));
    drop(second);
    let third = node.open("/a").await;
    assert_eq!(third.role(), Some(FlightRole::FollowerLocal));
    taps.end(0);
    assert_eq!(first.rest().await.unwrap(), "a");
    assert_eq!(third.rest().await.unwrap(), "a");
}

#[test]
fn a_limit_of_zero_is_refused() {
    for (builder, setting) in [
        (Config::builder().max_followers_per_key(0), "max_followers_per_key"),
        (Config::builder().max_followers(0), "max_followers"),
    ] {
        let refused = builder.build().unwrap_err();
        assert_eq!((refused.setting(), refused.value()), (setting, "0"));
    }
}
