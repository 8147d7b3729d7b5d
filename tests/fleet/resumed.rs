//! Owners that were stopped for longer than their lease, and wake up.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{
    QUICK, SLACK,
    figures::{meta, meta_keys},
    lab::{Answer, Caller, Lab, PATIENCE, answers, one_answer, sum},
    support::redis_server::RedisServer,
};

/// Of `QUICK`.
const BEAT: Duration = Duration::from_millis(300);
const RUN: Duration = Duration::from_millis(2000);

/// What the world looks like when the old owner has just been woken up.
struct Woken {
    redis: RedisServer,
    /// The old owner, and two others, one of which owns.
    labs: [Lab; 3],
    key: String,
    owner: [String; 2],
    mine: Vec<Caller>,
    others: Vec<Caller>,
    at: Instant,
}

impl Woken {
    /// An owner with `more` callers besides the first is stopped, with ten callers
    /// on each of two other labs; it wakes up when the next owner runs, so long
    /// after its own run began.
    async fn after(name: &str, more: usize, asleep: Duration) -> Self {
        let redis = RedisServer::start();
        let labs = Lab::fleet::<3>(&redis.url(), QUICK);
        let [one, two, three] = &labs;
        let path = format!("/work/{name}?ms={}", RUN.as_millis());
        let mut mine = one.calls(1, &path);
        one.until_one("owner", 0).await;
        let began = Instant::now();
        mine.extend(one.calls(more, &path));
        let others = [two, three].iter().flat_map(|lab| lab.calls(10, &path)).collect();
        one.until_one("owner", more as u64).await;
        for lab in [two, three] {
            lab.until_one("follower", 10).await;
        }
        one.stop();
        let end = Instant::now() + PATIENCE;
        while sum(&labs[1..], "/inner/calls").await == 0 {
            assert!(Instant::now() < end, "no takeover");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep_until((began + asleep).into()).await;
        let [key] = &meta_keys(&redis)[..] else { panic!("one flight") };
        let (key, owner) = (key.clone(), owner_of(&redis, key));
        one.cont();
        Self { redis, labs, key, owner, mine, others, at: Instant::now() }
    }

    /// The second run's answer, which all others have.
    async fn second(&mut self) -> Answer {
        let others = answers(std::mem::take(&mut self.others)).await;
        let answer = one_answer(&others).clone();
        assert!(!answer.run().contains(&self.pid()), "{}", answer.run());
        assert_eq!(sum(&self.labs[1..], "/inner/calls").await, 1);
        assert_eq!(sum(&self.labs, "/flights/takeovers").await, 1);
        answer
    }

    fn pid(&self) -> String {
        format!("pid={} ", self.labs[0].pid())
    }
}

fn owner_of(redis: &RedisServer, key: &str) -> [String; 2] {
    ["ownerToken", "flight"].map(|field| meta(redis, key, field))
}

/// It wakes up in the middle of its run: that is dropped within a beat, and the next
/// owner's lease is untouched.
#[tokio::test]
async fn f1_a_woken_owner_drops_its_run_and_leaves_the_next_one_alone() {
    let stats = drops_its_run("f1", Duration::ZERO).await;
    assert_eq!(stats["inner"]["dropped"], 1);
}

/// Its run was over while it slept: what it would have given is given to nobody.
#[tokio::test]
async fn f2_an_answer_that_came_in_sleep_is_nobodys() {
    let stats = drops_its_run("f2-slept", RUN + Duration::from_millis(200)).await;
    // Whether it came to its end after all is all the same.
    assert_eq!(stats["inner"]["running"], 0);
}

async fn drops_its_run(name: &str, asleep: Duration) -> Value {
    let mut woken = Woken::after(name, 2, asleep).await;
    woken.labs[0].until_count("/inner/running", 0).await;
    let dropped = woken.at.elapsed();
    // Whatever its release did is done, and the next owner still owns.
    tokio::time::sleep(BEAT).await;
    assert_eq!(owner_of(&woken.redis, &woken.key), woken.owner);
    assert_eq!(meta(&woken.redis, &woken.key, "status"), "running");
    let second = woken.second().await;
    let mut all = answers(std::mem::take(&mut woken.mine)).await;
    all.push(second);
    one_answer(&all);
    let stats = woken.labs[0].stats().await;
    println!("{name}: dropped {dropped:?} after it woke up; {stats}");
    assert!(dropped <= BEAT + SLACK, "{dropped:?}");
    assert_eq!(stats["inner"]["calls"], 1);
    assert_eq!(stats["flights"]["leases_lost"], 1);
    stats
}

/// Its only caller's request is used up, and it follows all the same.
#[tokio::test]
async fn f2_a_lone_caller_of_a_woken_owner_follows() {
    let awake = RUN + Duration::from_millis(200);
    tokio::join!(lone("f2-lone", Duration::ZERO), lone("f2-lone-slept", awake));
}

async fn lone(name: &str, asleep: Duration) {
    let mut woken = Woken::after(name, 0, asleep).await;
    let second = woken.second().await;
    let mut all = answers(std::mem::take(&mut woken.mine)).await;
    all.push(second);
    one_answer(&all);
    let stats = woken.labs[0].stats().await;
    println!("{name}: {stats}");
    assert_eq!(stats["inner"]["calls"], 1);
    assert_eq!(stats["flights"]["leases_lost"], 1);
}
