//! What the server can tell, and times in order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{
    lab::{Lab, answers, one_answer},
    support::redis_server::RedisServer,
};

/// The time that so many percent of all do not pass.
pub(crate) fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

/// Connections of everybody but the one that asks.
pub(crate) fn connections(redis: &RedisServer) -> usize {
    let clients = redis.command(&["CLIENT", "LIST"]);
    // One a line; the asking one is the only one on the unix socket.
    clients.lines().filter(|line| line.contains(" addr=127.0.0.1:")).count()
}

/// What a process has with one server: a pool of four, and one each for pushes,
/// large records and the keeper.
pub(crate) const CONNECTIONS: usize = 7;

/// Has each of two labs own and follow, with small records and large ones, until all
/// connections are there that they will ever have.
pub(crate) async fn warm(redis: &RedisServer, labs: &[Lab; 2]) {
    let [one, other] = labs;
    for (round, (owner, follower)) in [(one, other), (other, one)].into_iter().enumerate() {
        for bytes in [64, 200_000] {
            let path = format!("/work/warm-{round}?ms=500&bytes={bytes}");
            let first = owner.call(&path);
            owner.until_one("owner", 0).await;
            one_answer(&answers([first, follower.call(&path)]).await);
        }
    }
    let end = Instant::now() + Duration::from_secs(5);
    while connections(redis) != CONNECTIONS * labs.len() {
        assert!(Instant::now() < end, "there are {} connections", connections(redis));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Commands that the server has done since the last `CONFIG RESETSTAT`, those that
/// scripts call among them, but for those of the tests themselves.
pub(crate) fn commands(redis: &RedisServer) -> u64 {
    let lines = redis.lines(&["INFO", "commandstats"]);
    let count = |line: &str| {
        let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let own = matches!(name, "info" | "quit" | "config|resetstat");
        let calls = figures.strip_prefix("calls=")?.split(',').next()?;
        (!own).then(|| calls.parse::<u64>().ok()).flatten()
    };
    lines.iter().filter_map(|line| count(line)).sum()
}

/// All keys of the server.
pub(crate) fn keys(redis: &RedisServer) -> Vec<String> {
    redis.lines(&["KEYS", "*"])
}

/// The keys of all records.
pub(crate) fn meta_keys(redis: &RedisServer) -> Vec<String> {
    keys(redis).into_iter().filter(|key| key.contains(":meta:")).collect()
}

/// One field of a record; empty where there is none.
pub(crate) fn meta(redis: &RedisServer, key: &str, field: &str) -> String {
    redis.lines(&["HGET", key, field]).into_iter().next().unwrap_or_default()
}

/// The only key that may be without an end.
pub(crate) const OWNER_SEQ: &str = "ai:flight:owner-seq";

/// Waits until no key but the token source is left, and says how long it took.
pub(crate) async fn until_no_key(redis: &RedisServer, limit: Duration) -> Duration {
    let start = Instant::now();
    loop {
        let left: Vec<_> = keys(redis).into_iter().filter(|key| key != OWNER_SEQ).collect();
        if left.is_empty() {
            return start.elapsed();
        }
        assert!(start.elapsed() < limit, "after {limit:?} there are {left:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Looks every ten milliseconds how long each key will live.
pub(crate) struct Sampler {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Samples>,
}

/// What a sampler has seen.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) looks: u64,
    pub(crate) keys: u64,
    /// The longest time to live, in milliseconds.
    pub(crate) longest: i64,
    /// Keys that had none.
    pub(crate) endless: Vec<String>,
}

impl Sampler {
    pub(crate) fn start(redis: &Arc<RedisServer>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (ended, redis) = (Arc::clone(&over), Arc::clone(redis));
        let thread = std::thread::spawn(move || {
            let mut samples = Samples::default();
            while !ended.load(Ordering::Relaxed) {
                samples.look(&redis);
                std::thread::sleep(Duration::from_millis(10));
            }
            samples
        });
        Self { over, thread }
    }

    pub(crate) fn end(self) -> Samples {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the sampler's thread")
    }
}

impl Samples {
    fn look(&mut self, redis: &RedisServer) {
        // One script, so that no key ends between its name and its time.
        const ALL: &str = "local all = {} \
            for _, key in ipairs(redis.call('KEYS', '*')) do \
            all[#all + 1] = key .. ' ' .. redis.call('PTTL', key) end return all";
        self.looks += 1;
        for line in redis.lines(&["EVAL", ALL, "0"]) {
            let (key, left) = line.split_once(' ').expect("a key and its time");
            let left: i64 = left.parse().expect("milliseconds");
            self.keys += 1;
            self.longest = self.longest.max(left);
            if left < 0 && key != OWNER_SEQ && !self.endless.iter().any(|seen| seen == key) {
                self.endless.push(key.to_owned());
            }
        }
    }
}
