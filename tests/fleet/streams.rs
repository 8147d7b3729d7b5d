//! Answers that are handed out as they come, to clients of the same process and of
//! others.

use std::time::{Duration, Instant};

use crate::{
    QUICK, SLACK,
    figures::percentile,
    lab::{Got, Lab, WIRES, Wire, sum},
    support::redis_server::RedisServer,
};

mod bad;
mod cost;
mod lost;
mod slow;
mod store;
mod vanish;

/// Where the events end of a stream of twenty, in each of what was read; all of them
/// read the same.
fn events(all: &[Got]) -> Vec<usize> {
    let first = &all[0];
    for got in all {
        assert_eq!((got.status.as_u16(), &got.error), (200, &None), "{got:?}");
        assert!(got.body == first.body, "{got:?} is not {first:?}");
    }
    first.events()
}

/// Twenty events 150 ms apart: each is with a follower elsewhere as soon as it is with
/// the owner's client, over both versions of HTTP; and who comes late has all of them.
#[tokio::test]
async fn o1_o10_events_come_at_once_here_and_elsewhere() {
    const FLIGHTS: usize = 6;
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &[]);
    let flights = (0..FLIGHTS).map(|flight| one_flight(&labs, flight));
    let all = futures_util::future::join_all(flights).await;
    let (mut local, mut remote) = (Vec::new(), Vec::new());
    for [l, r] in all {
        local.extend(l);
        remote.extend(r);
    }
    let [l50, l99] = [50, 99].map(|percent| percentile(&mut local, percent));
    let [r50, r99] = [50, 99].map(|percent| percentile(&mut remote, percent));
    println!(
        "o1: {} events, later than the owner's client: here p50 {l50:?} p99 {l99:?}, \
         elsewhere p50 {r50:?} p99 {r99:?} max {:?}",
        remote.len(),
        remote.last()
    );
    assert_eq!(sum(&labs, "/inner/calls").await, FLIGHTS as u64);
    assert!(r99 <= Duration::from_millis(100), "{r99:?}");
    assert!(l99 <= Duration::from_millis(100), "{l99:?}");
}

/// How late each event is, here and elsewhere.
async fn one_flight([one, other]: &[Lab; 2], flight: usize) -> [Vec<Duration>; 2] {
    let path =
        format!("/work/o1-{flight}?ms=0&chunks=20&gap=150&type=text/event-stream&bytes=2000");
    // Not all at the same moment.
    tokio::time::sleep(Duration::from_millis(23 * flight as u64)).await;
    let owner = one.open(WIRES[flight % 2], &path).await;
    let early = [
        one.open(Wire::Http1, &path).await.reading(),
        one.open(Wire::Http2, &path).await.reading(),
        other.open(Wire::Http1, &path).await.reading(),
        other.open(Wire::Http2, &path).await.reading(),
    ];
    let owner = owner.reading();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let late = [
        one.open(Wire::Http1, &path).await.reading(),
        one.open(Wire::Http2, &path).await.reading(),
        other.open(Wire::Http1, &path).await.reading(),
        other.open(Wire::Http2, &path).await.reading(),
    ];
    let mut all = vec![owner.got().await];
    for reading in early.into_iter().chain(late) {
        all.push(reading.got().await);
    }
    let events = events(&all);
    assert_eq!(events.len(), 20);
    let roles: Vec<_> = all.iter().map(Got::role).collect();
    assert_eq!(roles[0], "owner");
    assert!(roles[1..].iter().all(|role| *role == "follower"), "{roles:?}");
    assert_eq!(all[0].headers["content-type"], "text/event-stream");
    // None was held back for others to come.
    assert!(all[0].frames.len() >= 15, "{}", all[0].frames.len());
    let late = |got: &Got| -> Vec<Duration> {
        // What was there before it asked was there at once.
        let since = |event| all[0].when(event).max(got.asked);
        events
            .iter()
            .map(|&event| got.when(event).saturating_duration_since(since(event)))
            .collect()
    };
    [[1, 2, 5, 6], [3, 4, 7, 8]].map(|who| who.iter().flat_map(|&n| late(&all[n])).collect())
}

/// Just after the end a new run begins, and so it does long after it.
#[tokio::test]
async fn o10_who_comes_after_the_end_begins_anew() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let path = "/work/o10?ms=0&chunks=1000&gap=1&bytes=100000";
    let owner = labs[0].open(Wire::Http1, path).await;
    let mut all = vec![labs[1].open(Wire::Http2, path).await.reading(), owner.reading()];
    labs[0].until_bytes(50_000).await;
    for (lab, wire) in [(&labs[0], Wire::Http2), (&labs[1], Wire::Http1)] {
        all.push(lab.open(wire, path).await.reading());
    }
    let mut run = String::new();
    for reading in all {
        let got = reading.got().await;
        assert!(got.is_whole(100_000), "{got:?}");
        run = got.run();
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
    let after = labs[1].open(Wire::Http1, path).await;
    assert_eq!(after.got().role(), "owner");
    let after = after.rest().await;
    assert!(after.is_whole(100_000) && after.run() != run, "{after:?}");
    assert_eq!(sum(&labs, "/inner/calls").await, 2);
}

/// Where answers are used again, who comes just after the end gets all of it from the
/// start, in whichever process.
#[tokio::test]
async fn o10_who_comes_just_after_the_end_gets_all_of_it_again() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<3>(&redis.url(), &["--reuse-ms", "20000"]);
    let path = "/work/o10-again?ms=0&chunks=1000&gap=1&bytes=100000";
    let owner = labs[0].open(Wire::Http1, path).await;
    let follower = labs[1].open(Wire::Http2, path).await.reading();
    let (owner, follower) = (owner.reading().got().await, follower.got().await);
    assert!(owner.is_whole(100_000) && follower.body == owner.body, "{owner:?} {follower:?}");
    for (lab, wire) in labs.iter().zip([Wire::Http2, Wire::Http1, Wire::Http2]) {
        let again = lab.open(wire, path).await.rest().await;
        assert_eq!(again.role(), "reused");
        assert!(again.is_whole(100_000) && again.body == owner.body, "{again:?}");
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
}

/// Trailers come to all, and a connection on which an answer was replayed serves on.
#[tokio::test]
async fn m5_n1_trailers_come_and_connections_last() {
    let redis = RedisServer::start();
    let [one, other] = &Lab::fleet::<2>(&redis.url(), QUICK);
    let streamed = "chunks=8&gap=50&bytes=4000";
    let shapes = [
        ("trailers", format!("{streamed}&trailer=x-sum:17&trailer=x-b:%C3%A9"), 4000),
        ("streamed", streamed.to_owned(), 4000),
        // Of a known length, and too large to be waited for.
        ("length", "bytes=200000".to_owned(), 200_000),
        ("small", "bytes=500".to_owned(), 500),
        ("empty", "bytes=0&same=1".to_owned(), 0),
    ];
    let mut connections = Vec::new();
    for lab in [one, other] {
        for wire in WIRES {
            connections.push((wire, lab.connect(wire).await));
        }
    }
    for (name, query, bytes) in &shapes {
        let path = format!("/work/m5-{name}?ms=300&{query}");
        let owner = one.opening(Wire::Http1, &path);
        one.until_one("owner", 0).await;
        let mut gots = Vec::new();
        for (wire, connection) in &mut connections {
            gots.push(async { (*wire, connection.ask(&path).await.expect("a head").rest().await) });
        }
        let mut all = futures_util::future::join_all(gots).await;
        all.push((Wire::Http1, owner.opened().await.rest().await));
        for (wire, got) in &all {
            assert!(got.is_whole(*bytes) && got.body == all[0].1.body, "{name}, {wire:?}: {got:?}");
            let [length, encoding] =
                ["content-length", "transfer-encoding"].map(|name| got.headers.get(name).cloned());
            assert!(length.is_none() || encoding.is_none(), "{name}, {wire:?}: both");
            if let Some(length) = length {
                assert_eq!(length, bytes.to_string().as_str(), "{name}, {wire:?}");
            }
            if *name == "trailers" && *wire == Wire::Http2 {
                let trailers = got.trailers.as_ref().expect("trailers");
                assert_eq!(trailers["x-sum"], "17");
                assert_eq!(trailers["x-b"].as_bytes(), "\u{e9}".as_bytes());
            }
        }
        one.until("no flight", <[_]>::is_empty).await;
        other.until("no flight", <[_]>::is_empty).await;
    }
    let calls = one.count("/inner/calls").await + other.count("/inner/calls").await;
    assert_eq!(calls, shapes.len() as u64);
}

/// The head of a stream is with a follower elsewhere before its first event.
#[tokio::test]
async fn o1_a_head_waits_for_no_event() {
    let redis = RedisServer::start();
    let [one, other] = &Lab::fleet::<2>(&redis.url(), QUICK);
    let path = "/work/head?ms=300&chunks=2&gap=1000&type=text/event-stream&bytes=200";
    let start = Instant::now();
    let owner = one.opening(Wire::Http1, path);
    one.until_one("owner", 0).await;
    let follower = other.opening(Wire::Http2, path).opened().await;
    let head = start.elapsed();
    println!("o1: the head is elsewhere after {head:?}");
    assert!(head <= Duration::from_millis(300) + SLACK, "{head:?}");
    let both = [owner.opened().await.rest().await, follower.rest().await];
    assert_eq!(events(&both).len(), 2);
}
