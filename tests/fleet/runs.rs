//! One run for a whole fleet.

use std::time::{Duration, Instant};

use crate::{
    QUICK,
    lab::{Lab, answers, one_answer, sum},
    support::redis_server::RedisServer,
};

/// Three processes, 20 callers each, 100 new keys: one run a key.
#[tokio::test]
async fn c1_three_processes_make_one_run_a_key() {
    // Some keys are in the air together, to be quicker.
    const KEYS: usize = 100;
    const TOGETHER: usize = 2;
    let redis = RedisServer::start();
    let labs = Lab::fleet::<3>(&redis.url(), &[]);
    let start = Instant::now();
    for round in 0..KEYS / TOGETHER {
        let mut keys = Vec::new();
        for key in 0..TOGETHER {
            let path = format!("/work/c1-{round}-{key}?ms=300");
            keys.push(labs.iter().flat_map(|lab| lab.calls(20, &path)).collect::<Vec<_>>());
        }
        for callers in keys {
            let answers = answers(callers).await;
            assert_eq!(answers.len(), 60);
            one_answer(&answers);
        }
    }
    let calls = sum(&labs, "/inner/calls").await;
    println!("c1: {calls} runs for {KEYS} keys and 60 callers each, in {:?}", start.elapsed());
    assert_eq!(calls, KEYS as u64);
    let roles = ["owner", "follower_local", "follower_remote", "bypass", "failed"];
    let mut counts = [0; 5];
    for (role, count) in roles.iter().zip(&mut counts) {
        *count = sum(&labs, &format!("/flights/{role}")).await;
    }
    println!("c1: {roles:?} {counts:?}");
    assert_eq!(counts[0], KEYS as u64);
    assert_eq!(counts.iter().sum::<u64>(), 60 * KEYS as u64);
    assert_eq!(counts[3..], [0, 0]);
}

/// A burst on two labs: the counters show one run, one owner, and followers.
#[tokio::test]
async fn two_labs_and_a_burst_show_one_run_in_their_counters() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &[]);
    let path = "/work/burst?ms=500";
    let callers = labs.iter().flat_map(|lab| lab.calls(50, path)).collect::<Vec<_>>();
    let answers = answers(callers).await;
    one_answer(&answers);
    let role = |role| answers.iter().filter(|answer| answer.role() == role).count();
    assert_eq!([role("owner"), role("follower")], [1, 99]);
    for lab in &labs {
        let stats = lab.stats().await;
        println!("burst: {stats}");
        assert_eq!(stats["store"]["state"], "ok");
        assert_eq!(stats["inner"]["running"], 0);
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
    assert_eq!(sum(&labs, "/flights/owner").await, 1);
    assert_eq!(sum(&labs, "/flights/follower_local").await, 49);
    assert_eq!(sum(&labs, "/flights/follower_remote").await, 50);
}

/// A run of twelve seconds under the defaults, four times as long as the lease.
#[tokio::test]
async fn d3_a_long_run_is_one_run_for_all_who_come_while_it_lasts() {
    let redis = RedisServer::start();
    let [one, other] = Lab::fleet::<2>(&redis.url(), &[]);
    let path = "/work/long?ms=12000";
    let start = Instant::now();
    let mut callers = Vec::new();
    for (second, lab) in [(0, &one), (3, &other), (6, &one), (9, &other)] {
        tokio::time::sleep_until((start + Duration::from_secs(second)).into()).await;
        callers.push(lab.call(path));
    }
    let answers = answers(callers).await;
    let took: Vec<_> = answers.iter().map(|answer| answer.at - start).collect();
    println!("d3: callers at 0, 3, 6, 9 s are answered at {took:?}");
    one_answer(&answers);
    let roles: Vec<_> = answers.iter().map(super::lab::Answer::role).collect();
    assert_eq!(roles, ["owner", "follower", "follower", "follower"]);
    let labs = [one, other];
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
    assert_eq!(sum(&labs, "/flights/takeovers").await, 0);
    assert_eq!(sum(&labs, "/flights/leases_lost").await, 0);
    // All hear of it by a push; by a missed beat it would be a second more.
    assert!(took.iter().all(|took| *took < Duration::from_millis(12_500)), "{took:?}");
}

/// Followers elsewhere get the owner's answer, however long it takes.
#[tokio::test]
async fn d5_in_progress_is_never_an_answer() {
    let redis = RedisServer::start();
    let [one, other] = Lab::fleet::<2>(&redis.url(), QUICK);
    for (runs, ms) in [(1, 150), (2, 500), (3, 5000)] {
        let path = format!("/work/d5?ms={ms}");
        let owner = one.call(&path);
        one.until_one("owner", 0).await;
        let start = Instant::now();
        let follower = other.call(&path);
        let answers = answers([owner, follower]).await;
        one_answer(&answers);
        assert_eq!(answers[0].status, 200);
        let late = answers[1].at.saturating_duration_since(answers[0].at);
        println!("d5: {ms} ms: {:?}, {late:?} after the owner", answers[1].at - start);
        assert_eq!(one.count("/inner/calls").await + other.count("/inner/calls").await, runs);
    }
}
