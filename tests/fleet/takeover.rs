//! Owners that are killed or stopped, and who goes on.

use std::time::{Duration, Instant};

use crate::{
    QUICK,
    lab::{Lab, answers, one_answer, sum},
    support::redis_server::RedisServer,
};

const LEASE: Duration = Duration::from_secs(3);
const SECOND: Duration = Duration::from_secs(1);
/// For what the machine does beside: it is shared, and the build is not optimised.
const SLACK: Duration = Duration::from_millis(300);

/// kill -9 of the owner: one of two other processes takes over, for all callers.
#[tokio::test]
async fn c5_f3_a_killed_owner_is_followed_by_exactly_one() {
    let redis = RedisServer::start();
    let mut owner = Lab::start(&redis.url(), &[]);
    let others = Lab::fleet::<2>(&redis.url(), &[]);
    // The owner's run never ends; the next one's does.
    let run = Duration::from_millis(200);
    let path = format!("/work/killed?ms={}&fail=hang&fail_pid={}", run.as_millis(), owner.pid());
    let first = owner.call(&path);
    owner.until_one("owner", 0).await;
    let callers: Vec<_> = others.iter().flat_map(|lab| lab.calls(25, &path)).collect();
    for lab in &others {
        lab.until_one("follower", 25).await;
    }
    let killed = Instant::now();
    owner.kill9();
    assert!(first.outcome().await.is_err(), "its own caller is cut off");
    let answers = answers(callers).await;
    let took = answers.iter().map(|answer| answer.at - killed).max().expect("answers");
    let runs = sum(&others, "/inner/calls").await;
    let takeovers = sum(&others, "/flights/takeovers").await;
    println!("kill -9: {runs} run, {takeovers} takeover, the last of 50 answers after {took:?}");
    one_answer(&answers);
    assert_eq!((runs, takeovers), (1, 1));
    assert_eq!(sum(&others, "/inner/max_running").await, 1);
    assert!(took <= LEASE + SECOND + run, "{took:?}");
}

/// A crashed owner blocks its key for a lease, and not as long as results are kept.
#[tokio::test]
async fn f4_retention_does_not_keep_a_dead_owners_key() {
    let redis = RedisServer::start();
    let settings = ["--lease-ms", "1000", "--heartbeat-ms", "300", "--retention-ms", "3600000"];
    let mut owner = Lab::start(&redis.url(), &settings);
    let other = Lab::start(&redis.url(), &settings);
    let run = Duration::from_millis(100);
    let path = format!("/work/f4?ms={}&fail=hang&fail_pid={}", run.as_millis(), owner.pid());
    let _first = owner.call(&path);
    owner.until_one("owner", 0).await;
    owner.kill9();
    let start = Instant::now();
    let answer = other.get(&path).await;
    let took = answer.at - start;
    println!("f4: answered after {took:?}");
    assert_eq!((answer.status.as_u16(), answer.role()), (200, "owner"));
    assert_eq!(other.count("/inner/calls").await, 1);
    // The lease, the longest that a follower may need to notice (a beat and a look), the run.
    let poll = Duration::from_millis(300 + 200);
    assert!(took <= SECOND + poll + run + SLACK, "{took:?}");
}

/// A stopped owner that wakes up after the takeover publishes nothing, and its own
/// callers get the next owner's answer.
#[tokio::test]
async fn f2_a_stopped_owner_publishes_nothing_when_it_wakes_up() {
    let redis = RedisServer::start();
    let [one, two, three] = Lab::fleet::<3>(&redis.url(), QUICK);
    let path = "/work/f2?ms=2000";
    let first = one.call(path);
    one.until_one("owner", 0).await;
    // One more, whose request can be run when the first one's is lost.
    let mut callers = one.calls(1, path);
    callers.extend([&two, &three].iter().flat_map(|lab| lab.calls(10, path)));
    one.until_one("owner", 1).await;
    for lab in [&two, &three] {
        lab.until_one("follower", 10).await;
    }
    one.stop();
    // The next one runs, and half of its time is left.
    let end = Instant::now() + Duration::from_secs(10);
    while two.count("/inner/calls").await + three.count("/inner/calls").await == 0 {
        assert!(Instant::now() < end, "no takeover");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    one.cont();
    callers.push(first);
    let answers = answers(callers).await;
    let answer = one_answer(&answers);
    assert!(!answer.run().contains(&format!("pid={} ", one.pid())), "{}", answer.run());
    let stats = one.stats().await;
    println!("f2: the one that was stopped: {stats}");
    assert_eq!(stats["flights"]["leases_lost"], 1);
    assert_eq!(stats["inner"]["calls"], 1);
    assert_eq!(stats["inner"]["finished"], 0);
    let labs = [one, two, three];
    assert_eq!(sum(&labs, "/inner/calls").await, 2);
    assert_eq!(sum(&labs, "/flights/takeovers").await, 1);
}
