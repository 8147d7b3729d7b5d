//! A thousand flights at once, against the same number of raw script pairs on one
//! shared connection.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tower_singleflight::Config;

use super::{Effort, fresh, two_threads};
use crate::{
    fleet::{Node, Server, Sketch, call},
    row::{Bound, Goal},
    sample::{median, quantile},
    work::Inner,
};

const TASKS: usize = 1000;
const BYTES: usize = 64;
const GROUP: &str = "Many flights over Redis";

pub fn run(effort: Effort) {
    let server = Server::start();
    let each = effort.pick(5, 20);
    two_threads().block_on(async {
        let node = Node::connect(&server.url(), Config::default()).await;
        let sketch = Arc::new(Sketch::connect(&server.url()).await);
        let service = node.around(Inner::new(BYTES));
        let (mut ratios, mut ours, mut raws, mut spreads) = (vec![], vec![], vec![], vec![]);
        for round in 0..=effort.pick(3, 7) {
            let raw = at_once(each, || {
                let sketch = Arc::clone(&sketch);
                async move {
                    let key = fresh();
                    assert!(sketch.acquire(&key).await);
                    sketch.complete(&key, &[b'a'; BYTES]).await;
                }
            })
            .await;
            server.reset();
            let flights = at_once(each, || {
                let call = call(&service, &fresh());
                async move { drop(call.await) }
            })
            .await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            // The first round warms up.
            if round > 0 {
                // Where the store was too late, calls ran without it: they count as none.
                let asked = server.commands().scripts() as f64 / (2 * TASKS * each) as f64;
                let rate = flights.rate * asked.min(1.0);
                ratios.push(rate / raw.rate);
                ours.push(rate);
                raws.push(raw.rate);
                spreads.push(flights.late / flights.middle);
            }
        }
        let errors: u64 = node.layer.store_errors().iter().map(|error| error.1).sum();
        Goal {
            group: GROUP,
            what: "1,000 callers, one flight after the other: flights a second",
            of: "x raw script pairs on one connection",
            most: Bound::AtLeast(0.5),
            measured: median(ratios),
            detail: format!(
                "{:.0} a second to {:.0}; {errors} times the store was too late for a call",
                median(ours),
                median(raws)
            ),
        }
        .print();
        Goal {
            group: GROUP,
            what: "the same: time of a call, the slowest in a hundred",
            of: "x the middle one",
            most: Bound::AtMost(3.0),
            measured: median(spreads),
            detail: String::new(),
        }
        .print();
    });
}

struct Run {
    /// A second.
    rate: f64,
    /// Of the time of a call: the middle, and what one in a hundred exceeds.
    middle: f64,
    late: f64,
}

async fn at_once<F: Future<Output = ()> + Send + 'static>(each: usize, one: impl Fn() -> F) -> Run {
    let since = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let calls: Vec<F> = (0..each).map(|_| one()).collect();
            tokio::spawn(async {
                let mut times = Vec::new();
                for call in calls {
                    let since = Instant::now();
                    call.await;
                    times.push(since.elapsed().as_secs_f64());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("a task"));
    }
    let rate = times.len() as f64 / since.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    Run { rate, middle: quantile(&times, 0.5), late: quantile(&times, 0.99) }
}
