//! Pushes that are lost, and connections that die of idleness.

use std::time::{Duration, Instant};

use crate::{
    SLACK,
    lab::{Lab, answers, one_answer, sum},
    proxy::Proxy,
    support::redis_server::RedisServer,
};

/// One lost push costs the follower a beat and a look, under the longest of leases.
#[tokio::test]
async fn i6_a_lost_push_costs_a_beat() {
    const BEAT: Duration = Duration::from_secs(1);
    // Of a lease of 30 s.
    let settings = ["--lease-ms", "30000", "--heartbeat-ms", "1000", "--retention-ms", "60000"];
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    let labs = [Lab::start(&redis.url(), &settings), Lab::start(&proxy.url(), &settings)];
    let [one, other] = &labs;
    one_flight(&labs, "i6-warm").await;
    let calls = sum(&labs, "/inner/calls").await;
    for (round, bytes) in [64, 100_000].into_iter().enumerate() {
        let path = format!("/work/i6-{round}?ms=1500&bytes={bytes}");
        let owner = one.call(&path);
        one.until_one("owner", 0).await;
        let follower = other.call(&path);
        other.until_one("follower", 1).await;
        proxy.swallow_push();
        let both = answers([owner, follower]).await;
        assert!(proxy.has_swallowed());
        one_answer(&both);
        let late = both[1].at.saturating_duration_since(both[0].at);
        println!("i6: a lost push of {bytes} bytes: the follower is {late:?} late");
        assert!(late <= BEAT + Duration::from_millis(200) + SLACK, "{late:?}");
    }
    // Its connection is killed just before.
    let path = "/work/i6-killed?ms=1500";
    let owner = one.call(path);
    one.until_one("owner", 0).await;
    let start = Instant::now();
    let follower = other.call(path);
    other.until_one("follower", 1).await;
    tokio::time::sleep_until((start + Duration::from_millis(1450)).into()).await;
    kill_push(&redis);
    let both = answers([owner, follower]).await;
    one_answer(&both);
    let late = both[1].at.saturating_duration_since(both[0].at);
    println!("i6: push connections killed just before: the follower is {late:?} late");
    assert!(late <= BEAT + Duration::from_millis(200) + SLACK, "{late:?}");
    assert_eq!(sum(&labs, "/inner/calls").await - calls, 3);
}

/// Push connections that die again and again while nothing is said on them are there when
/// something is.
#[tokio::test]
async fn i7_push_comes_back_while_idle() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &[]);
    one_flight(&labs, "i7-warm").await;
    // Where nobody listens the server does not know which connections these are.
    let [one, other] = &labs;
    let path = "/work/i7-quiet?ms=6000";
    let owner = one.call(path);
    one.until_one("owner", 0).await;
    let follower = other.call(path);
    other.until_one("follower", 1).await;
    for _ in 0..5 {
        kill_push(&redis);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    one_answer(&answers([owner, follower]).await);
    let late = one_flight(&labs, "i7").await;
    println!("i7: after five kills the follower is {late:?} late");
    // 50 ms on a quiet machine; a second without the push.
    assert!(late <= Duration::from_millis(50) + SLACK, "{late:?}");
}

/// The server closes what is idle for a second: nobody notices.
#[tokio::test]
async fn i5_a_server_may_close_idle_connections() {
    let redis = RedisServer::start_with(&["--timeout", "1"]);
    let labs = Lab::fleet::<2>(&redis.url(), &[]);
    one_flight(&labs, "i5-warm").await;
    for round in 0..2 {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let late = one_flight(&labs, &format!("i5-{round}")).await;
        println!("i5: after three idle seconds the follower is {late:?} late");
        assert!(late <= Duration::from_millis(1200) + SLACK, "{late:?}");
    }
    let stores = [labs[0].stats().await, labs[1].stats().await];
    println!("i5: {} {}", stores[0]["store"], stores[1]["store"]);
    assert_eq!(sum(&labs, "/flights/failed").await, 0);
}

/// Kills the connections that listen; those that were killed before are there again.
fn kill_push(redis: &RedisServer) {
    let killed = redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_ne!(killed, ":0\r\n", "nobody listens");
}

/// An owner and a remote follower, one run; how late the follower is.
async fn one_flight(labs: &[Lab; 2], name: &str) -> Duration {
    let [one, other] = labs;
    let path = format!("/work/{name}?ms=700");
    let calls = sum(labs, "/inner/calls").await;
    let owner = one.call(&path);
    one.until_one("owner", 0).await;
    let follower = other.call(&path);
    other.until_one("follower", 1).await;
    let both = answers([owner, follower]).await;
    one_answer(&both);
    assert_eq!(sum(labs, "/inner/calls").await, calls + 1);
    both[1].at.saturating_duration_since(both[0].at)
}
