//! A server that forgets: keys, or all of them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::{
    QUICK, SLACK,
    figures::{OWNER_SEQ, keys, meta, meta_keys},
    lab::{Answer, Lab, PATIENCE, answers, one_answer, sum},
    support::redis_server::RedisServer,
};

const SECOND: Duration = Duration::from_secs(1);

/// A run of twenty seconds under the default lease, and the server is started again,
/// empty, in the middle of it: the run goes on, and its follower has its answer.
#[tokio::test]
async fn f8_a_long_run_survives_a_restart_of_the_server() {
    // So many flights each way, as there is a race to be lost.
    const FLIGHTS: usize = 4;
    let mut redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &[]);
    let start = Instant::now();
    let mut flights = Vec::new();
    for flight in 0..2 * FLIGHTS {
        let path = format!("/work/restart-{flight}?ms=20000");
        let (owner, follower) = (&labs[flight % 2], &labs[(flight + 1) % 2]);
        let first = owner.call(&path);
        owner.until("one more owned", |flights| owned(flights) == flight / 2 + 1).await;
        let second = follower.call(&path);
        follower.until("one more", |flights| flights.len() == flight + 1).await;
        flights.push([first, second]);
        // Not all at the same point of a beat.
        tokio::time::sleep(Duration::from_millis(130)).await;
    }
    tokio::time::sleep_until((start + Duration::from_secs(5)).into()).await;
    redis.restart();
    println!("f8: restarted after {:?}", start.elapsed());
    let mut took = Duration::ZERO;
    for callers in flights {
        let both = answers(callers).await;
        assert_eq!(one_answer(&both).status, 200);
        took = took.max(both[1].at.saturating_duration_since(both[0].at));
    }
    let [calls, lost] = [
        sum(&labs, "/inner/calls").await,
        sum(&labs, "/flights/leases_lost").await + sum(&labs, "/flights/takeovers").await,
    ];
    println!("f8: {calls} runs for {} flights, followers at most {took:?} late", 2 * FLIGHTS);
    assert_eq!((calls, lost), (2 * FLIGHTS as u64, 0));
    assert!(took <= Duration::from_millis(1200) + SLACK, "{took:?}");
}

fn owned(flights: &[serde_json::Value]) -> usize {
    flights.iter().filter(|flight| flight["role"] == "owner").count()
}

/// Each kind of key is deleted alone while two processes follow.
#[tokio::test]
async fn j2_a_deleted_key_costs_a_run_at_most() {
    const RUN: Duration = Duration::from_secs(5);
    let redis = RedisServer::start();
    let labs = Lab::fleet::<3>(&redis.url(), &[]);
    let [one, two, three] = &labs;
    let mut flights = Vec::new();
    let mut metas = Vec::new();
    let start = Instant::now();
    for name in ["meta", "result", "owner-seq"] {
        // More than a push carries, so that the result is read.
        let path = format!("/work/j2-{name}?ms={}&bytes=50000", RUN.as_millis());
        let mut callers = one.calls(2, &path);
        one.until("it owns", |flights| owned(flights) == metas.len() + 1).await;
        metas.push(meta_keys(&redis).into_iter().find(|key| !metas.contains(key)).expect("new"));
        callers.extend([two, three].iter().flat_map(|lab| lab.calls(5, &path)));
        flights.push((name, callers));
    }
    for lab in [two, three] {
        lab.until("three followed", |flights| flights.len() == 3).await;
    }
    tokio::time::sleep_until((start + Duration::from_secs(2)).into()).await;
    assert_eq!(redis.lines(&["DEL", &metas[0]]), [":1"]);
    assert_eq!(redis.lines(&["DEL", OWNER_SEQ]), [":1"]);
    let result = metas[1].replace(":meta:", ":result:");
    let end = Instant::now() + PATIENCE;
    while redis.lines(&["DEL", &result]) != [":1"] {
        assert!(Instant::now() < end, "no result: {:?}", keys(&redis));
        tokio::task::yield_now().await;
    }
    for (name, callers) in flights {
        let all = answers(callers).await;
        let took = all.iter().map(|answer| answer.at - start).max().expect("answers");
        let runs = by_run(&all);
        println!("j2: {name} deleted: {} runs answered, the last after {took:?}", runs.len());
        assert!(all.iter().all(|answer| answer.status == 200 && answer.body.len() == 50_000));
        assert!(runs.len() <= 2, "{:?}", runs.keys());
        // At worst what goes on begins at the end of the lease, or of the run.
        assert!(took <= 2 * RUN + 2 * SECOND, "{took:?}");
    }
    let calls = sum(&labs, "/inner/calls").await;
    println!("j2: {calls} runs in all");
    // Nobody needs the token source; each of the others costs one run.
    assert!((3..=5).contains(&calls), "{calls}");
}

/// The answers of each run, which are the same.
fn by_run(answers: &[Answer]) -> HashMap<String, Vec<Answer>> {
    let mut runs: HashMap<_, Vec<_>> = HashMap::new();
    for answer in answers {
        runs.entry(answer.run()).or_default().push(answer.clone());
    }
    for answers in runs.values() {
        one_answer(answers);
    }
    runs
}

fn token(answer: &Answer) -> u64 {
    let run = answer.run();
    let token = run.split_once("token=").expect("a token").1;
    token.parse().expect("a number")
}

/// All is lost, and somebody else owns before the old owner's next beat: the greater
/// token wins, and the old owner publishes nothing.
#[tokio::test]
async fn f8_after_flushall_the_next_token_is_greater() {
    let redis = RedisServer::start();
    // The second one beats before its run ends, the first does not.
    let quick = [QUICK, &["--heartbeat-ms", "450"]].concat();
    let labs = Lab::fleet::<3>(&redis.url(), &quick);
    let [one, two, three] = &labs;
    for (name, ms) in [("short", 200), ("long", 1500)] {
        let path = format!("/work/f8-{name}?ms={ms}");
        let [calls, fenced] =
            [sum(&labs, "/inner/calls").await, one.count("/flights/fenced").await];
        let mut mine = one.calls(1, &path);
        one.until_one("owner", 0).await;
        mine.extend(one.calls(1, &path));
        one.until_one("owner", 1).await;
        let [key] = &meta_keys(&redis)[..] else { panic!("one flight") };
        let before: u64 = meta(&redis, key, "ownerToken").parse().expect("a token");
        redis.command(&["FLUSHALL"]);
        let next = two.call(&path);
        two.until_one("owner", 0).await;
        let after: u64 = meta(&redis, key, "ownerToken").parse().expect("a token");
        let follower = three.call(&path);
        let theirs = answers([next, follower]).await;
        let mine = answers(mine).await;
        let second = one_answer(&theirs);
        let fenced = one.count("/flights/fenced").await - fenced;
        println!("f8: {name}: token {before}, then {after}; fenced {fenced}");
        assert!(after > before);
        assert_eq!(token(second), after);
        let first = one_answer(&mine);
        // Heard in time, it follows; else its answer is for its own callers alone.
        if name == "long" {
            assert_eq!(first.run(), second.run());
        } else {
            assert_eq!((token(first), fenced), (before, 1));
        }
        assert_eq!(sum(&labs, "/inner/calls").await, calls + 2);
        redis.command(&["FLUSHALL"]);
    }
}

/// A lease that is gone is not taken again by its next beat, where another owns by then.
#[tokio::test]
async fn e6_a_late_beat_takes_nothing_again() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &["--heartbeat-ms", "1400"]);
    let [one, two] = &labs;
    let path = "/work/e6?ms=3000";
    let mut mine = one.calls(1, path);
    one.until_one("owner", 0).await;
    mine.extend(one.calls(1, path));
    one.until_one("owner", 1).await;
    let [key] = &meta_keys(&redis)[..] else { panic!("one flight") };
    let before: u64 = meta(&redis, key, "ownerToken").parse().expect("a token");
    assert_eq!(redis.lines(&["DEL", key]), [":1"]);
    let theirs = two.call(path);
    two.until_one("owner", 0).await;
    let after: u64 = meta(&redis, key, "ownerToken").parse().expect("a token");
    assert!(after > before);
    let second = theirs.answer().await;
    let mine = answers(mine).await;
    assert_eq!(token(&second), after);
    // The beat said superseded: the run was dropped, and its callers followed.
    assert_eq!(one_answer(&mine).run(), second.run());
    assert_eq!(meta(&redis, key, "ownerToken").parse::<u64>().expect("a token"), after);
    let lost = one.count("/flights/leases_lost").await;
    println!("e6: token {before}, then {after}; lost {lost}");
    assert_eq!((lost, sum(&labs, "/inner/calls").await), (1, 2));
    assert_eq!(one.count("/inner/dropped").await, 1);
}
