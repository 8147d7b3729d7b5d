//! Ten thousand flights in the air in one process: whether their leases are kept in
//! time, and what they hold. For the binary that counts what is allocated.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tower_singleflight::Config;

use super::{
    Effort, fresh,
    memory::{self, Heap},
    two_threads,
};
use crate::{
    fleet::{Node, Server, call},
    row::{Bound, Goal},
    work::Inner,
};

const FLIGHTS: u64 = 10_000;
/// Begun at a time: more would wait for each other longer than a step may take.
const WAVE: u64 = 100;
const GROUP: &str = "Many flights over Redis";

pub fn run(effort: Effort, heap: fn() -> Heap) {
    // Before there is any other thread.
    let request = memory::request(heap);
    let server = Server::start();
    two_threads().block_on(async {
        let config = Config::default();
        let (lease, beat) = (config.lease(), config.heartbeat());
        let node = Node::patient(&server.url(), config).await;
        let gate = Arc::new(Semaphore::new(0));
        let service = node.around(Inner::new(64).behind(&gate));
        let before = heap().bytes;
        let mut calls = Vec::with_capacity(FLIGHTS as usize);
        while (calls.len() as u64) < FLIGHTS {
            calls.extend((0..WAVE).map(|_| tokio::spawn(call(&service, &fresh()))));
            node.seen.until(|seen| seen.owned(), calls.len() as u64).await;
        }
        let held = heap().bytes - before;
        let (beats, stay) = (node.seen.beats(), beat * effort.pick(4, 8));
        tokio::time::sleep(stay).await;
        let beats = (node.seen.beats() - beats) as f64 / stay.div_duration_f64(beat);
        let gap = node.seen.longest_gap();
        gate.add_permits(FLIGHTS as usize);
        for call in calls {
            call.await.expect("an answer");
        }
        let lost = node.layer.stats().leases_lost;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let beside = held as f64 / FLIGHTS as f64 - request;
        let rows = [
            (
                "longest time between two renewals of a lease",
                "x lease",
                Bound::AtMost(0.5),
                gap.div_duration_f64(lease),
                format!("{gap:.0?} of {lease:?}; {lost} leases lost"),
            ),
            (
                "renewals",
                "batches a beat",
                Bound::AtMost(1.1),
                beats,
                "the store cuts a large one into several pipelines".to_owned(),
            ),
            (
                "a flight",
                "bytes, beside its request",
                Bound::AtMost(4096.0),
                beside,
                "both ends' buffers and the caller's task in it".to_owned(),
            ),
        ];
        for (what, of, most, measured, detail) in rows {
            let what = &format!("10,000 in the air: {what}");
            Goal { group: GROUP, what, of, most, measured, detail }.print();
        }
    });
}
