//! From the end of a run to the follower's answer in another process, against a raw
//! message from publisher to subscriber.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use tokio::{sync::Semaphore, task::JoinHandle};
use tower_singleflight::Config;

use super::{Effort, fresh, one_thread, streams, trips::AWAY};
use crate::{
    fleet::{Delay, Node, Poll, Raw, Server, call, cmd},
    row::{Bound, Goal, point},
    sample::{median, nanos},
    work::Inner,
};

/// Between two tries: for all alike, and so that nothing is on its way.
const PAUSE: Duration = Duration::from_millis(12);

/// How long the way to the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// 2 ms in each direction.
    Long,
    /// Loopback; to be run on one core.
    Short,
}

impl Way {
    pub(super) fn group(self) -> &'static str {
        match self {
            Self::Long => "Hand-over, 2 ms away",
            Self::Short => "Hand-over, one core",
        }
    }

    /// Lets what is on its way come. Where one core does it all the core stays awake, so
    /// that only work is measured.
    pub(super) async fn pause(self, time: Duration) {
        let end = Instant::now() + time;
        match self {
            Self::Long => tokio::time::sleep(time).await,
            Self::Short => {
                while Instant::now() < end {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn plot(self) -> &'static str {
        match self {
            Self::Long => "hand-off-trips",
            Self::Short => "hand-off-pinned",
        }
    }
}

pub fn run(effort: Effort, way: Way) {
    let server = Server::start();
    let url = match way {
        Way::Long => Delay::start(server.port(), AWAY).url(),
        Way::Short => server.url(),
    };
    one_thread().block_on(async {
        for (size, name) in [(1 << 10, "1 KiB"), (16 << 10, "16 KiB"), (64 << 10, "64 KiB")] {
            sized(effort, way, &url, size, name).await;
        }
        streams::groups(effort, way, &url).await;
        takeover(effort, way, &url).await;
    });
}

async fn sized(effort: Effort, way: Way, url: &str, size: usize, name: &str) {
    let tries = effort.pick(15, 60);
    let pushed = size <= 16 << 10;
    let (raw, bound) = match (pushed, way) {
        (true, Way::Long) => (publish(url, size, tries, way).await, 1.1),
        (true, Way::Short) => (publish(url, size, tries, way).await, 1.3),
        (false, _) => (notify(url, size, tries, way).await, 1.5),
    };
    let of = if pushed { "x raw publish" } else { "x raw publish + GET" };
    let fleet = Fleet::new(url, size, way).await;
    let waited = fleet.waited(tries).await;
    let fresh = fleet.fresh(tries).await;
    for (what, measured, bound) in [
        ("follower that has waited for a beat", waited, Bound::AtMost(bound)),
        ("follower that has just come", fresh, Bound::AtMost(bound)),
        ("SET NX + poll, every 50 ms", polled(url, size, effort).await, Bound::None),
    ] {
        Goal {
            group: way.group(),
            what: &format!("{name}, {what}"),
            of,
            most: bound,
            measured: measured / raw,
            detail: format!("{:.0} us to {:.0} us", measured / 1e3, raw / 1e3),
        }
        .print();
        if !matches!(bound, Bound::None) {
            point(way.plot(), what, name, measured / raw);
        }
    }
    point(way.plot(), "raw publish (64 KiB: + GET)", name, 1.0);
}

/// From publisher to subscriber.
pub async fn publish(url: &str, size: usize, tries: u32, way: Way) -> f64 {
    let raw = Raw::connect(url).await;
    let mut messages = raw.subscribe("raw").await.into_on_message();
    let body = vec![b'a'; size];
    let mut times = Vec::new();
    for nth in 0..=tries {
        let since = Instant::now();
        let mut publish = cmd("PUBLISH");
        let publish = publish.arg("raw").arg(&body[..]);
        let heard = async {
            messages.next().await.expect("a message");
            nanos(since.elapsed())
        };
        let (time, ()) = tokio::join!(heard, raw.ask(publish));
        if nth > 0 {
            times.push(time);
        }
        way.pause(PAUSE).await;
    }
    median(times)
}

/// From publisher to subscriber, who then reads what is too large for a message.
pub async fn notify(url: &str, size: usize, tries: u32, way: Way) -> f64 {
    let (raw, reader) = (Raw::connect(url).await, Raw::connect(url).await);
    let mut messages = raw.subscribe("raw").await.into_on_message();
    let body = vec![b'a'; size];
    let mut times = Vec::new();
    for nth in 0..=tries {
        let since = Instant::now();
        let heard = async {
            messages.next().await.expect("a message");
            reader.get("raw").await.expect("a value");
            nanos(since.elapsed())
        };
        // Both in one go: the connection keeps their order.
        let mut publish = cmd("PUBLISH");
        let publish = publish.arg("raw").arg("look");
        let (time, (), ()) = tokio::join!(heard, raw.set("raw", &body), raw.ask(publish));
        if nth > 0 {
            times.push(time);
        }
        way.pause(PAUSE).await;
    }
    median(times)
}

/// Two processes, of which one runs and the other waits.
pub struct Fleet {
    one: Node,
    other: Node,
    inner: Inner,
    gate: Arc<Semaphore>,
    way: Way,
}

impl Fleet {
    pub async fn new(url: &str, size: usize, way: Way) -> Self {
        let one = Node::watched(url, Config::default()).await;
        let other = Node::watched(url, Config::default()).await;
        let gate = Arc::new(Semaphore::new(0));
        Self { one, other, inner: Inner::new(size).behind(&gate), gate, way }
    }

    /// A flight that the first owns and the second waits for. Those that began first
    /// pass the gate first.
    async fn flight(&self) -> JoinHandle<Instant> {
        let path = fresh();
        let (owned, followed) = (self.one.seen.owned(), self.other.seen.followed());
        tokio::spawn(call(&self.one.around(self.inner.clone()), &path));
        self.one.seen.until(|seen| seen.owned(), owned + 1).await;
        let following = call(&self.other.around(self.inner.clone()), &path);
        let following = tokio::spawn(async {
            following.await;
            Instant::now()
        });
        self.other.seen.until(|seen| seen.followed(), followed + 1).await;
        // What is on its way has come.
        self.way.pause(PAUSE).await;
        following
    }

    async fn end(&self, following: JoinHandle<Instant>) -> f64 {
        let since = Instant::now();
        self.gate.add_permits(1);
        let time = nanos(following.await.expect("an answer") - since);
        // The owner hears of its own end, too.
        self.way.pause(PAUSE).await;
        time
    }

    async fn waited(&self, tries: u32) -> f64 {
        let mut flights = Vec::new();
        for _ in 0..=tries {
            flights.push(self.flight().await);
        }
        tokio::time::sleep(Duration::from_millis(1300)).await;
        let mut times = Vec::new();
        for flight in flights {
            times.push(self.end(flight).await);
        }
        // The first one warms up.
        median(times.split_off(1))
    }

    /// Nanoseconds from the end to an answer for which one has only begun to wait.
    pub async fn fresh(&self, tries: u32) -> f64 {
        let mut times = Vec::new();
        for _ in 0..tries {
            let flight = self.flight().await;
            times.push(self.end(flight).await);
        }
        median(times)
    }
}

/// The hand-written peer: from the end of the run to the follower's answer.
async fn polled(url: &str, size: usize, effort: Effort) -> f64 {
    let (one, other) = (Poll::connect(url).await, Arc::new(Poll::connect(url).await));
    let mut times = Vec::new();
    for nth in 0..effort.pick(5, 20) {
        let key = format!("{size}-{}", fresh());
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let polling = {
            let (key, other) = (key.clone(), Arc::clone(&other));
            tokio::spawn(async move {
                has_begun.await.expect("a run");
                other.call(&key, std::future::pending()).await;
                Instant::now()
            })
        };
        let mut ended = Instant::now();
        let run = async {
            begun.send(()).expect("a follower");
            // At any time between two looks.
            tokio::time::sleep(Duration::from_millis(60 + nth * 13 % 50)).await;
            ended = Instant::now();
            vec![b'a'; size]
        };
        one.call(&key, run).await;
        times.push(nanos(polling.await.expect("an answer") - ended));
    }
    median(times)
}

/// From the word that the owner's process is to leave, to the next run's answer.
async fn takeover(effort: Effort, way: Way, url: &str) {
    let other = Node::watched(url, Config::default()).await;
    let mut times = Vec::new();
    for nth in 1..=effort.pick(3, 8) {
        let one = Node::watched(url, Config::default()).await;
        let path = fresh();
        let never = Arc::new(Semaphore::new(0));
        let owning = one.around(Inner::new(1024).behind(&never)).clone();
        let owning = tokio::spawn(tower::ServiceExt::oneshot(owning, crate::work::get(&path)));
        one.seen.until(|seen| seen.owned(), 1).await;
        let following = tokio::spawn(call(&other.around(Inner::new(1024)), &path));
        other.seen.until(|seen| seen.followed(), nth).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        let since = Instant::now();
        let (_, answer) = tokio::join!(one.layer.drain(Duration::ZERO), following);
        answer.expect("an answer");
        times.push(nanos(since.elapsed()) / 1e6);
        owning.abort();
    }
    Goal {
        group: way.group(),
        what: "takeover where the owner's process is told to leave",
        of: "ms to the next run's answer",
        most: Bound::AtMost(300.0),
        measured: median(times),
        detail: String::new(),
    }
    .print();
}
