//! Servers behind sentinels, of which the master fails.

use std::time::{Duration, Instant};

use crate::{
    QUICK, SLACK,
    figures::{meta, meta_keys, percentile},
    lab::{Answer, Lab, PATIENCE, answers, one_answer, sum},
    support::sentinels::Fleet,
};

/// The token that the handler was given: none on a bypass, or without the store.
fn token(answer: &Answer) -> u64 {
    let run = answer.run();
    let token = run.split_once("token=").expect("a token").1;
    token.parse().expect("a number")
}

async fn failed_over(fleet: &Fleet) {
    let (before, end) = (fleet.servers[0].port(), Instant::now() + PATIENCE);
    while fleet.master().is_none_or(|port| port == before) {
        assert!(Instant::now() < end, "no other master in {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a new key is owned in the store: how many were tried.
async fn owns(lab: &Lab, name: &str) -> u64 {
    let (end, mut n) = (Instant::now() + PATIENCE, 0);
    while token(&lab.get(&format!("/work/{name}-{n}?ms=0")).await) == 0 {
        assert!(Instant::now() < end, "no key owned in {PATIENCE:?}");
        n += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    n + 1
}

/// The master is killed with a lease that no replica knows of.
#[tokio::test]
async fn g1_a_failover_loses_a_lease_and_no_more() {
    let mut fleet = Fleet::start();
    // The owner beats when another has owned in its place: else it would own again.
    let settings = ["--lease-ms", "12000", "--heartbeat-ms", "5900"];
    let labs = Lab::fleet::<2>(&fleet.url(""), &settings);
    let [one, two] = &labs;
    let mut others = owns(one, "first").await + owns(two, "second").await;
    fleet.pause_replication();
    let path = "/work/g1?ms=7000&bytes=1000";
    let mut callers = one.calls(3, path);
    one.until_one("owner", 2).await;
    let status = |key: &String| meta(&fleet.servers[0], key, "status");
    let key = meta_keys(&fleet.servers[0]).into_iter().find(|key| status(key) == "running");
    let key = key.expect("a lease");
    let first: u64 = meta(&fleet.servers[0], &key, "ownerToken").parse().expect("a token");
    let killed = Instant::now();
    fleet.servers[0].kill();
    failed_over(&fleet).await;
    let over = Instant::now();
    let master = fleet.master().expect("a master");
    let master = fleet.servers.iter().find(|server| server.port() == master).expect("a server");
    assert!(!meta_keys(master).contains(&key), "no replica knew of the lease");
    others += owns(two, "third").await;
    callers.extend(two.calls(3, path));
    two.until_one("owner", 2).await;
    let second: u64 = meta(master, &key, "ownerToken").parse().expect("a token");
    others += owns(one, "fourth").await;
    let back = over.elapsed();
    println!("g1: failed over after {:?}, keys owned {back:?} later", over - killed);
    assert!(second > first, "{second} after {first}");
    assert!(back < Duration::from_secs(5), "{back:?}");

    let new: Vec<_> = (0..100).map(|n| labs[n % 2].call(&format!("/work/new-{n}?ms=5"))).collect();
    for answer in answers(new).await {
        assert!(token(&answer) > 0 && answer.status == 200, "{answer:?}");
    }
    let took = over.elapsed();
    println!("g1: 100 new keys owned {took:?} after the failover");
    assert!(took < Duration::from_secs(5), "{took:?}");

    let answers = answers(callers).await;
    let mut runs: Vec<String> = answers.iter().map(Answer::run).collect();
    runs.sort_unstable();
    runs.dedup();
    let calls = sum(&labs, "/inner/calls").await - others - 100;
    println!("g1: {calls} runs, answers of {}", runs.len());
    assert_eq!(calls, 2);
    assert!(runs.len() <= 2, "{runs:?}");
    for answer in &answers {
        assert!([first, second].contains(&token(answer)), "{answer:?}");
    }
    for run in &runs {
        let of_run: Vec<Answer> =
            answers.iter().filter(|answer| answer.run() == *run).cloned().collect();
        let answer = one_answer(&of_run);
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 1000));
    }
    for lab in &labs {
        println!("g1: {}", lab.stats().await["store"]);
    }
}

/// The master says nothing more, and does not hang up either.
#[tokio::test]
async fn g3_a_frozen_master_holds_up_nobody() {
    const RUN: Duration = Duration::from_millis(50);
    let fleet = Fleet::start();
    let labs = Lab::fleet::<2>(&fleet.url(""), &[]);
    for lab in &labs {
        owns(lab, &format!("first-{}", lab.pid())).await;
    }
    fleet.servers[0].freeze();
    let frozen = Instant::now();
    // A hundred calls a second, until all is as before.
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let (mut calls, mut over, mut back) = (Vec::new(), None, None);
    while back.is_none_or(|back: Instant| back.elapsed() < Duration::from_secs(1)) {
        assert!(frozen.elapsed() < PATIENCE, "no other master in {PATIENCE:?}");
        ticks.tick().await;
        let path = format!("/work/g3-{}?ms={}", calls.len(), RUN.as_millis());
        calls.push((Instant::now(), labs[calls.len() % 2].call(&path)));
        if calls.len() % 10 > 0 {
            continue;
        }
        if over.is_none() && fleet.master().is_some_and(|now| now != fleet.servers[0].port()) {
            over = Some(Instant::now());
        } else if over.is_some() && back.is_none() {
            let states = [labs[0].stats().await, labs[1].stats().await];
            back = states.iter().all(|stats| stats["store"]["state"] == "ok").then(Instant::now);
        }
    }
    let (over, back) = (over.expect("another master"), back.expect("a store that answers"));
    let mut took = Vec::new();
    let mut owned = 0;
    for (asked, call) in calls {
        let answer = call.answer().await;
        assert_eq!(answer.status, 200);
        took.push(answer.at - asked);
        if asked > back {
            owned += 1;
            assert!(token(&answer) > 0, "{answer:?}");
        }
    }
    let [p50, p99] = [50, 99].map(|percent| percentile(&mut took, percent));
    println!(
        "g3: another master after {:?}, back {:?} later; {} calls took p50 {p50:?}, p99 {p99:?}, \
         at most {:?}; {owned} owned after that",
        over - frozen,
        back - over,
        took.len(),
        took[took.len() - 1],
    );
    assert!(back - over < Duration::from_secs(10), "{:?}", back - over);
    // A run, and what one operation may take.
    let limit = RUN + Duration::from_millis(250) + 2 * SLACK;
    assert!(took[took.len() - 1] < limit, "{:?}", took[took.len() - 1]);
}

/// Runs that have nothing to do with the store's failing are answered, and shared, all
/// through a failover whose old master lives on.
#[tokio::test]
async fn g1_a_planned_failover_costs_no_answer() {
    let fleet = Fleet::start();
    let labs = Lab::fleet::<2>(&fleet.url(""), QUICK);
    let [one, two] = &labs;
    owns(one, "first").await;
    owns(two, "second").await;
    let owner = one.call("/work/planned?ms=6000");
    one.until_one("owner", 0).await;
    let follower = two.call("/work/planned?ms=6000");
    two.until_one("follower", 1).await;
    fleet.fail_over();
    failed_over(&fleet).await;
    let over = Instant::now();
    let both = answers([owner, follower]).await;
    let runs = sum(&labs, "/inner/calls").await;
    assert!(both.iter().all(|answer| answer.status == 200), "{both:?}");
    owns(one, "third").await;
    owns(two, "fourth").await;
    println!("planned: {runs} runs; answered {:?} after the failover", over.elapsed());
    assert_eq!(both[0].run(), both[1].run(), "the record went along");
}
