//! Three nodes and their callers, and what must hold for them at the end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tower_singleflight::FlightPhase;

use crate::{
    LEASE, PATIENCE, RETENTION,
    call::{Answer, Call},
    inner::{Inner, Shape},
    node::Node,
    proxy::Scripts,
    row::Row,
    support::redis_server::RedisServer,
};

const SECOND: Duration = Duration::from_secs(1);
pub(crate) const NODES: usize = 3;
pub(crate) const LETTERS: [char; NODES] = ['a', 'b', 'c'];

/// Two servers, one of which is used.
pub(crate) struct Servers {
    pub(crate) used: RedisServer,
    pub(crate) other: RedisServer,
    pub(crate) scripts: Arc<Scripts>,
}

impl Servers {
    pub(crate) fn start() -> Arc<Self> {
        let (used, other) = (RedisServer::start(), RedisServer::start());
        // The server knows the scripts, so that each step is one request.
        let load = |text: &str| used.lines(&["SCRIPT", "LOAD", text]).concat();
        let scripts = Arc::new(Scripts::new(load));
        Arc::new(Self { used, other, scripts })
    }
}

pub(crate) struct World {
    pub(crate) servers: Arc<Servers>,
    pub(crate) prefix: String,
    pub(crate) inner: Arc<Inner>,
    pub(crate) nodes: [Node; NODES],
    pub(crate) calls: [Vec<Call>; NODES],
}

impl World {
    pub(crate) async fn start(servers: &Arc<Servers>, prefix: String) -> Self {
        let (inner, port) = (Arc::<Inner>::default(), servers.used.port());
        let node = || Node::start(port, &servers.scripts, &prefix, &inner);
        let nodes = [node().await, node().await, node().await];
        // All connections are there, the keepers' too.
        let calls = nodes.each_ref().map(|node| node.call("/warm"));
        for call in calls {
            call.answer().await;
        }
        until("no flight", || nodes.iter().all(|node| node.layer.flights().is_empty())).await;
        Self { servers: Arc::clone(servers), prefix, inner, nodes, calls: Default::default() }
    }

    /// So many of a node's callers call, and more who wait with the first.
    pub(crate) fn call(&mut self, node: usize, callers: usize, shape: Shape) {
        let calls = (0..callers).map(|_| self.nodes[node].call(shape.path()));
        self.calls[node].extend(calls);
    }

    /// Waits until a node has begun, and all its callers with it.
    pub(crate) async fn until_in(&self, node: usize, phase: FlightPhase, shape: Shape) {
        let callers = self.calls[node].len();
        until("it is in the air", || {
            self.nodes[node]
                .flight()
                .is_some_and(|flight| flight.phase == phase && flight.callers == callers)
        })
        .await;
        if shape.is_stream() {
            for call in &self.calls[node] {
                call.begun().await;
            }
        }
    }

    /// Whether everybody knows who runs: each node runs, or follows one that does, and
    /// none under a token that is of the past.
    pub(crate) fn is_settled(&self, past: Option<u64>) -> bool {
        let flights = self.nodes.each_ref().map(Node::flight);
        if past.is_some() && flights.iter().flatten().any(|flight| flight.token == past) {
            return false;
        }
        let owned: Vec<_> = flights
            .iter()
            .flatten()
            .filter(|flight| flight.phase == FlightPhase::Owning)
            .map(|flight| flight.token)
            .collect();
        flights.iter().zip(&self.calls).all(|(flight, calls)| match flight {
            _ if calls.is_empty() => true,
            Some(flight) => match flight.phase {
                FlightPhase::Following => owned.contains(&flight.token),
                phase => matches!(phase, FlightPhase::Owning | FlightPhase::Local),
            },
            None => calls.iter().all(Call::is_over),
        })
    }

    pub(crate) fn sum(&self, count: impl Fn(&tower_singleflight::Stats) -> u64) -> u64 {
        self.nodes.iter().map(|node| count(&node.stats())).sum()
    }

    /// What the nodes say of themselves.
    pub(crate) fn story(&self) -> String {
        let stories = self.nodes.iter().zip(LETTERS).map(|(node, name)| {
            let flight = node.flight().map(|flight| (flight.phase, flight.token));
            format!("{name}: {flight:?} {:?}", node.layer.store_errors())
        });
        stories.collect::<Vec<_>>().join("; ")
    }

    /// Callers get what the row says, in time.
    pub(crate) async fn answered(&mut self, row: &Row, shape: Shape, since: Instant) -> Duration {
        let mut answers: [Vec<Answer>; NODES] = Default::default();
        for (calls, answers) in self.calls.iter_mut().zip(&mut answers) {
            for call in calls.drain(..) {
                answers.push(call.answer().await);
            }
        }
        let late = |answer: &Answer| answer.at.saturating_duration_since(since);
        let took = answers.iter().flatten().map(late).max().unwrap_or_default();
        for group in row.share.split(' ') {
            let (nodes, broken, refused) =
                (group.trim_end_matches(['!', '?']), group.ends_with('!'), group.ends_with('?'));
            let members = LETTERS.iter().zip(&answers).filter(|(name, _)| nodes.contains(**name));
            let mut run = None;
            for (name, answer) in members.flat_map(|(name, all)| all.iter().map(move |a| (name, a)))
            {
                if refused && answer.status == 503 {
                    continue;
                }
                let of = answer.run(shape);
                let first = *run.get_or_insert(of);
                assert_eq!(first, of, "{name} has another run's answer; {}", self.story());
                assert_eq!(answer.broken, broken, "{name}'s body");
            }
        }
        assert!(took <= row.within, "the last answer after {took:?}");
        took
    }

    /// No flight is left, and no run.
    pub(crate) async fn is_over(&self) {
        until("no flight", || self.nodes.iter().all(|node| node.layer.flights().is_empty())).await;
        assert_eq!(self.inner.running(), 0);
    }

    /// All but the one that leaves have one run's answer again, in the time that it may
    /// take them.
    pub(crate) async fn meets_again(&self, leaving: Option<usize>) {
        let nodes = self.nodes.iter().enumerate();
        let staying: Vec<_> =
            nodes.filter(|(at, _)| Some(*at) != leaving).map(|(_, node)| node).collect();
        let healed = Instant::now();
        for round in 0.. {
            let path = format!("/again-{round}");
            let calls: Vec<_> = staying.iter().map(|node| node.call(&path)).collect();
            let mut answers = Vec::new();
            for call in calls {
                answers.push(call.answer().await.bytes);
            }
            self.has_ends();
            if answers.iter().all(|answer| *answer == answers[0]) {
                return self.is_over().await;
            }
            assert!(healed.elapsed() < Duration::from_secs(5), "they do not meet again");
        }
    }

    /// Nobody listens any more, and all keys will soon be gone; or are, where that is
    /// waited for.
    pub(crate) async fn is_gone(&self, wait: bool) {
        for server in [&self.servers.used, &self.servers.other] {
            let all = ["PUBSUB", "CHANNELS", &format!("{}:*", self.prefix)];
            until("nobody listens", || server.lines(&all).is_empty()).await;
        }
        // Marks of waiters last longest: what is left of the lease, and two leases.
        let longest = RETENTION.max(3 * LEASE);
        let left = self.has_ends();
        assert!(left.is_none_or(|left| left <= longest), "{left:?}");
        let end = Instant::now() + longest;
        while wait && self.has_ends().is_some() {
            assert!(Instant::now() < end + SECOND, "keys stay");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Every key has an end: how long the last of them stays.
    pub(crate) fn has_ends(&self) -> Option<Duration> {
        const ALL: &str = "local all = {} \
            for _, key in ipairs(redis.call('KEYS', ARGV[1])) do \
            all[#all + 1] = key .. ' ' .. redis.call('PTTL', key) end return all";
        let mut longest = None;
        for server in [&self.servers.used, &self.servers.other] {
            for line in server.lines(&["EVAL", ALL, "0", &format!("{}:*", self.prefix)]) {
                let (key, left) = line.split_once(' ').expect("a key and its time");
                if !key.ends_with(":owner-seq") {
                    let left = left.parse().map(Duration::from_millis);
                    longest = longest.max(Some(left.unwrap_or_else(|_| panic!("{key} stays"))));
                }
            }
        }
        longest
    }
}

/// Waits until it holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    until_within(PATIENCE, what, holds).await;
}

pub(crate) async fn until_within(limit: Duration, what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "not in {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}
