//! Successors of owners, and of successors.

use std::time::{Duration, Instant};

use crate::{
    QUICK, SLACK,
    figures::{meta, meta_keys},
    lab::{Lab, PATIENCE, answers, one_answer, sum},
    monitor::{Monitor, users},
    support::redis_server::RedisServer,
};

/// Of `QUICK`.
const LEASE: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);
/// Between two looks at who runs.
const LOOK: Duration = Duration::from_millis(5);

/// The owner is killed, and then who took over: a third one answers all who are
/// left, and never do two run.
#[tokio::test]
async fn f3_successors_may_be_killed_too() {
    let redis = RedisServer::start();
    let mut labs = Vec::from(Lab::fleet::<4>(&redis.url(), QUICK));
    let run = Duration::from_millis(1500);
    let path = format!("/work/succession?ms={}", run.as_millis());
    let mut callers = vec![(labs[0].pid(), labs[0].call(&path))];
    labs[0].until_one("owner", 0).await;
    for lab in &labs[1..] {
        callers.extend(lab.calls(5, &path).into_iter().map(|caller| (lab.pid(), caller)));
        lab.until_one("follower", 5).await;
    }
    let mut killed = Vec::new();
    let mut looks = 0;
    while killed.len() < 2 {
        let owner = until_one_runs(&labs, &mut looks).await;
        let mut owner = labs.remove(owner);
        owner.kill9();
        killed.push((owner.pid(), Instant::now()));
    }
    until_one_runs(&labs, &mut looks).await;
    // Also to its end.
    while running(&labs).await.iter().any(|running| *running) {
        looks += 1;
        tokio::time::sleep(LOOK).await;
    }
    let (mut left, mut cut) = (Vec::new(), 0);
    for (pid, caller) in callers {
        if killed.iter().any(|(killed, _)| *killed == pid) {
            assert!(caller.outcome().await.is_err(), "its process was killed");
            cut += 1;
        } else {
            left.push(caller.answer().await);
        }
    }
    one_answer(&left);
    assert_eq!((left.len(), cut), (10, 6));
    let took = left.iter().map(|answer| answer.at - killed[1].1).max().expect("answers");
    println!(
        "succession: {looks} looks, at most one ran; 10 answers {took:?} after the second kill"
    );
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
    assert_eq!(sum(&labs, "/flights/takeovers").await, 1);
    assert!(took <= LEASE + SECOND + run, "{took:?}");
}

/// Three owners in a row are killed, as by the request itself: who is left is told so, and
/// so is who comes after that.
#[tokio::test]
async fn f3_a_key_that_lost_three_owners_is_refused() {
    let redis = RedisServer::start();
    let mut labs = Vec::from(Lab::fleet::<4>(&redis.url(), QUICK));
    let path = "/work/deadly?ms=20000";
    let _first = labs[0].call(path);
    labs[0].until_one("owner", 0).await;
    let mut callers = Vec::new();
    for lab in &labs[1..] {
        callers.push(lab.calls(2, path));
        lab.until_one("follower", 2).await;
    }
    let mut looks = 0;
    for _ in 0..3 {
        let owner = until_one_runs(&labs, &mut looks).await;
        labs.remove(owner).kill9();
    }
    let [last] = &labs[..] else { panic!("one is left") };
    let mut refused = Vec::new();
    for caller in callers.into_iter().flatten() {
        refused.extend(caller.outcome().await);
    }
    let asked = Instant::now();
    refused.push(last.get(path).await);
    println!("quarantine: who comes is told after {:?}", asked.elapsed());
    assert_eq!(refused.len(), 3);
    for answer in &refused {
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.headers["retry-after"], "5");
        assert_eq!(answer.headers["cache-status"], "tower-singleflight; detail=quarantined");
    }
    assert!(asked.elapsed() <= SLACK, "{:?}", asked.elapsed());
    let [calls, found] =
        [last.count("/inner/calls").await, last.count("/flights/quarantined").await];
    assert_eq!([calls, found], [0, 2]);
    assert_eq!(last.get("/work/harmless?ms=1").await.status, 200);
}

/// Which of them run now.
async fn running(labs: &[Lab]) -> Vec<bool> {
    let mut running = Vec::new();
    for lab in labs {
        let count = lab.count("/inner/running").await;
        assert!(count <= 1);
        running.push(count == 1);
    }
    // None of these runs ends while another begins, so the looks are as one.
    assert!(running.iter().filter(|running| **running).count() <= 1, "{running:?}");
    running
}

async fn until_one_runs(labs: &[Lab], looks: &mut u64) -> usize {
    let end = Instant::now() + PATIENCE;
    loop {
        *looks += 1;
        if let Some(place) = running(labs).await.iter().position(|running| *running) {
            return place;
        }
        assert!(Instant::now() < end, "nobody runs");
        tokio::time::sleep(LOOK).await;
    }
}

/// Two hundred followers in two processes lose their owner: one takes over, and the
/// server is hardly asked.
#[tokio::test]
async fn f3_a_herd_takes_over_once() {
    let redis = RedisServer::start();
    // By their users the processes are told apart.
    for user in ["one", "two"] {
        redis.command(&["ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all"]);
    }
    let url = |user: &str| redis.url().replace("//", &format!("//{user}:pw@"));
    let mut owner = Lab::start(&redis.url(), QUICK);
    let labs = [Lab::start(&url("one"), QUICK), Lab::start(&url("two"), QUICK)];
    let run = Duration::from_millis(2000);
    let path = format!("/work/herd?ms={}&fail=hang&fail_pid={}", run.as_millis(), owner.pid());
    let first = owner.call(&path);
    owner.until_one("owner", 0).await;
    let callers: Vec<_> = labs.iter().flat_map(|lab| lab.streams(100, &path)).collect();
    for lab in &labs {
        lab.until_one("follower", 100).await;
    }
    let monitor = Monitor::start(&redis);
    owner.kill9();
    let [key] = &meta_keys(&redis)[..] else { panic!("one flight") };
    let number = |field| meta(&redis, key, field).parse::<u64>().expect("a number");
    let lease_end = number("heartbeatAt") + number("lease") * 1000;
    assert!(first.outcome().await.is_err());
    let answers = answers(callers).await;
    let users = users(&redis);
    let sent = monitor.end();
    one_answer(&answers);
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
    assert_eq!(sum(&labs, "/flights/takeovers").await, 1);
    for user in ["one", "two"] {
        let after = sent.iter().filter(|sent| {
            (lease_end..lease_end + 1_000_000).contains(&sent.at)
                && users.get(&sent.from).is_some_and(|of| of == user)
        });
        let commands: Vec<_> = after.map(|sent| sent.command.as_str()).collect();
        println!("herd: {user} sent {} commands in the second after the lease", commands.len());
        assert!(!commands.is_empty(), "it beats");
        assert!(commands.len() < 10, "{commands:?}");
    }
}

/// Who waits elsewhere is killed: the run that nobody wants any more is dropped as
/// soon as the dead waiter's mark has run out.
#[tokio::test]
async fn a4_a_waiter_that_was_killed_does_not_keep_a_run() {
    let redis = RedisServer::start();
    let one = Lab::start(&redis.url(), QUICK);
    let mut other = Lab::start(&redis.url(), QUICK);
    let path = "/work/vanished?ms=20000";
    let first = one.call(path);
    one.until_one("owner", 0).await;
    let _follower = other.call(path);
    other.until_one("follower", 1).await;
    first.leave();
    // Its mark is renewed by then: it lasts as long as a watch says.
    one.until("its caller has left", |flights| flights[0]["followers"] == 0).await;
    tokio::time::sleep(LEASE).await;
    assert_eq!(one.count("/inner/running").await, 1, "for the waiter elsewhere");
    other.kill9();
    let killed = Instant::now();
    one.until_count("/inner/dropped", 1).await;
    let took = killed.elapsed();
    println!("a4: dropped {took:?} after the last waiter was killed");
    // The mark lasts 2.5 beats, and the owner hears of it at its next.
    assert!(took <= Duration::from_millis(300) * 7 / 2 + SLACK, "{took:?}");
    one.until("no flight", <[_]>::is_empty).await;
}
