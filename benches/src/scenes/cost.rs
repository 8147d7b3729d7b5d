//! What a call over Redis costs both ends, to be run on one core: the CPU of this
//! process and of the server. And how many scripts it takes.

use std::time::Duration;

use tokio::runtime::Runtime;
use tower_singleflight::Config;

use super::{Effort, fresh, one_thread};
use crate::{
    fleet::{Node, Poll, Raw, Server, Sketch, ask, call},
    row::{Bound, Goal, point},
    sample::{cpu, median, nanos},
    work::{Inner, get},
};

const BYTES: usize = 1024;
/// A hit of what is held is short beside what goes on meanwhile: so many are measured.
const HELD: u32 = 50;
const GROUP: &str = "Over Redis, one core";

const KINDS: [&str; 6] = [
    "raw GET",
    "two-script sketch",
    "SET NX + poll",
    "tower-singleflight",
    "tower-singleflight, reused from Redis",
    "tower-singleflight, reused here",
];

fn reusing() -> Config {
    let minute = Duration::from_secs(60);
    Config::builder().retention(minute).reuse(minute).build().expect("settings")
}

pub fn run(effort: Effort) {
    let server = Server::start();
    let runtime = one_thread();
    let times = runtime.block_on(rounds(effort, &server));
    let of = |kind: usize| median(times.iter().map(|round| round[kind]).collect());
    let ratio = |kind: usize| median(times.iter().map(|round| round[kind] / round[0]).collect());
    for (kind, name) in KINDS.iter().enumerate() {
        point("owner-cpu", "us", name, of(kind) / 1e3);
    }
    let told = |kind: usize| format!("{:.1} us to {:.1} us", of(kind) / 1e3, of(0) / 1e3);
    for (kind, what, bound) in [
        (3, "owner, 1 KiB", Bound::AtMost(3.5)),
        (1, "two-script sketch, 1 KiB", Bound::None),
        (2, "SET NX + poll, 1 KiB, as owner", Bound::None),
        (4, "reuse hit from Redis, 1 KiB", Bound::AtMost(1.3)),
    ] {
        let (of, measured, detail) = ("x raw GET, CPU of both ends", ratio(kind), told(kind));
        Goal { group: GROUP, what, of, most: bound, measured, detail }.print();
    }
    Goal {
        group: GROUP,
        what: "reuse hit of what this process holds, 1 KiB",
        of: "us of CPU",
        most: Bound::AtMost(2.0),
        measured: of(5) / 1e3,
        detail: format!("a raw GET: {:.1} us", of(0) / 1e3),
    }
    .print();
    scripts(&runtime, &server);
}

/// Nanoseconds a call of each kind, in each round.
async fn rounds(effort: Effort, server: &Server) -> Vec<Vec<f64>> {
    let url = server.url();
    let calls = effort.pick(200, 500);
    let raw = Raw::connect(&url).await;
    let (sketch, poll) = (Sketch::connect(&url).await, Poll::connect(&url).await);
    let node = Node::connect(&url, Config::default()).await;
    let (one, other) = (Node::connect(&url, reusing()).await, Node::connect(&url, reusing()).await);
    let inner = || Inner::new(BYTES);
    let plain = node.around(inner());
    let (one, other) = (one.around(inner()), other.around(inner()));
    let body = vec![b'a'; BYTES];
    raw.set("raw", &body).await;
    let mut times = Vec::new();
    // The first round warms up.
    for round in 0..=effort.pick(5, 15) {
        let paths: Vec<String> = (0..calls).map(|_| fresh()).collect();
        let mut round_times = Vec::new();
        for kind in 0..KINDS.len() {
            if kind == 4 {
                for path in &paths {
                    call(&one, &format!("/kept{path}")).await;
                }
            }
            // Made before the clock starts: they would be much of so short a call.
            let held = (kind == 5).then(|| paths.iter().flat_map(|path| [path; HELD as usize]));
            let held: Vec<_> =
                held.into_iter().flatten().map(|path| get(&format!("/kept{path}"))).collect();
            let mut requests = held.into_iter();
            let before = (cpu(), server.cpu());
            for path in &paths {
                match kind {
                    0 => drop(raw.get("raw").await.expect("a value")),
                    1 => {
                        assert!(sketch.acquire(path).await);
                        sketch.complete(path, &body).await;
                    }
                    2 => drop(poll.call(path, async { body.clone() }).await),
                    3 => drop(call(&plain, path).await),
                    4 => drop(call(&other, &format!("/kept{path}")).await),
                    _ => {
                        for request in requests.by_ref().take(HELD as usize) {
                            drop(ask(&one, request).await);
                        }
                    }
                }
            }
            // The last `finish` is on its way.
            tokio::time::sleep(Duration::from_millis(5)).await;
            let spent = (cpu() - before.0) + (server.cpu() - before.1);
            let each = if kind == 5 { calls * HELD } else { calls };
            round_times.push(nanos(spent) / f64::from(each));
        }
        if round > 0 {
            times.push(round_times);
        }
    }
    times
}

/// Exact counts.
fn scripts(runtime: &Runtime, server: &Server) {
    const CALLS: u64 = 50;
    let count = |what: &str, bound: f64, scripts: u64| {
        Goal {
            group: GROUP,
            what,
            of: "scripts",
            most: Bound::Exactly(bound),
            measured: scripts as f64 / CALLS as f64,
            detail: format!("{scripts} in {CALLS}"),
        }
        .print();
    };
    runtime.block_on(async {
        let url = server.url();
        let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
        let one = Node::watched(&url, reusing()).await;
        let other = Node::watched(&url, reusing()).await;
        let (owner, follower) =
            (one.around(Inner::new(64).behind(&gate)), other.around(Inner::new(64)));
        let settled = || tokio::time::sleep(Duration::from_millis(50));
        let paths: Vec<String> = (0..CALLS).map(|_| fresh()).collect();
        server.reset();
        gate.add_permits(CALLS as usize);
        for path in &paths {
            call(&owner, path).await;
        }
        settled().await;
        let owned = server.commands().scripts();
        count("owner", 2.0, owned);
        server.reset();
        for path in &paths {
            call(&follower, path).await;
        }
        count("reuse hit", 1.0, server.commands().scripts());
        // Ten callers in the other process, for each flight.
        server.reset();
        for nth in 1..=CALLS {
            let path = fresh();
            let owning = tokio::spawn(call(&owner, &path));
            one.seen.until(|seen| seen.owned(), CALLS + nth).await;
            let following: Vec<_> = (0..10).map(|_| tokio::spawn(call(&follower, &path))).collect();
            other.seen.until(|seen| seen.followed(), nth).await;
            gate.add_permits(1);
            owning.await.expect("an answer");
            for call in following {
                call.await.expect("an answer");
            }
        }
        settled().await;
        let beats = one.seen.beats() + other.seen.beats();
        let scripts = server.commands().scripts().saturating_sub(owned + beats);
        count("process that follows, of ten callers", 1.0, scripts);
    });
}
