//! Callers that hang up.

use std::time::{Duration, Instant};

use crate::{
    QUICK,
    figures::{keys, until_no_key},
    lab::{Lab, answers, one_answer, sum},
    support::redis_server::RedisServer,
};

/// The longest that a leaving waiter of another process may go unnoticed, and what
/// a busy machine adds to it.
const BEAT: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_millis(300);

/// Any waiter may leave: those who come later still join the one run.
#[tokio::test]
async fn a2_a_waiter_that_leaves_takes_nothing_with_it() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let [one, other] = &labs;
    for leaver in [one, other] {
        let path = format!("/work/a2?ms=1000&leaver={}", leaver.pid());
        let owner = one.call(&path);
        one.until_one("owner", 0).await;
        let waiter = leaver.call(&path);
        let followers = if leaver.pid() == one.pid() { ("owner", 1) } else { ("follower", 1) };
        leaver.until_one(followers.0, followers.1).await;
        waiter.leave();
        let left = |flights: &[serde_json::Value]| flights.iter().all(|f| f["followers"] == 0);
        leaver.until("the waiter has left", left).await;
        let third = other.call(&path);
        one_answer(&answers([owner, third]).await);
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 2);
    assert_eq!(one.count("/inner/max_running").await, 1);
    assert_eq!(sum(&labs, "/inner/dropped").await, 0);
}

/// Everybody leaves, the owner's caller first: inner is dropped and the lease gone.
#[tokio::test]
async fn a4_a_run_that_nobody_wants_is_dropped() {
    let redis = RedisServer::start();
    let [one, other] = Lab::fleet::<2>(&redis.url(), &[]);
    let path = "/work/a4?ms=20000";
    let (a, b) = (one.call(path), {
        one.until_one("owner", 0).await;
        other.call(path)
    });
    other.until_one("follower", 1).await;
    a.leave();
    // For a beat and more the run goes on for the other process.
    tokio::time::sleep(BEAT + SLACK).await;
    assert_eq!(one.count("/inner/running").await, 1);
    let left = Instant::now();
    b.leave();
    one.until_count("/inner/dropped", 1).await;
    let dropped = left.elapsed();
    let over = Instant::now();
    while lease_stands(&redis) {
        assert!(over.elapsed() < BEAT, "the lease is kept");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    println!(
        "a4: dropped {dropped:?} after the last had left, the lease {:?} later",
        over.elapsed()
    );
    assert!(dropped <= BEAT + SLACK, "{dropped:?}");
    assert!(over.elapsed() <= Duration::from_millis(100), "{:?}", over.elapsed());
    one.until("no flight", <[_]>::is_empty).await;
}

/// With `Finish` it goes on, and who comes within the reuse window gets its answer.
#[tokio::test]
async fn a4_or_finished_for_those_who_come_later() {
    let redis = RedisServer::start();
    let settings = [QUICK, &["--abandon", "finish", "--reuse-ms", "2000"]].concat();
    let labs = Lab::fleet::<2>(&redis.url(), &settings);
    let [one, other] = &labs;
    let path = "/work/a4?ms=1000";
    let a = one.call(path);
    one.until_one("owner", 0).await;
    let b = other.call(path);
    other.until_one("follower", 1).await;
    a.leave();
    b.leave();
    one.until_count("/inner/finished", 1).await;
    let answer = other.get(path).await;
    println!("a4: with finish, the next caller elsewhere is {}", answer.role());
    assert!(matches!(answer.role(), "reused" | "follower"), "{answer:?}");
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
    assert_eq!(sum(&labs, "/inner/dropped").await, 0);
}

/// Only the owner's caller leaves: the waiter elsewhere gets the answer.
#[tokio::test]
async fn a4_the_run_goes_on_for_a_waiter_elsewhere() {
    tokio::join!(goes_on("abort"), goes_on("finish"));
}

async fn goes_on(abandon: &str) {
    let redis = RedisServer::start();
    let settings = [QUICK, &["--abandon", abandon]].concat();
    let labs = Lab::fleet::<2>(&redis.url(), &settings);
    let [one, other] = &labs;
    let path = "/work/a4?ms=2000";
    let a = one.call(path);
    one.until_one("owner", 0).await;
    let b = other.call(path);
    other.until_one("follower", 1).await;
    a.leave();
    let answer = b.answer().await;
    assert_eq!((answer.status.as_u16(), answer.role()), (200, "follower"));
    assert!(answer.run().contains(&format!("pid={} ", one.pid())), "{}", answer.run());
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
    assert_eq!(sum(&labs, "/inner/dropped").await, 0);
    assert_eq!(sum(&labs, "/flights/owner").await, 0, "the owner's caller had left");
}

/// Very many keys whose callers leave at once: nothing stays, here or in the server.
#[tokio::test]
async fn c4_nothing_stays_of_callers_that_left() {
    let redis = RedisServer::start();
    let lab = Lab::start(&redis.url(), QUICK);
    for batch in 0..20 {
        let paths = (0..100).map(|key| format!("/work/c4-{batch}-{key}?ms=5000"));
        let callers: Vec<_> = paths.flat_map(|path| lab.streams(1, &path)).collect();
        // No state is waited for: they leave wherever they are.
        tokio::time::sleep(Duration::from_millis(1 + 3 * batch)).await;
        callers.into_iter().for_each(super::lab::Caller::leave);
    }
    lab.until("no flight", <[_]>::is_empty).await;
    let flown = lab.count("/inner/calls").await;
    let retention = Duration::from_secs(2);
    let took = until_no_key(&redis, retention + BEAT).await;
    println!("c4: 2000 callers left, {flown} runs had begun; no key after {took:?}");
    assert_eq!(lab.count("/inner/running").await, 0);
    assert!(flown > 0);
}

fn lease_stands(redis: &RedisServer) -> bool {
    keys(redis)
        .iter()
        .filter(|key| key.contains(":meta:"))
        .any(|key| redis.lines(&["HMGET", key, "status"]) == ["running"])
}
