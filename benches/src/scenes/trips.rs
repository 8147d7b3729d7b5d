//! Round trips: how long calls take behind a way that is 2 ms long in each direction.

use std::time::{Duration, Instant};

use tower_singleflight::Config;

use super::{Effort, fresh, one_thread};
use crate::{
    fleet::{Delay, Node, Poll, Raw, Server, Sketch, call},
    row::{Bound, Goal},
    sample::{median, nanos},
    work::Inner,
};

pub(super) const AWAY: Duration = Duration::from_millis(2);
const GROUP: &str = "Over Redis, 2 ms away";

pub fn run(effort: Effort) {
    let server = Server::start();
    let way = Delay::start(server.port(), AWAY);
    one_thread().block_on(latencies(effort, &way.url()));
    one_thread().block_on(unwatched(&way));
}

async fn latencies(effort: Effort, url: &str) {
    let calls = effort.pick(30, 100);
    let body = vec![b'a'; 1024];
    let minute = Duration::from_secs(60);
    let kept = Config::builder().retention(minute).reuse(minute).build().expect("settings");
    let raw = Raw::connect(url).await;
    let (sketch, poll) = (Sketch::connect(url).await, Poll::connect(url).await);
    let (one, other) = (Node::connect(url, kept.clone()).await, Node::connect(url, kept).await);
    let (one, other) = (one.around(Inner::new(1024)), other.around(Inner::new(1024)));
    raw.set("raw", &body).await;
    let mut times: [Vec<f64>; 5] = Default::default();
    for nth in 0..=calls {
        let path = fresh();
        for (kind, times) in times.iter_mut().enumerate() {
            let since = Instant::now();
            match kind {
                0 => drop(raw.get("raw").await.expect("a value")),
                1 => drop(call(&one, &path).await),
                2 => {
                    assert!(sketch.acquire(&path).await);
                    sketch.complete(&path, &body).await;
                }
                3 => drop(poll.call(&path, async { body.clone() }).await),
                _ => {
                    // Its end is with the server by now: two calls came since.
                    drop(call(&other, &path).await);
                }
            }
            if nth > 0 {
                times.push(nanos(since.elapsed()));
            }
        }
    }
    let times = times.map(median);
    for (kind, what, bound) in [
        (1, "owner", Bound::AtMost(2.1)),
        (2, "two-script sketch, whose caller waits for both", Bound::None),
        (3, "SET NX + poll, as owner", Bound::None),
        (4, "reuse hit from Redis", Bound::AtMost(1.3)),
    ] {
        Goal {
            group: GROUP,
            what,
            of: "x raw GET, time",
            most: bound,
            measured: times[kind] / times[0],
            detail: format!("{:.2} ms to {:.2} ms", times[kind] / 1e6, times[0] / 1e6),
        }
        .print();
    }
}

/// What goes to the store of a large answer that nobody elsewhere waits for.
async fn unwatched(way: &Delay) {
    const FLIGHTS: u64 = 20;
    let buffered = tower_singleflight::Delivery::Buffered;
    let config = Config::builder().delivery(buffered).build().expect("settings");
    let node = Node::connect(&way.url(), config).await;
    let service = node.around(Inner::new(1 << 20));
    call(&service, &fresh()).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let before = way.sent();
    for _ in 0..FLIGHTS {
        call(&service, &fresh()).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    Goal {
        group: GROUP,
        what: "buffered answer of 1 MiB that nobody elsewhere waits for",
        of: "bytes sent to the store",
        most: Bound::AtMost(1024.0),
        measured: (way.sent() - before) as f64 / FLIGHTS as f64,
        detail: "per flight, both scripts in all".to_owned(),
    }
    .print();
}
