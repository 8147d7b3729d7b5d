//! Streams over a store that loses a push, cannot be reached, or forgets.

use std::time::{Duration, Instant};

use crate::{
    QUICK, SLACK,
    figures::{meta, meta_keys},
    lab::{Lab, PATIENCE, Stream, WIRES, Wire, sum},
    proxy::{Link, Proxy},
    support::redis_server::RedisServer,
};

const BEAT: Duration = Duration::from_secs(1);

/// Only the push of the end is lost: the follower ends within a beat and a look.
#[tokio::test]
async fn o4_a_lost_end_costs_a_beat() {
    const POLL: Duration = Duration::from_millis(1200);
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    let [one, other] = [Lab::start(&redis.url(), &[]), Lab::start(&proxy.url(), &[])];
    for (round, wire) in WIRES.into_iter().enumerate() {
        let path = format!("/work/o4-{round}?ms=0&chunks=10&gap=60&bytes=2000");
        let owner = one.open(Wire::Http1, &path).await;
        let follower = other.open(wire, &path).await;
        proxy.swallow_end();
        let (owner, follower) = (owner.reading(), follower.reading());
        let (owner, follower) = (owner.got().await, follower.got().await);
        assert!(proxy.has_swallowed());
        assert!(owner.is_whole(2000) && follower.is_whole(2000), "{owner:?} {follower:?}");
        let [late, last] =
            [follower.at, follower.when(2000)].map(|at| at.saturating_duration_since(owner.at));
        println!("o4: {wire:?}: the last bytes are {last:?} late, and the end is {late:?}");
        assert!(last <= SLACK, "{last:?}");
        assert!(late <= POLL + SLACK, "{late:?}");
    }
    assert_eq!(one.count("/inner/calls").await, 2);
    assert_eq!(other.count("/inner/calls").await, 0);
}

/// Owner and follower of a stream of fifty pieces over three seconds; both have begun.
async fn begun(labs: &[Lab; 2], name: &str) -> [Stream; 2] {
    let path = format!("/work/{name}?ms=0&chunks=60&gap=50&bytes=6000");
    let mut owner = labs[0].open(Wire::Http1, &path).await;
    let mut follower = labs[1].open(Wire::Http2, &path).await;
    owner.until(1000).await;
    follower.until(1000).await;
    [owner, follower]
}

/// The owner cannot reach the server for half a lease: nobody notices.
#[tokio::test]
async fn e1_a_cut_of_half_a_lease_breaks_no_stream() {
    tokio::join!(short_cut(Link::Cut), short_cut(Link::Silent));
}

async fn short_cut(link: Link) {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    let labs = [Lab::start(&proxy.url(), &[]), Lab::start(&redis.url(), &[])];
    let streams = begun(&labs, "cut").await;
    // Soon after a renewal, so that one beat falls into the cut.
    let [key] = &meta_keys(&redis)[..] else { panic!("one flight") };
    let before = meta(&redis, key, "heartbeatAt");
    let end = Instant::now() + PATIENCE;
    while meta(&redis, key, "heartbeatAt") == before {
        assert!(Instant::now() < end, "no renewal");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let readings = streams.map(Stream::reading);
    tokio::time::sleep(BEAT / 10).await;
    proxy.set(link);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    proxy.set(Link::Open);
    let mut at = Vec::new();
    for reading in readings {
        let got = reading.got().await;
        assert!(got.is_whole(6000), "{link:?}: {got:?}");
        at.push(got.at);
    }
    println!(
        "e1: {link:?}: the follower's end is {:?} late",
        at[1].saturating_duration_since(at[0])
    );
    assert!(labs[0].count("/store/errors").await > 0, "{link:?}: steps fell into the cut");
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
    for place in ["/flights/takeovers", "/flights/leases_lost"] {
        assert_eq!(sum(&labs, place).await, 0, "{place}");
    }
}

/// The server is started again, empty, in the middle: nobody notices.
#[tokio::test]
async fn f8_a_restart_of_the_server_breaks_no_stream() {
    let mut redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &[]);
    let streams = begun(&labs, "restart").await;
    redis.restart();
    let mut at = Vec::new();
    for reading in streams.map(Stream::reading) {
        let got = reading.got().await;
        assert!(got.is_whole(6000), "{got:?}");
        at.push(got.at);
    }
    println!("f8: the follower's end is {:?} late", at[1].saturating_duration_since(at[0]));
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
    assert_eq!(sum(&labs, "/flights/takeovers").await, 0);
}

/// All scripts are forgotten in the middle, again and again.
#[tokio::test]
async fn g6_forgotten_scripts_break_no_stream() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let readings = begun(&labs, "flush").await.map(Stream::reading);
    for _ in 0..10 {
        redis.command(&["SCRIPT", "FLUSH"]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for reading in readings {
        let got = reading.got().await;
        assert!(got.is_whole(6000), "{got:?}");
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
}

/// A server that takes no value over a MiB: an answer of three goes in pieces.
#[tokio::test]
async fn j3_an_answer_over_the_servers_limit_goes_in_pieces() {
    const BYTES: usize = 3 << 20;
    let redis = RedisServer::start_with(&["--proto-max-bulk-len", "1mb"]);
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    // Of one frame, and of many.
    for chunks in [1, 300] {
        let path = format!("/work/j3?ms=300&chunks={chunks}&bytes={BYTES}");
        let mut asked = vec![labs[0].opening(Wire::Http1, &path)];
        labs[0].until_one("owner", 0).await;
        asked.extend((0..10).map(|n| labs[1].opening(WIRES[n % 2], &path)));
        let all = asked.into_iter().map(|asked| async { asked.opened().await.rest().await });
        for got in futures_util::future::join_all(all).await {
            assert!(got.is_whole(BYTES), "{chunks}: {got:?}");
        }
        println!("j3: {chunks} frames: {}", labs[0].stats().await);
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 2);
    assert_eq!(sum(&labs, "/store/errors").await, 0);
}
