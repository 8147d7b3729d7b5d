//! How long the server works for a flight, against a minimal pair of scripts.

use std::time::Duration;

use tower_singleflight::Config;

use super::{Effort, fresh, one_thread};
use crate::{
    fleet::{Commands, Node, Server, Sketch, call},
    row::{Bound, Goal, point},
    sample::median,
    work::Inner,
};

const GROUP: &str = "Over Redis, the server";

pub fn run(effort: Effort) {
    let server = Server::start();
    let [mut small, mut large, mut pair, mut large_pair] = [const { Vec::new() }; 4];
    one_thread().block_on(async {
        let minute = Duration::from_secs(60);
        // So that the answer is stored although nobody waits.
        let kept = Config::builder().retention(minute).reuse(minute).build().expect("settings");
        let node = Node::connect(&server.url(), kept).await;
        let sketch = Sketch::connect(&server.url()).await;
        for round in 0..=effort.pick(5, 15) {
            let plain = flights(effort, &server, &node, 64).await;
            let flights = flights(effort, &server, &node, 16 << 10).await;
            let pairs = pairs(effort, &server, &sketch, 64).await;
            let large_pairs = self::pairs(effort, &server, &sketch, 16 << 10).await;
            if round > 0 {
                small.push(plain.0.script_micros() / plain.1);
                large.push(beside_scripts(&plain, &flights));
                pair.push(pairs.0.script_micros() / pairs.1);
                large_pair.push(large_pairs.0.script_micros() / large_pairs.1);
            }
        }
    });
    let [small, large, pair, large_pair] = [small, large, pair, large_pair].map(median);
    for (what, of, most, measured, one, other) in [
        (
            "a flight of 64 bytes",
            "x a minimal script pair",
            Bound::AtMost(1.5),
            small / pair,
            small,
            pair,
        ),
        (
            "a flight of 16 KiB",
            "x one of 64 bytes",
            Bound::AtMost(2.0),
            large / small,
            large,
            small,
        ),
        (
            "a flight of 16 KiB",
            "x a minimal script pair",
            Bound::None,
            large / large_pair,
            large,
            large_pair,
        ),
    ] {
        let detail = format!("{one:.1} us to {other:.1} us");
        Goal { group: GROUP, what, of, most, measured, detail }.print();
    }
    for (name, micros) in [
        ("minimal pair, 64 bytes", pair),
        ("tower-singleflight, 64 bytes", small),
        ("minimal pair, 16 KiB", large_pair),
        ("tower-singleflight, 16 KiB", large),
    ] {
        point("server", "us", name, micros);
    }
}

/// Scripts, and the `SET` that goes before one. A script's own `SET`s are in its time
/// already: as many as with small answers, for which there is no other.
fn beside_scripts(small: &(Commands, f64), large: &(Commands, f64)) -> f64 {
    let inside = small.0.micros("set") / small.1;
    large.0.script_micros() / large.1 + (large.0.micros("set") / large.1 - inside).max(0.0)
}

async fn flights(effort: Effort, server: &Server, node: &Node, bytes: usize) -> (Commands, f64) {
    let calls = effort.pick(200, 1000);
    let service = node.around(Inner::new(bytes));
    server.reset();
    for _ in 0..calls {
        call(&service, &fresh()).await;
    }
    // The last `finish` is on its way.
    tokio::time::sleep(Duration::from_millis(20)).await;
    (server.commands(), f64::from(calls))
}

async fn pairs(effort: Effort, server: &Server, sketch: &Sketch, bytes: usize) -> (Commands, f64) {
    let (calls, body) = (effort.pick(200, 1000), vec![b'a'; bytes]);
    server.reset();
    for _ in 0..calls {
        let key = fresh();
        assert!(sketch.acquire(&key).await);
        sketch.complete(&key, &body).await;
    }
    (server.commands(), f64::from(calls))
}
