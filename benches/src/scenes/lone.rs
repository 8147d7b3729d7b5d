//! A call that nobody shares, in one process.

use std::collections::HashMap;

use http::{Method, Request};
use tokio::runtime::{Builder, Runtime};
use tower_singleflight::{HttpKey, KeyExtractor, key_fn};

use super::Effort;
use crate::{
    peers::{self, Ours, Peer, Visit},
    row::{Bound, Goal, point},
    sample::{self, cpu, median},
    work::{Body, Inner, get, path},
};

const BYTES: usize = 64;
/// Requests that are made before the clock starts.
const BATCH: u32 = 500;

pub fn run(effort: Effort) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    for (plot, goal, bound) in [
        ("lone", "lone caller, its path as the key", Bound::AtMost(1.2)),
        ("lone-http", "lone caller, all of its request as the key", Bound::AtMost(1.2)),
    ] {
        let times = if plot == "lone" {
            rounds(effort, &runtime, &key_fn(path))
        } else {
            rounds(effort, &runtime, &HttpKey::new())
        };
        let (ours, spawn) = (times.of("tower-singleflight"), times.of("spawn per key"));
        Goal {
            group: "In process",
            what: goal,
            of: "x spawn per key, CPU",
            most: bound,
            measured: times.ratio("tower-singleflight", "spawn per key"),
            detail: format!("{ours:.0} ns to {spawn:.0} ns"),
        }
        .print();
        for (name, _) in &times.order {
            point(plot, "ns a call", name, times.of(name));
        }
        if plot == "lone" {
            let over = times.of("bypass") - times.of("bare service");
            Goal {
                group: "In process",
                what: "bypass",
                of: "ns over the bare service",
                most: Bound::AtMost(60.0),
                measured: over,
                detail: format!(
                    "{:.0} ns to {:.0} ns",
                    times.of("bypass"),
                    times.of("bare service")
                ),
            }
            .print();
        }
    }
}

/// A call that is no part of any flight.
#[derive(Clone)]
struct Bypass<K>(Ours<K>);

impl<K: KeyExtractor<Request<Body>>> Peer for Bypass<K> {
    const NAME: &'static str = "bypass";

    fn call(
        &self,
        mut request: Request<Body>,
    ) -> impl Future<Output = bytes::Bytes> + Send + 'static {
        *request.method_mut() = Method::PUT;
        self.0.call(request)
    }
}

struct Times<'a> {
    runtime: &'a Runtime,
    calls: u32,
    order: Vec<(&'static str, ())>,
    nanos: HashMap<&'static str, Vec<f64>>,
}

impl Times<'_> {
    fn of(&self, name: &str) -> f64 {
        median(self.nanos[name].clone())
    }

    /// The middle one of the ratios of all rounds.
    fn ratio(&self, one: &str, other: &str) -> f64 {
        median(self.nanos[one].iter().zip(&self.nanos[other]).map(|(a, b)| a / b).collect())
    }
}

impl Visit for Times<'_> {
    fn visit<P: Peer>(&mut self, peer: P) {
        let calls = self.calls;
        let nanos = self.runtime.block_on(async {
            let mut nanos = 0.0;
            // The first batch warms up.
            for batch in 0..=calls / BATCH {
                let requests: Vec<_> = (0..BATCH).map(|_| get("/a")).collect();
                let before = cpu();
                for request in requests {
                    peer.call(request).await;
                }
                if batch > 0 {
                    nanos += sample::nanos(cpu() - before);
                }
            }
            nanos / f64::from(calls)
        });
        if !self.nanos.contains_key(P::NAME) {
            self.order.push((P::NAME, ()));
        }
        self.nanos.entry(P::NAME).or_default().push(nanos);
    }
}

fn rounds<'a>(
    effort: Effort,
    runtime: &'a Runtime,
    key: &impl KeyExtractor<Request<Body>>,
) -> Times<'a> {
    let mut times = Times {
        runtime,
        calls: effort.pick(5_000, 20_000),
        order: Vec::new(),
        nanos: HashMap::new(),
    };
    for _ in 0..effort.pick(7, 25) {
        peers::each(key, || Inner::new(BYTES), &mut times);
        let methods = HttpKey::new();
        times.visit(Bypass(Ours::new(Inner::new(BYTES), methods)));
    }
    times
}
