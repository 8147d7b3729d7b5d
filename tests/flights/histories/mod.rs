//! Histories: nodes, callers and faults at random. All that the store does, what runs
//! say and what callers get is written down, and then held to the protocol.
//!
//! `HISTORY_SEED=7 cargo test --test flights histories -- --nocapture` runs one seed,
//! `HISTORY_ROUNDS=500` so many from there on, or from a fresh one. A seed fixes the
//! callers, the faults and what inner does; what is random in the layer itself (ids,
//! jitter, which of two things that are ready comes first) is not, so that a fault that
//! hangs on it may want a seed to be run some times.

mod faulty;
mod inner;
mod steps;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Request;
use http_body_util::BodyExt;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tower::ServiceExt;
use tower_singleflight::{
    Abandon, Config, Delivery, Failure, KeyDigest, LeaseLoss, MemoryStore, Stats,
};

use self::{
    faulty::Faulty,
    inner::{LARGE, LONGEST, Runs},
    steps::Recorder,
};
use crate::{
    history::{self, Caller, Deed, Got, History, MS, Outage, Rules, SECOND, Time},
    rig::*,
};

/// Seeds that are always run.
const FIXED: u64 = 40;
const NODES: usize = 4;
const KEYS: u64 = 9;
const CALLERS: usize = 260;
/// Nobody waits so long.
const PATIENCE: Duration = Duration::from_secs(180);

const RULES: Rules = Rules {
    sleep: 4 * SECOND,
    stale: 4 * SECOND,
    // What the driver asks the store between the end of a run and its verdict.
    here: 600 * MS,
    exact: true,
};

/// A node of the fleet, until it is killed or has left.
struct Member {
    number: usize,
    node: Node,
    line: Faulty,
    callers: Vec<JoinHandle<()>>,
}

/// One world.
struct World {
    rng: StdRng,
    config: Config,
    /// One operation in so many meets a fault.
    odds: u32,
    store: MemoryStore,
    recorder: Arc<Recorder>,
    runs: Arc<Runs>,
    members: Vec<Member>,
    gone: Vec<Member>,
    callers: Arc<Mutex<Vec<Caller>>>,
    outages: Vec<Outage>,
}

fn config(rng: &mut StdRng) -> Config {
    let two = |rng: &mut StdRng| rng.random_ratio(1, 4);
    Config::builder()
        .max_share_bytes(LARGE)
        .hard_timeout(LONGEST + ms(2000))
        .idle_timeout(Duration::from_secs(4))
        .retention(LEASE * 2)
        .private_mark(LEASE * 2)
        .abandon(if two(rng) { Abandon::Finish } else { Abandon::Abort })
        .lease_loss(if two(rng) { LeaseLoss::FinishLocally } else { LeaseLoss::Abort })
        .delivery(match rng.random_range(0..4) {
            0 => Delivery::Buffered,
            1 => Delivery::Streaming,
            _ => Delivery::Auto,
        })
        .build()
        .unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let recorder = Arc::new(Recorder::new());
        let mut this = Self {
            config: config(&mut rng),
            odds: [8, 30, 1_000_000][rng.random_range(0..3)],
            rng,
            store: MemoryStore::new(),
            runs: Runs::new(seed, &recorder),
            recorder,
            members: Vec::new(),
            gone: Vec::new(),
            callers: Arc::default(),
            outages: Vec::new(),
        };
        for _ in 0..NODES {
            let member = this.member();
            this.members.push(member);
        }
        this
    }

    fn member(&self) -> Member {
        let number = self.members.len() + self.gone.len();
        let line = Faulty::new(number, &self.store, &self.recorder, self.runs.seed, self.odds);
        let node = Node::new(line.clone(), &self.runs.of(number), self.config.clone());
        Member { number, node, line, callers: Vec::new() }
    }

    /// A caller of some key at some node.
    fn call(&mut self) {
        let key = self.rng.random_range(0..KEYS);
        let patience = self.rng.random_ratio(1, 5).then(|| ms(self.rng.random_range(0..2500)));
        let slow = self.rng.random_ratio(1, 8).then(|| ms(self.rng.random_range(0..300)));
        let at = self.rng.random_range(0..self.members.len());
        let Member { number, node, callers, .. } = &mut self.members[at];
        let asked = self.recorder.now();
        let caller = Caller { key, node: *number, asked, head: None, got: Got::Nothing };
        let known = Reading {
            callers: Arc::clone(&self.callers),
            place: {
                let mut callers = self.callers.lock().unwrap();
                callers.push(caller);
                callers.len() - 1
            },
        };
        let (node, recorder) = (node.clone(), Arc::clone(&self.recorder));
        callers.push(tokio::spawn(async move {
            let reading = known.read(node, key, &recorder, slow);
            if timeout(patience.unwrap_or(PATIENCE), reading).await.is_err() {
                assert!(patience.is_some(), "a caller of {key} hangs");
            }
        }));
    }

    /// Something happens to a node, or to the store.
    async fn disturb(&mut self) {
        let at = self.rng.random_range(0..self.members.len());
        let now = self.recorder.now();
        let Member { number, node, line, .. } = &self.members[at];
        match self.rng.random_range(0..24) {
            0..5 => line.cut(true),
            5..12 => self.members.iter().for_each(|member| member.line.cut(false)),
            // Longer than a lease, sometimes.
            12..15 => {
                let time = self.rng.random_range(100..6000);
                let to = now + time * MS;
                self.outages.push(Outage { node: *number, from: now, to });
                line.freeze(true);
                let line = line.clone();
                tokio::spawn(async move {
                    sleep(ms(time)).await;
                    line.freeze(false);
                });
            }
            15..17 => {
                self.outages.push(Outage { node: *number, from: now, to: Time::MAX });
                line.kill();
                let fresh = self.member();
                let dead = std::mem::replace(&mut self.members[at], fresh);
                dead.callers.iter().for_each(JoinHandle::abort);
                self.gone.push(dead);
            }
            17..19 => {
                let drain = node.layer.drain(ms(self.rng.random_range(0..1500)));
                let fresh = self.member();
                self.gone.push(std::mem::replace(&mut self.members[at], fresh));
                tokio::spawn(drain);
            }
            19..21 => {
                let key = self.rng.random_range(0..KEYS);
                let request = request(key);
                tokio::spawn(node.layer.forget(&request));
            }
            21 => {
                self.recorder.note(None, &KeyDigest::from_bytes([0; 32]), Deed::DataLost);
                self.store.clear();
            }
            _ => {}
        }
    }

    async fn run(mut self) -> (History, Vec<Stats>) {
        let mut next = Instant::now() + ms(500);
        for _ in 0..CALLERS {
            for _ in 0..self.rng.random_range(0..3) {
                self.call();
            }
            if Instant::now() >= next {
                self.disturb().await;
                next = Instant::now() + ms(self.rng.random_range(0..1500));
            }
            sleep(ms(self.rng.random_range(0..120))).await;
        }
        self.members.iter().for_each(|member| {
            member.line.cut(false);
            member.line.freeze(false);
        });
        let mut all = std::mem::take(&mut self.members);
        let living = all.len();
        all.append(&mut self.gone);
        for caller in all.iter_mut().flat_map(|member| std::mem::take(&mut member.callers)) {
            // A panic of inner's own is passed on to its caller.
            if let Err(error) = caller.await
                && let Ok(panic) = error.try_into_panic()
            {
                let text = panic.downcast_ref::<&str>().copied().unwrap_or("a caller hangs");
                assert_eq!(text, "asked for by the seed");
            }
        }
        until(|| all.iter().all(|member| member.node.in_air() == 0)).await;
        let here = |node: usize| all[..living].iter().any(|member| member.number == node);
        until(|| self.runs.running(here) == 0).await;
        // Marks, records and late requests run out.
        sleep(Duration::from_secs(60)).await;
        let left = self.store.len();
        let left = (left > 0).then(|| format!("{left} records")).into_iter().collect();
        let stats = all.iter().map(|member| member.node.layer.stats()).collect();
        let history = History {
            steps: self.recorder.take(),
            runs: self.runs.take(),
            callers: self.callers.lock().unwrap().clone(),
            outages: self.outages,
            end: self.recorder.now(),
            left,
            endless: Vec::new(),
        };
        (history, stats)
    }
}

fn request(key: u64) -> Request<Body> {
    Request::get(format!("http://a.test/{key}")).body(Body::default()).unwrap()
}

/// A caller that writes down what it gets, as far as it comes.
struct Reading {
    callers: Arc<Mutex<Vec<Caller>>>,
    place: usize,
}

impl Reading {
    fn got(&self, change: impl FnOnce(&mut Caller)) {
        change(&mut self.callers.lock().unwrap()[self.place]);
    }

    async fn read(self, node: Node, key: u64, recorder: &Recorder, slow: Option<Duration>) {
        let response = node.service.oneshot(request(key)).await.unwrap();
        let head = recorder.now();
        if response.extensions().get::<Failure>().is_some() {
            return;
        }
        let mut text = String::new();
        self.got(|caller| {
            (caller.head, caller.got) = (Some(head), Got::Part(String::new()));
        });
        let mut body = response.into_body();
        loop {
            match body.frame().await {
                None => return self.got(|caller| caller.got = Got::Whole(text)),
                Some(Err(_)) => return,
                Some(Ok(frame)) => {
                    text += std::str::from_utf8(&frame.into_data().unwrap()).unwrap()
                }
            }
            self.got(|caller| caller.got = Got::Part(text.clone()));
            if let Some(slow) = slow {
                sleep(slow).await;
            }
        }
    }
}

/// What some seeds came to.
#[derive(Debug, Default)]
struct Tally {
    steps: usize,
    runs: usize,
    whole: usize,
    part: usize,
    nothing: usize,
    takeovers: u64,
    leases_lost: u64,
    fenced: u64,
    remote: u64,
}

fn one_history(seed: u64, tally: &mut Tally) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let (history, stats) = runtime.block_on(async { World::new(seed).run().await });
    drop(runtime);
    let faults = history::faults(&history, RULES);
    if !faults.is_empty() {
        let story = history::story(&history, &faults);
        panic!("{story}HISTORY_SEED={seed}:\n{}", faults.join("\n"));
    }
    tally.steps += history.steps.len();
    tally.runs += history.runs.len();
    for caller in &history.callers {
        match caller.got {
            Got::Whole(_) => tally.whole += 1,
            Got::Part(_) => tally.part += 1,
            Got::Nothing => tally.nothing += 1,
        }
    }
    for stats in stats {
        tally.takeovers += stats.takeovers;
        tally.leases_lost += stats.leases_lost;
        tally.fenced += stats.fenced;
        tally.remote += stats.follower_remote;
    }
}

#[test]
fn random_histories_hold_to_the_protocol() {
    let given = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (seed, rounds) = (given("HISTORY_SEED"), given("HISTORY_ROUNDS"));
    let first = seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("HISTORY_SEED={first}");
    let mut seeds: Vec<u64> = (first..first + rounds.unwrap_or(1)).collect();
    if seed.or(rounds).is_none() {
        seeds.extend(0..FIXED);
    }
    let (mut tally, count) = (Tally::default(), seeds.len());
    for seed in seeds {
        one_history(seed, &mut tally);
    }
    println!("{count} histories: {tally:?}");
    // The faults must have struck, and must not have struck most.
    if count > 50 {
        assert!(tally.takeovers > 0 && tally.leases_lost > 0 && tally.fenced > 0, "{tally:?}");
        assert!(tally.remote > 0 && tally.whole > 3 * (tally.part + tally.nothing), "{tally:?}");
    }
}
