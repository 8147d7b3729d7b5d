//! No Redis.

use std::time::{Duration, Instant};

use crate::{
    QUICK,
    figures::percentile,
    lab::{Lab, answers, one_answer, sum},
    support::redis_server::{RedisServer, closed_port},
};

/// Without a server at the start: single flight in each process.
#[tokio::test]
async fn q2_without_redis_each_process_makes_one_run() {
    let url = closed_port();
    let labs = Lab::fleet::<2>(&url, &[]);
    for round in 1..=3 {
        let path = format!("/work/q2-{round}?ms=500");
        let start = Instant::now();
        let callers = labs.iter().map(|lab| lab.calls(50, &path)).collect::<Vec<_>>();
        for callers in callers {
            let all = answers(callers).await;
            one_answer(&all);
            assert_eq!(all[0].status, 200);
        }
        println!("q2: 50 callers on each of two labs are answered in {:?}", start.elapsed());
        assert_eq!(sum(&labs, "/inner/calls").await, 2 * round);
        // A run, and what an operation may wait for the store.
        assert!(start.elapsed() < Duration::from_millis(500 + 250 + 300));
    }
    for lab in &labs {
        let store = &lab.stats().await["store"];
        println!("q2: {store}");
        assert_eq!(store["state"], "degraded");
    }
    // Once it is known, only the probe now and then waits for the store.
    let mut took = Vec::new();
    for key in 0..200 {
        let start = Instant::now();
        labs[0].get(&format!("/work/q2-known-{key}?ms=1")).await;
        took.push(start.elapsed());
    }
    let [p50, p90] = [50, 90].map(|percent| percentile(&mut took, percent));
    println!(
        "q2: known to be away, runs of 1 ms take p50 {p50:?}, p90 {p90:?}, max {:?}",
        took[199]
    );
    // Five milliseconds and the run, on a quiet machine.
    assert!(p90 < Duration::from_millis(50), "{p90:?}");
}

/// Redis dies in the middle of a run: everybody is answered.
#[tokio::test]
async fn q2_redis_that_dies_during_a_run_costs_no_answer() {
    let mut redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let [one, other] = &labs;
    let path = "/work/q2?ms=1500";
    let mut own = one.calls(1, path);
    one.until_one("owner", 0).await;
    own.extend(one.calls(24, path));
    one.until_one("owner", 24).await;
    let others = other.calls(25, path);
    other.until_one("follower", 25).await;
    redis.kill();
    let killed = Instant::now();
    let (own, others) = (answers(own).await, answers(others).await);
    one_answer(&own);
    one_answer(&others);
    assert_eq!([own[0].status, others[0].status], [200, 200]);
    let took = own.iter().chain(&others).map(|answer| answer.at - killed).max();
    let runs = sum(&labs, "/inner/calls").await;
    println!("q2: Redis killed during a run: {runs} runs begun, all 50 answered after {took:?}");
    // One that was there, and at most one more in each process: cut off, a run is
    // dropped at its lease's end and run again, or goes on alone.
    assert!((2..=3).contains(&runs), "{runs}");
    // The lease, a look at a dead server, a run.
    assert!(took < Some(Duration::from_millis(1000 + 500 + 1500 + 500)), "{took:?}");

    // It comes back empty, and the fleet meets there again.
    redis.restart();
    let back = Instant::now();
    for lab in &labs {
        while lab.stats().await["store"]["state"] != "ok" {
            assert!(back.elapsed() < Duration::from_secs(5), "still degraded");
            lab.get("/work/knock?ms=1").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    println!("q2: Redis is used again {:?} after its start", back.elapsed());
    let before = sum(&labs, "/inner/calls").await;
    let callers = labs.iter().flat_map(|lab| lab.calls(5, "/work/again?ms=500"));
    one_answer(&answers(callers.collect::<Vec<_>>()).await);
    assert_eq!(sum(&labs, "/inner/calls").await, before + 1);
}
