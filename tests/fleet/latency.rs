//! How late followers are, and what they cost the server.

use std::time::{Duration, Instant};

use crate::{
    QUICK,
    figures::{commands, connections, percentile, warm},
    lab::{Caller, Lab, answers, one_answer, sum},
    support::redis_server::RedisServer,
};

/// A follower in another process has the answer as soon as its owner has.
#[tokio::test]
async fn q1_a_remote_follower_is_not_late() {
    const ROUNDS: usize = 200;
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &[]);
    let [one, other] = &labs;
    // All connections are there before the first round.
    one_answer(&answers([one.call("/work/q1?ms=300"), other.call("/work/q1?ms=300")]).await);
    let mut late = Vec::new();
    for round in 0..ROUNDS {
        let path = format!("/work/q1-{round}?ms=50");
        let start = Instant::now();
        let owner = one.call(&path);
        tokio::time::sleep_until((start + Duration::from_millis(10)).into()).await;
        let follower = other.call(&path);
        let both = answers([owner, follower]).await;
        one_answer(&both);
        late.push(both[1].at.saturating_duration_since(both[0].at));
    }
    let [p50, p99] = [50, 99].map(|percent| percentile(&mut late, percent));
    let most = late.last().expect("rounds");
    println!(
        "q1: {ROUNDS} rounds, the follower is later by p50 {p50:?}, p99 {p99:?}, max {most:?}"
    );
    assert_eq!(sum(&labs, "/inner/calls").await, 1 + ROUNDS as u64);
    assert!(p50 < Duration::from_millis(10), "{p50:?}");
    // Without the push it would be a beat, a second; p99 is 50 ms on a quiet machine.
    assert!(p99 < Duration::from_millis(500), "{p99:?}");
}

/// Flights in the air cost no connection.
#[tokio::test]
async fn connections_do_not_grow_with_flights() {
    const FLIGHTS: usize = 200;
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let [one, other] = &labs;
    warm(&redis, &labs).await;
    let before = connections(&redis);
    let paths: Vec<_> = (0..FLIGHTS).map(|key| format!("/work/many-{key}?ms=3000")).collect();
    let owners = in_steps(one, &paths, "owner").await;
    let followers = in_steps(other, &paths, "follower").await;
    let during = connections(&redis);
    for (owner, follower) in answers(owners).await.iter().zip(answers(followers).await) {
        one_answer(&[owner.clone(), follower]);
    }
    let after = connections(&redis);
    println!(
        "connections of two labs: {before} before, {during} with {FLIGHTS} flights, {after} after"
    );
    assert_eq!([during, after], [before; 2]);
}

/// A caller for each path, not more at once than a busy machine can let join in time.
async fn in_steps(lab: &Lab, paths: &[String], role: &str) -> Vec<Caller> {
    let mut callers = Vec::new();
    for step in paths.chunks(50) {
        callers.extend(step.iter().flat_map(|path| lab.streams(1, path)));
        let all = callers.len();
        lab.until(&format!("{all} flights as {role}"), |flights| {
            flights.len() == all && flights.iter().all(|flight| flight["role"] == role)
        })
        .await;
    }
    callers
}

/// Two thousand followers in one process cost the server what one costs.
#[tokio::test]
async fn i9_commands_do_not_grow_with_followers() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let [one, other] = &labs;
    let mut counts = Vec::new();
    for followers in [1, 2000] {
        let path = format!("/work/i9-{followers}?ms=2000");
        redis.command(&["CONFIG", "RESETSTAT"]);
        let owner = one.call(&path);
        one.until_one("owner", 0).await;
        let mut callers = other.streams(followers, &path);
        other.until_one("follower", followers as u64).await;
        callers.push(owner);
        one_answer(&answers(callers).await);
        one.until("no flight", <[_]>::is_empty).await;
        other.until("no flight", <[_]>::is_empty).await;
        counts.push(commands(&redis));
    }
    println!("i9: commands with 1 and with 2000 followers: {counts:?}");
    assert_eq!(sum(&labs, "/inner/calls").await, 2);
    assert_eq!(other.count("/flights/follower_remote").await, 2001);
    // A beat more or less of the owner and of the follower, of some ten commands each.
    assert!(counts[1] <= counts[0] + 2 * 10, "{counts:?}");
}
