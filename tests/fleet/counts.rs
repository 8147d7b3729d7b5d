//! What each fault of a process costs, in runs of one flight and in leases.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    QUICK,
    figures::{meta, meta_keys},
    lab::{Answer, Caller, Lab, PATIENCE, answers, one_answer},
    support::redis_server::RedisServer,
};

/// Of one flight, over all processes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    runs: u64,
    takeovers: u64,
    /// Leases that ended before their run did.
    lost: u64,
    /// Outcomes that the store refused: an owner that is too late knows it by itself.
    fenced: u64,
}

const fn counts(runs: u64, takeovers: u64, lost: u64, fenced: u64) -> Counts {
    Counts { runs, takeovers, lost, fenced }
}

// The fault, and of what process           runs  takeovers  lost  fenced
const NONE: Counts = /*                  */ counts(1, /* */ 0, /**/ 0, 0);
const KILLED: Counts = /*                */ counts(2, /* */ 1, /**/ 0, 0);
const FOLLOWER_KILLED: Counts = /*       */ counts(1, /* */ 0, /**/ 0, 0);
const STOPPED_BRIEFLY: Counts = /*       */ counts(1, /* */ 0, /**/ 0, 0);
const STOPPED_IN_RUN: Counts = /*        */ counts(2, /* */ 1, /**/ 1, 0);
const STOPPED_PAST_RUN: Counts = /*      */ counts(2, /* */ 1, /**/ 1, 0);
const FOLLOWER_STOPPED: Counts = /*      */ counts(1, /* */ 0, /**/ 0, 0);
const TERMINATED_IN_GRACE: Counts = /*   */ counts(1, /* */ 0, /**/ 0, 0);
const TERMINATED_PAST_GRACE: Counts = /* */ counts(2, /* */ 1, /**/ 0, 0);
const BLOCKED: Counts = /*               */ counts(1, /* */ 0, /**/ 0, 0);
const BUSY_RUNTIME: Counts = /*          */ counts(1, /* */ 0, /**/ 0, 0);
const BUSY_MACHINE: Counts = /*          */ counts(1, /* */ 0, /**/ 0, 0);

/// An owner with two callers, and two processes that follow with three each.
struct Flight {
    redis: RedisServer,
    labs: Vec<Lab>,
    /// Callers by the process that they called.
    callers: Vec<(u32, Caller)>,
    /// Runs of processes that can tell of them no more.
    gone: u64,
    /// They may live.
    left: Vec<Lab>,
}

impl Flight {
    async fn start(settings: &[&str], path: impl Fn(u32) -> String) -> Self {
        let redis = RedisServer::start();
        let labs: Vec<_> = Lab::fleet::<3>(&redis.url(), settings).into();
        let mut flight = Self { redis, labs, callers: Vec::new(), gone: 0, left: Vec::new() };
        let path = path(flight.labs[0].pid());
        flight.call(0, 1, &path);
        flight.until_granted().await;
        flight.call(0, 1, &path);
        for (lab, callers) in [(1, 3), (2, 3)] {
            flight.call(lab, callers, &path);
            flight.labs[lab].until_one("follower", callers as u64).await;
        }
        flight
    }

    fn call(&mut self, lab: usize, callers: usize, path: &str) {
        let lab = &self.labs[lab];
        self.callers.extend(lab.calls(callers, path).into_iter().map(|call| (lab.pid(), call)));
    }

    /// Not asked of the lab, which may be blocked.
    async fn until_granted(&self) {
        let end = Instant::now() + PATIENCE;
        while meta_keys(&self.redis).is_empty() {
            assert!(Instant::now() < end, "not granted");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits for the next renewal.
    async fn until_renewed(&self) {
        let [key] = &meta_keys(&self.redis)[..] else { panic!("one flight") };
        let (before, end) = (meta(&self.redis, key, "heartbeatAt"), Instant::now() + PATIENCE);
        while meta(&self.redis, key, "heartbeatAt") == before {
            assert!(Instant::now() < end, "no renewal");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until one of those who followed runs.
    async fn until_taken_over(&self) {
        let end = Instant::now() + PATIENCE;
        while self.labs[1].count("/inner/calls").await + self.labs[2].count("/inner/calls").await
            == 0
        {
            assert!(Instant::now() < end, "no takeover");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Of this process nothing can be asked any more; so many runs it had.
    fn gone(&mut self, lab: usize, runs: u64) {
        self.gone += runs;
        self.left.push(self.labs.remove(lab));
    }

    /// The one answer of all whose process is there, and what it cost.
    async fn end(mut self, name: &str, expected: &Counts) -> Answer {
        let here: Vec<_> = self.labs.iter().map(Lab::pid).collect();
        let callers = std::mem::take(&mut self.callers).into_iter();
        let callers = callers.filter(|(pid, _)| here.contains(pid)).map(|(_, caller)| caller);
        let all = answers(callers).await;
        let answer = one_answer(&all).clone();
        assert_eq!(answer.status, 200);
        let mut counts = Counts { runs: self.gone, ..Counts::default() };
        for lab in &self.labs {
            // What it ran last may be about to be dropped.
            lab.until("no flight", <[_]>::is_empty).await;
            let stats = lab.stats().await;
            let count = |place: &str| stats.pointer(place).and_then(serde_json::Value::as_u64);
            counts.runs += count("/inner/calls").expect("runs");
            counts.takeovers += count("/flights/takeovers").expect("takeovers");
            counts.lost += count("/flights/leases_lost").expect("lost leases");
            counts.fenced += count("/flights/fenced").expect("fenced");
        }
        println!("counts: {name}: {} callers have one answer: {counts:?}", all.len());
        assert_eq!(counts, *expected, "{name}");
        answer
    }
}

/// A run of so many milliseconds.
fn run(ms: u32) -> impl Fn(u32) -> String {
    move |_| format!("/work/counts?ms={ms}")
}

#[tokio::test]
async fn no_fault() {
    Flight::start(&[], run(2000)).await.end("none", &NONE).await;
}

#[tokio::test]
async fn kill_9() {
    let mut flight = Flight::start(QUICK, run(2500)).await;
    flight.labs[0].kill9();
    flight.gone(0, 1);
    flight.end("kill -9 of the owner", &KILLED).await;

    let mut flight = Flight::start(QUICK, run(2500)).await;
    flight.labs[2].kill9();
    flight.gone(2, 0);
    flight.end("kill -9 of a follower", &FOLLOWER_KILLED).await;
}

/// Under the default lease, for a third of it.
#[tokio::test]
async fn a_stop_shorter_than_the_lease() {
    let stopped = async |lab: usize, name: &str, expected: &Counts| {
        let flight = Flight::start(&[], run(4000)).await;
        flight.until_renewed().await;
        flight.labs[lab].stop();
        tokio::time::sleep(Duration::from_secs(1)).await;
        flight.labs[lab].cont();
        flight.end(name, expected).await
    };
    tokio::join!(
        stopped(0, "owner stopped for a third of its lease", &STOPPED_BRIEFLY),
        stopped(1, "follower stopped", &FOLLOWER_STOPPED),
    );
}

/// It wakes up in the middle of its run, or when that would have been over.
#[tokio::test]
async fn a_stop_longer_than_the_lease() {
    let stopped = async |past: bool, name: &str, expected: &Counts| {
        let flight = Flight::start(QUICK, run(3500)).await;
        let began = Instant::now();
        let owner = flight.labs[0].pid();
        flight.labs[0].stop();
        flight.until_taken_over().await;
        if past {
            tokio::time::sleep_until((began + Duration::from_millis(3600)).into()).await;
        }
        flight.labs[0].cont();
        let answer = flight.end(name, expected).await;
        assert!(!answer.run().contains(&format!("pid={owner} ")), "{}", answer.run());
    };
    tokio::join!(
        stopped(false, "owner stopped, awake in its run", &STOPPED_IN_RUN),
        stopped(true, "owner stopped, awake after its run", &STOPPED_PAST_RUN),
    );
}

/// The lease is long: what goes on at once was handed over.
#[tokio::test]
async fn sigterm() {
    const LONG: &[&str] =
        &["--lease-ms", "30000", "--heartbeat-ms", "10000", "--retention-ms", "60000"];
    let mut flight = Flight::start(&[LONG, &["--grace-ms", "9000"]].concat(), run(2500)).await;
    flight.labs[0].term();
    // Its own callers are answered, too; then it is gone.
    let mine: Vec<_> = flight.callers.drain(..2).map(|(_, caller)| caller).collect();
    let mine = answers(mine).await;
    flight.gone(0, 1);
    let theirs = flight.end("SIGTERM, in its grace", &TERMINATED_IN_GRACE).await;
    assert!(mine.iter().all(|answer| answer.body == theirs.body));

    let hangs = |pid| format!("/work/counts?ms=500&fail=hang&fail_pid={pid}");
    let mut flight = Flight::start(&[LONG, &["--grace-ms", "300"]].concat(), hangs).await;
    flight.labs[0].term();
    flight.until_taken_over().await;
    flight.gone(0, 1);
    flight.end("SIGTERM, past its grace", &TERMINATED_PAST_GRACE).await;
}

/// For more than two leases no thread of the owner's runtime does anything else.
#[tokio::test]
async fn a_blocked_runtime() {
    tokio::join!(occupied("freeze", "1", &BLOCKED), occupied("freeze", "2", &BLOCKED));
}

#[tokio::test]
async fn a_busy_runtime() {
    tokio::join!(occupied("spin", "1", &BUSY_RUNTIME), occupied("spin", "2", &BUSY_RUNTIME));
}

async fn occupied(how: &str, workers: &str, expected: &Counts) {
    let redis = RedisServer::start();
    let owner = Lab::start(&redis.url(), &[QUICK, &["--workers", workers]].concat());
    let mut labs = vec![owner];
    labs.extend(Lab::fleet::<2>(&redis.url(), QUICK));
    let mut flight = Flight { redis, labs, callers: Vec::new(), gone: 0, left: Vec::new() };
    let path = format!("/work/counts?ms=3500&fail={how}");
    flight.call(0, 1, &path);
    flight.until_granted().await;
    for lab in [1, 2] {
        flight.call(lab, 3, &path);
        flight.labs[lab].until_one("follower", 3).await;
    }
    let asked = tokio::time::timeout(Duration::from_secs(1), flight.labs[0].stats()).await;
    assert!(asked.is_err(), "no thread answers: {asked:?}");
    flight.end(&format!("owner's {workers} threads, {how}"), expected).await;
}

/// As many busy processes as there are cores, and one more, for longer than the lease.
#[tokio::test]
async fn a_starved_machine() {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let busy: Vec<_> = (0..=cores).map(|_| Busy::start()).collect();
    Flight::start(&[], run(5000)).await.end("busy machine", &BUSY_MACHINE).await;
    drop(busy);
}

/// A process that does nothing, all the time.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        Self(command.spawn().expect("a shell"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
