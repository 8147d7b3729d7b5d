//! A server that takes connections and says nothing.

use std::time::{Duration, Instant};

use crate::{
    QUICK, SLACK,
    figures::percentile,
    lab::{Lab, answers, one_answer, sum},
    proxy::{Link, Proxy},
    support::redis_server::RedisServer,
};

/// The limit of one store operation.
const OPT: Duration = Duration::from_millis(250);
const SECOND: Duration = Duration::from_secs(1);

/// From the start: the service starts and answers, and comes together when it can.
#[tokio::test]
async fn i4_q3_silent_from_the_start() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    proxy.set(Link::Silent);
    let start = Instant::now();
    let labs = Lab::fleet::<2>(&proxy.url(), QUICK);
    println!("i4: two labs started in {:?}", start.elapsed());
    let start = Instant::now();
    for lab in &labs {
        let all = answers(lab.calls(50, "/work/i4?ms=500")).await;
        assert_eq!(one_answer(&all).status, 200);
    }
    let took = start.elapsed();
    println!("i4: 50 callers on each are answered in {took:?}, one lab after the other");
    assert_eq!(sum(&labs, "/inner/calls").await, 2);
    assert!(took <= 2 * (Duration::from_millis(500) + OPT + SLACK), "{took:?}");
    known_to_be_away(&labs[0]).await;
    proxy.set(Link::Open);
    together_again(&labs).await;
}

/// In the middle of a run, with callers on both sides.
#[tokio::test]
async fn i4_q3_silent_from_the_middle_of_a_run() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    let labs = Lab::fleet::<2>(&proxy.url(), QUICK);
    let [one, other] = &labs;
    let path = "/work/i4-middle?ms=1500";
    let mut own = one.calls(1, path);
    one.until_one("owner", 0).await;
    own.extend(one.calls(24, path));
    let others = other.calls(25, path);
    one.until_one("owner", 24).await;
    other.until_one("follower", 25).await;
    proxy.set(Link::Silent);
    let cut = Instant::now();
    let (own, others) = (answers(own).await, answers(others).await);
    let took = own.iter().chain(&others).map(|answer| answer.at - cut).max();
    let runs = sum(&labs, "/inner/calls").await;
    println!("i4: silent during a run: {runs} runs begun, all 50 answered after {took:?}");
    assert_eq!([one_answer(&own).status, one_answer(&others).status], [200, 200]);
    // One that was there, and at most one more in each process.
    assert!((2..=3).contains(&runs), "{runs}");
    // The lease, the limit of an operation, a run.
    assert!(took <= Some(SECOND + OPT + Duration::from_millis(1500) + SLACK), "{took:?}");
    known_to_be_away(one).await;
    proxy.set(Link::Open);
    together_again(&labs).await;
}

/// A hundred requests a second at a server that is known to be away.
async fn known_to_be_away(lab: &Lab) {
    // What opens the breaker, and what the run itself takes.
    for round in 0..5 {
        lab.get(&format!("/work/known-{round}?ms=1")).await;
    }
    let start = Instant::now();
    let mut took = Vec::new();
    for round in 0..300 {
        tokio::time::sleep_until((start + round * Duration::from_millis(10)).into()).await;
        let start = Instant::now();
        let answer = lab.get(&format!("/work/away-{round}?ms=1")).await;
        assert_eq!(answer.status, 200);
        took.push((answer.at - start).saturating_sub(Duration::from_millis(1)));
    }
    let waited = took.iter().filter(|took| **took > OPT / 2).count();
    let [p50, p90, p99] = [50, 90, 99].map(|percent| percentile(&mut took, percent));
    println!(
        "q3: extra latency p50 {p50:?}, p90 {p90:?}, p99 {p99:?}, max {:?}; {waited} waited",
        took[took.len() - 1]
    );
    assert!(p50 < Duration::from_millis(5), "{p50:?}");
    // Probes are at most two seconds apart at the end, and wait for a limit.
    assert!(waited <= 4, "{waited}");
}

/// Both meet in the store again, five seconds after it can be reached.
async fn together_again(labs: &[Lab; 2]) {
    let healed = Instant::now();
    for round in 0.. {
        let path = format!("/work/healed-{round}?ms=100");
        let both = answers(labs.iter().map(|lab| lab.call(&path))).await;
        if both[0].run() == both[1].run() {
            break;
        }
        assert!(healed.elapsed() < 5 * SECOND, "not in five seconds");
    }
    println!("q3: coordinated again {:?} after the heal", healed.elapsed());
    assert!(healed.elapsed() < 5 * SECOND + SLACK, "{:?}", healed.elapsed());
}
