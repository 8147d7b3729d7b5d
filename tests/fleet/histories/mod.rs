//! Histories of whole fleets: callers, kills, stops, lost scripts, connections and data
//! at random. What the server did is read off its monitor, what runs said off the bodies,
//! and all of it is held to the protocol.
//!
//! `HISTORY_SEED=7 cargo test --test fleet histories -- --nocapture` runs one seed,
//! `HISTORY_ROUNDS=20` so many from there on, or from a fresh one.

mod seen;
mod users;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::task::JoinHandle;

use self::{seen::Line, users::Users};
use crate::{
    QUICK, SLACK,
    figures::{Sampler, until_no_key},
    history::{self, Caller, History, MS, Outage, Rules, Run, SECOND as LONG, Time},
    lab::{Got, Lab, PATIENCE, Wire},
    monitor::Monitor,
    support::redis_server::RedisServer,
};

/// Of `QUICK`.
const LEASE: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);
const LABS: usize = 3;
const TIME: Duration = Duration::from_secs(18);
/// The longest run to its head, and to its end.
const RUN: Duration = Duration::from_millis(900);
/// The longest that a lab is stopped.
const STOP: Duration = Duration::from_millis(2500);
const KEYS: u64 = 36;
const SHARED: &str = "100000";

const RULES: Rules = Rules {
    sleep: 2 * LONG,
    // A process that hears of nothing looks when the lease is over.
    stale: 2 * LONG + 300 * MS,
    here: 2 * LONG,
    exact: false,
};

/// One lab, until it is killed.
struct Member {
    number: usize,
    lab: Lab,
}

/// A caller, and what it asked for.
struct Asked {
    task: JoinHandle<Result<Got, String>>,
    caller: Caller,
    bytes: usize,
}

struct Fleet {
    rng: StdRng,
    redis: Arc<RedisServer>,
    users: Users,
    members: Vec<Member>,
    /// Number of each process that ever was.
    pids: HashMap<u32, usize>,
    killed: Vec<usize>,
    stopped: Option<(usize, Instant)>,
    outages: Vec<Outage>,
    events: HashMap<&'static str, u64>,
}

/// By the clock of this machine, as the server's.
fn now() -> Time {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros() as Time
}

/// What a key's request asks for: its path, its bytes, and whether inner fails.
fn request(key: u64) -> (String, usize, bool) {
    let ms = 5 + key * 397 % (RUN.as_millis() as u64 - 5);
    let (bytes, more) = match key % 12 {
        0 | 1 => (100, ""),
        2 => (5000, ""),
        3 => (70_000, ""),
        4 | 5 => (3000, "&chunks=6&gap=60"),
        6 => (60_000, "&chunks=30&gap=20"),
        // More than is shared.
        7 => (200_000, "&chunks=20&gap=10"),
        8 => (100, "&set=cache-control%3Ano-store"),
        9 => (3000, "&chunks=6&gap=60&fail=error"),
        10 => (100, "&fail=panic"),
        _ => (100, "&status=502"),
    };
    (format!("/work/history-{key}?ms={ms}&bytes={bytes}{more}"), bytes, more.contains("fail"))
}

impl Fleet {
    fn new(seed: u64) -> Self {
        let redis = Arc::new(RedisServer::start());
        let mut this = Self {
            rng: StdRng::seed_from_u64(seed),
            users: Users::start(&redis),
            redis,
            members: Vec::new(),
            pids: HashMap::new(),
            killed: Vec::new(),
            stopped: None,
            outages: Vec::new(),
            events: HashMap::new(),
        };
        for _ in 0..LABS {
            let member = this.member();
            this.members.push(member);
        }
        this
    }

    /// A new lab, told apart by its user.
    fn member(&mut self) -> Member {
        let number = self.pids.len();
        let user = users::name(number);
        self.redis.command(&["ACL", "SETUSER", &user, "on", ">pw", "~*", "&*", "+@all"]);
        let settings = [QUICK, &["--max-share-bytes", SHARED, "--pass-ms", "2000"]].concat();
        let lab = Lab::start(&self.redis.url_for(&user, "pw", 0), &settings);
        self.pids.insert(lab.pid(), number);
        Member { number, lab }
    }

    /// One caller, who may leave.
    fn ask(&mut self) -> Asked {
        let key = self.rng.random_range(0..KEYS);
        let (path, bytes, _) = request(key);
        let Member { number, lab } = &self.members[self.rng.random_range(0..LABS)];
        let (opening, asked) = (lab.opening(Wire::Http1, &path), now());
        let patience = self.rng.random_bool(0.1).then(|| self.rng.random_range(0..800));
        let task = tokio::spawn(async move {
            let patience = patience.map_or(PATIENCE, Duration::from_millis);
            let reading = async { Ok(opening.outcome().await?.rest().await) };
            match tokio::time::timeout(patience, reading).await {
                Ok(got) => got,
                Err(_) => Err("left".to_owned()),
            }
        });
        let got = history::Got::Nothing;
        Asked { task, caller: Caller { key, node: *number, asked, head: None, got }, bytes }
    }

    /// Something bad happens.
    async fn disturb(&mut self) {
        let at = self.rng.random_range(0..LABS);
        let number = self.members[at].number;
        let event = match self.rng.random_range(0..10) {
            0 if self.stopped.is_none_or(|(stopped, _)| stopped != at) => {
                self.killed.push(number);
                self.outages.push(Outage { node: number, from: now(), to: Time::MAX });
                self.members[at].lab.kill9();
                self.members[at] = self.member();
                "kill"
            }
            1 if self.stopped.is_none() => {
                let time = self.rng.random_range(50..STOP.as_millis() as u64);
                let from = now();
                self.members[at].lab.stop();
                self.stopped = Some((at, Instant::now() + Duration::from_millis(time)));
                // Until it is awake again.
                let to = from + (time + 500) * MS;
                self.outages.push(Outage { node: number, from, to });
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
                // Not the monitor's.
                let user = users::name(number);
                self.redis.command(&["CLIENT", "KILL", "USER", &user, "TYPE", "normal"]);
                "kill normal"
            }
            5 => {
                self.redis.command(&["FLUSHALL"]);
                "lose all data"
            }
            6 if self.stopped.is_none() => {
                let (path, ..) = request(self.rng.random_range(0..KEYS));
                let query = path.replace('?', "%3F").replace('&', "%26").replace('=', "%3D");
                drop(self.members[at].lab.post(&format!("/forget?path={query}")).outcome().await);
                "forget"
            }
            _ => "nothing",
        };
        *self.events.entry(event).or_default() += 1;
    }

    fn wake(&mut self, now: Instant) {
        if let Some((at, _)) = self.stopped.take_if(|(_, until)| *until <= now) {
            self.members[at].lab.cont();
        }
    }
}

/// What the callers got.
#[derive(Debug, Default)]
struct Tally {
    callers: usize,
    whole: usize,
    part: usize,
    refused: usize,
    cut: usize,
    longest: Duration,
    runs: HashMap<u64, Run>,
}

/// The first line of a body: `run=<uuid> pid=<pid> token=<token>`.
fn named(line: &str) -> Option<(u64, u32, u64)> {
    let mut words = line.split(' ').map(|word| word.split_once('=').map(|(_, value)| value));
    let run = words.next()??.replace('-', "");
    let [pid, token] = [words.next()??, words.next()??];
    Some((u64::from_str_radix(run.get(..16)?, 16).ok()?, pid.parse().ok()?, token.parse().ok()?))
}

impl Tally {
    /// What a caller got, in short: the run's first line stands for all of its bytes.
    fn take(&mut self, fleet: &Fleet, asked: &mut Asked, got: &Got) {
        let Asked { caller, bytes, .. } = asked;
        self.longest = self.longest.max(got.at - got.asked);
        if !matches!(got.status.as_u16(), 200 | 502) || got.role() == "none" {
            // Too many owners of this key were lost, or it was failed by who left.
            self.refused += 1;
            return;
        }
        assert!(got.is_part(), "{got:?} is of no run");
        let line = got.run();
        // Less than the first line may be all there is.
        let Some((run, pid, token)) = named(&line) else {
            assert!(got.error.is_some(), "{got:?}");
            return;
        };
        let (_, _, fails) = request(caller.key);
        let node = fleet.pids[&pid];
        let token = (token > 0).then_some(token);
        let text = format!("{line}, {bytes} bytes");
        let whole = !fails;
        self.runs.entry(run).or_insert(Run {
            key: caller.key,
            node,
            token,
            text: text.clone(),
            whole,
            over: None,
        });
        caller.got = if got.error.is_some() {
            self.part += 1;
            history::Got::Part(line)
        } else {
            self.whole += 1;
            history::Got::Whole(format!("{line}, {} bytes", got.body.len()))
        };
    }
}

/// `HISTORY_SEED` runs one seed again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_histories_of_fleets_hold_to_the_protocol() {
    let given = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = given("HISTORY_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    for seed in first..first + given("HISTORY_ROUNDS").unwrap_or(1) {
        one_history(seed).await;
    }
}

async fn one_history(seed: u64) {
    println!("HISTORY_SEED={seed}");
    let mut fleet = Fleet::new(seed);
    let monitor = Monitor::parsing(&fleet.redis, Line::parse);
    let sampler = Sampler::start(&fleet.redis);
    let start = Instant::now();
    let mut asked = Vec::new();
    let mut next = start + SECOND;
    while start.elapsed() < TIME {
        asked.push(fleet.ask());
        let now = Instant::now();
        fleet.wake(now);
        if now >= next {
            fleet.disturb().await;
            next = now + Duration::from_millis(fleet.rng.random_range(100..700));
        }
        // As many as a busy machine can do.
        tokio::time::sleep(Duration::from_millis(fleet.rng.random_range(2..20))).await;
    }
    // The last one to be stopped goes on.
    fleet.wake(start + 2 * TIME);

    let mut tally = Tally { callers: asked.len(), ..Tally::default() };
    let mut callers = Vec::new();
    for mut asked in asked {
        match (&mut asked.task).await.expect("no panic") {
            Ok(got) => tally.take(&fleet, &mut asked, &got),
            Err(_) => tally.cut += 1,
        }
        callers.push(asked.caller);
    }
    let over = Instant::now();
    for Member { lab, .. } in &fleet.members {
        lab.until("no flight", <[_]>::is_empty).await;
        assert_eq!(lab.count("/inner/running").await, 0);
    }
    let empty = over.elapsed();
    // Retention is two seconds, and so are the marks of waiters that were killed.
    let gone = until_no_key(&fleet.redis, 2 * SECOND + LEASE + SLACK).await;
    let samples = sampler.end();
    let end = now();
    let users = fleet.users.end();
    let lines = monitor.end();
    let steps = seen::steps(&lines, |from| users.get(from).copied());
    let history = History {
        steps,
        runs: tally.runs.clone(),
        callers,
        outages: fleet.outages.clone(),
        end,
        left: Vec::new(),
        endless: samples.endless,
    };
    let unknown = history.steps.iter().filter(|step| step.node.is_none()).count();
    println!(
        "history: {} lines, {} steps, {unknown} of unknown processes; {} callers: {} whole, {} in \
         part, {} refused, {} cut; {} runs; longest wait {:?}; no flight {empty:?}, no key \
         {gone:?} later; {:?}",
        lines.len(),
        history.steps.len(),
        tally.callers,
        tally.whole,
        tally.part,
        tally.refused,
        tally.cut,
        tally.runs.len(),
        tally.longest,
        fleet.events
    );
    let faults = history::faults(&history, RULES);
    let story = || history::story(&history, &faults);
    assert!(faults.is_empty(), "{}HISTORY_SEED={seed}:\n{}", story(), faults.join("\n"));
    assert!(tally.whole > tally.callers / 2, "{tally:?}");
    // An owner may be lost three times, and each time it costs a lease, a second and
    // the run; and the caller's own process may be stopped for a while.
    let limit = 3 * (LEASE + SECOND + RUN) + 2 * RUN + STOP;
    assert!(tally.longest <= limit, "{:?} > {limit:?}", tally.longest);
    // Of who has left nothing stays for longer than a beat and the end of a run.
    assert!(empty <= LEASE + SECOND, "{empty:?}");
}
