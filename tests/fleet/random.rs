//! Everything at random: callers, kills, stops, lost scripts and connections.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    QUICK, SLACK,
    figures::until_no_key,
    lab::{Answer, Caller, Lab},
    support::redis_server::RedisServer,
};

/// Of `QUICK`.
const LEASE: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);
const LABS: usize = 3;
const TIME: Duration = Duration::from_secs(25);
/// The longest run.
const RUN: Duration = Duration::from_millis(900);
/// The longest that a lab is stopped.
const STOP: Duration = Duration::from_millis(2500);

/// A caller, and what it asked for.
struct Asked {
    caller: Caller,
    at: Instant,
    lab: u32,
    bytes: usize,
}

struct Fleet {
    rng: StdRng,
    redis: RedisServer,
    labs: Vec<Lab>,
    killed: Vec<u32>,
    stopped: Option<(usize, Instant)>,
    events: HashMap<&'static str, u64>,
}

impl Fleet {
    fn new(seed: u64) -> Self {
        let redis = RedisServer::start();
        let labs = Lab::fleet::<LABS>(&redis.url(), QUICK).into();
        let rng = StdRng::seed_from_u64(seed);
        Self { rng, redis, labs, killed: Vec::new(), stopped: None, events: HashMap::new() }
    }

    /// One flight: some callers anywhere, some of whom leave at once.
    fn ask(&mut self, key: usize) -> Vec<Asked> {
        let ms = self.rng.random_range(5..RUN.as_millis() as u64);
        // One that is pushed, one that is read, one that is large.
        let bytes = [100, 5000, 70_000][self.rng.random_range(0..3)];
        let path = format!("/work/random-{key}?ms={ms}&bytes={bytes}");
        let mut asked = Vec::new();
        for _ in 0..self.rng.random_range(1..=4) {
            let lab = &self.labs[self.rng.random_range(0..LABS)];
            let caller = lab.streams(1, &path).remove(0);
            if self.rng.random_bool(0.1) {
                caller.leave();
            } else {
                asked.push(Asked { caller, at: Instant::now(), lab: lab.pid(), bytes });
            }
        }
        asked
    }

    /// Something bad happens.
    fn disturb(&mut self) {
        let lab = self.rng.random_range(0..LABS);
        let event = match self.rng.random_range(0..6) {
            0 if self.stopped.is_none_or(|(stopped, _)| stopped != lab) => {
                self.killed.push(self.labs[lab].pid());
                self.labs[lab] = Lab::start(&self.redis.url(), QUICK);
                "kill"
            }
            1 if self.stopped.is_none() => {
                self.labs[lab].stop();
                let time = self.rng.random_range(50..STOP.as_millis() as u64);
                self.stopped = Some((lab, Instant::now() + Duration::from_millis(time)));
                "stop"
            }
            2 => {
                self.redis.command(&["SCRIPT", "FLUSH"]);
                "flush"
            }
            3 => {
                self.redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                "kill pubsub"
            }
            4 => {
                self.redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
                "kill normal"
            }
            _ => "nothing",
        };
        *self.events.entry(event).or_default() += 1;
    }

    fn wake(&mut self, now: Instant) {
        if let Some((lab, _)) = self.stopped.take_if(|(_, until)| *until <= now) {
            self.labs[lab].cont();
        }
    }
}

/// What the callers got.
#[derive(Debug, Default)]
struct Got {
    answered: usize,
    refused: usize,
    cut: usize,
    longest: Duration,
    bodies: HashMap<String, Bytes>,
}

impl Got {
    fn take(&mut self, answer: &Answer, at: Instant, bytes: usize) {
        self.longest = self.longest.max(answer.at - at);
        if answer.status == 503 {
            // Too many owners of this key were lost, or it was failed by who left.
            assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
            self.refused += 1;
            return;
        }
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, bytes), "{}", answer.run());
        assert!(answer.run().starts_with("run="));
        self.answered += 1;
        // Whoever has a run's answer has all of it.
        let body = self.bodies.entry(answer.run()).or_insert_with(|| answer.body.clone());
        assert!(*body == answer.body, "two bodies of {}", answer.run());
    }
}

/// Whatever happens, every caller ends in time, and nothing is left behind.
/// `FLEET_SEED` runs one seed again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_faults_leave_nobody_waiting_and_nothing_behind() {
    let given = std::env::var("FLEET_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(rand::random);
    println!("random: FLEET_SEED={seed}");
    let mut fleet = Fleet::new(seed);
    let start = Instant::now();
    let (mut asked, mut flights) = (Vec::new(), 0);
    let mut next = start + SECOND;
    while start.elapsed() < TIME {
        asked.extend(fleet.ask(flights));
        flights += 1;
        let now = Instant::now();
        fleet.wake(now);
        if now >= next {
            fleet.disturb();
            next = now + Duration::from_millis(fleet.rng.random_range(100..800));
        }
        // As many as a busy machine can do.
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    // The last one to be stopped goes on.
    fleet.wake(start + 2 * TIME);

    let (callers, mut got) = (asked.len(), Got::default());
    for Asked { caller, at, lab, bytes } in asked {
        match caller.outcome().await {
            Ok(answer) => got.take(&answer, at, bytes),
            Err(error) => {
                assert!(fleet.killed.contains(&lab), "{error}");
                got.cut += 1;
            }
        }
    }
    let over = Instant::now();
    for lab in &fleet.labs {
        lab.until("no flight", <[_]>::is_empty).await;
        assert_eq!(lab.count("/inner/running").await, 0);
    }
    let empty = over.elapsed();
    // Retention is two seconds, and so are the marks of waiters that were killed.
    let gone = until_no_key(&fleet.redis, 2 * SECOND + LEASE + SLACK).await;
    let runs = got.bodies.len();
    println!(
        "random: {flights} flights, {callers} callers, {} answered by {runs} runs, {} refused, \
         {} cut off; longest wait {:?}; no flight {empty:?}, no key {gone:?} later; {:?}",
        got.answered, got.refused, got.cut, got.longest, fleet.events
    );
    assert!(runs <= got.answered && got.answered > callers / 2);
    // An owner may be lost three times, and each time it costs a lease, a second and
    // the run; and the caller's own process may be stopped for a while.
    let limit = 3 * (LEASE + SECOND + RUN) + RUN + STOP;
    assert!(got.longest <= limit, "{:?} > {limit:?}", got.longest);
    // Of who has left nothing stays for longer than a beat and the end of a run.
    assert!(empty <= LEASE + SECOND, "{empty:?}");
}
