//! Ten thousand callers of one key: the CPU that a caller costs, also while it waits,
//! and whether they share one body.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
};
use tower_singleflight::key_fn;

use super::{Effort, two_threads};
use crate::{
    peers::{self, Peer, Visit},
    row::{Bound, Goal, point},
    sample::{cpu, median, nanos},
    work::{Body, Inner, get, path},
};

pub(super) const CALLERS: u32 = 10_000;
const WAIT: Duration = Duration::from_millis(500);

/// Callers, and how many of them wait.
#[derive(Default)]
pub(super) struct Crowd {
    waiting: Arc<(AtomicU32, Notify)>,
}

impl Crowd {
    pub(super) fn enter<P: Peer>(
        &self,
        peer: &P,
        requests: Vec<Request<Body>>,
    ) -> Vec<JoinHandle<Bytes>> {
        let all = requests.len();
        // Not collected, which would keep the room of the requests.
        let mut calls = Vec::with_capacity(all);
        for request in requests {
            // Boxed, so that a caller's future is there once, and not twice in its task.
            let mut call = Box::pin(peer.call(request));
            let waiting = Arc::clone(&self.waiting);
            calls.push(tokio::spawn(async move {
                let mut is_counted = false;
                std::future::poll_fn(|context| {
                    let poll = call.as_mut().poll(context);
                    if poll == Poll::Pending && !std::mem::replace(&mut is_counted, true) {
                        let before = waiting.0.fetch_add(1, Ordering::Relaxed);
                        if before as usize + 1 == all {
                            waiting.1.notify_one();
                        }
                    }
                    poll
                })
                .await
            }));
        }
        calls
    }

    /// All of them wait.
    pub(super) async fn all_wait(&self) {
        self.waiting.1.notified().await;
    }
}

pub fn run(effort: Effort) {
    let gate = Arc::new(Semaphore::new(0));
    let mut rounds = Rounds { gate: Arc::clone(&gate), all: Vec::new() };
    for _ in 0..effort.pick(3, 9) {
        peers::each(&key_fn(path), || Inner::new(64).behind(&gate), &mut rounds);
    }
    let of = |name: &str, what: fn(&Round) -> f64| {
        let mine = rounds.all.iter().filter(|round| round.name == name);
        median(mine.map(what).collect())
    };
    let work: fn(&Round) -> f64 = |round| round.work;
    let wait: fn(&Round) -> f64 = |round| round.wait;
    let (ours, quick) = (of("tower-singleflight", work), of("quick_cache", work));
    Goal {
        group: "In process",
        what: "10,000 callers of one key",
        of: "x quick_cache, CPU a caller",
        most: Bound::AtMost(1.0),
        measured: ours / quick,
        detail: format!("{:.2} us to {:.2} us", ours / 1e3, quick / 1e3),
    }
    .print();
    let waits = of("tower-singleflight", wait);
    Goal {
        group: "In process",
        what: "10,000 callers that wait for 500 ms",
        of: "us of CPU a caller",
        most: Bound::AtMost(0.1),
        measured: waits / 1e3,
        detail: format!("{:.2} % of one core", waits * f64::from(CALLERS) / nanos(WAIT) * 100.0),
    }
    .print();
    let copies: usize = rounds
        .all
        .iter()
        .filter(|r| r.name == "tower-singleflight")
        .map(|r| r.bodies)
        .max()
        .unwrap_or(0);
    Goal {
        group: "In process",
        what: "the body that 10,000 callers get",
        of: "bodies in memory",
        most: Bound::Exactly(1.0),
        measured: copies as f64,
        detail: "by their addresses".to_owned(),
    }
    .print();
    for name in rounds.names() {
        point("hot-cpu", "us", name, of(name, work) / 1e3);
        point("hot-wait", "us", name, of(name, wait) / 1e3);
    }
}

struct Round {
    name: &'static str,
    /// CPU to come and to get the answer, and to wait, in nanoseconds a caller.
    work: f64,
    wait: f64,
    bodies: usize,
}

struct Rounds {
    /// Lets one run answer.
    gate: Arc<Semaphore>,
    all: Vec<Round>,
}

impl Rounds {
    fn names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for round in &self.all {
            if !names.contains(&round.name) {
                names.push(round.name);
            }
        }
        names
    }
}

impl Visit for Rounds {
    fn visit<P: Peer>(&mut self, peer: P) {
        // Alone, nobody waits for anybody.
        if P::NAME == "bare service" {
            return;
        }
        let crowd = Crowd::default();
        let requests: Vec<_> = (0..CALLERS).map(|_| get("/a")).collect();
        let (work, wait, answers) = two_threads().block_on(async {
            let begin = cpu();
            let calls = crowd.enter(&peer, requests);
            crowd.all_wait().await;
            let waiting = cpu();
            tokio::time::sleep(WAIT).await;
            let waited = cpu();
            self.gate.add_permits(1);
            let mut answers = Vec::with_capacity(calls.len());
            for call in calls {
                answers.push(call.await.expect("an answer"));
            }
            ((waiting - begin) + (cpu() - waited), waited - waiting, answers)
        });
        let each = |time: Duration| nanos(time) / f64::from(CALLERS);
        let mut bodies: Vec<*const u8> = answers.iter().map(|body| body.as_ptr()).collect();
        bodies.sort();
        bodies.dedup();
        let (work, wait, bodies) = (each(work), each(wait), bodies.len());
        self.all.push(Round { name: P::NAME, work, wait, bodies });
    }
}
