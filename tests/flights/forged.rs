//! Whoever may publish can tell of an end that there was not. Who waits looks before it
//! costs callers their answer: also in line to take over, when its owner may be gone.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, sleep_until};
use tower_singleflight::{
    Config, FlightPhase, MemoryStore, Store,
    store::{EndStatus, KeyView, Pushed, Seal},
};

use crate::{
    rig::*,
    tap::{Open, Taps},
};

/// An owner, and two that wait in its line.
struct Queue {
    store: MemoryStore,
    lines: [Line; 3],
    nodes: [Node; 3],
}

impl Queue {
    fn new(inner: &InnerService) -> Self {
        let store = MemoryStore::new();
        let lines = [(); 3].map(|()| Line::new(&store));
        let config = Config::builder().lease(LEASE).build().unwrap();
        let nodes = lines.each_ref().map(|line| Node::new(line.clone(), inner, config.clone()));
        Self { store, lines, nodes }
    }

    async fn waits(&self, at: usize) {
        let is_following = |node: &Node| {
            node.layer.flights().iter().any(|flight| flight.phase == FlightPhase::Following)
        };
        until(|| is_following(&self.nodes[at])).await;
    }

    async fn view(&self) -> KeyView {
        let key = self.nodes[2].layer.flights()[0].key;
        self.store.inspect(key).await.unwrap().unwrap()
    }

    /// The end of the lease, as the store has it now.
    async fn lease_end(&self) -> Instant {
        Instant::now() + self.view().await.lease_left.unwrap()
    }

    /// These processes are gone without a word.
    fn kill(&self, nodes: usize) {
        self.lines[..nodes].iter().for_each(Line::cut);
    }

    /// The last one hears that the flight has ended, when it is in line.
    async fn forge(&self, lease_end: Instant, status: EndStatus, seal: Option<Seal>) {
        let flight = self.view().await.flight;
        self.forge_of(lease_end, Pushed::Ended { flight, status, record: None, seal }).await;
    }

    /// Two are in line after 50 ms at least, and at most after 100.
    async fn forge_of(&self, lease_end: Instant, pushed: Pushed) {
        sleep_until(lease_end + ms(20)).await;
        assert_eq!(self.attempts(), 1, "too late");
        self.lines[2].forge(pushed);
    }

    /// How often the last one has asked to own.
    fn attempts(&self) -> usize {
        self.lines[2].attempts.load(SeqCst)
    }
}

/// They wait for a run of 3.5 s, the last one with two callers.
async fn waiting() -> (Queue, Arc<Counts>, Vec<Call>) {
    let counts = Arc::<Counts>::default();
    let queue = Queue::new(&slow(&counts, ms(3500)));
    let mut calls = vec![queue.nodes[0].call("/a")];
    until(|| counts.calls() == 1).await;
    calls.push(queue.nodes[1].call("/a"));
    queue.waits(1).await;
    calls.extend([queue.nodes[2].call("/a"), queue.nodes[2].call("/a")]);
    queue.waits(2).await;
    (queue, counts, calls)
}

const COSTLY: [EndStatus; 3] = [EndStatus::Private, EndStatus::TooLarge, EndStatus::Stopped];

#[tokio::test(start_paused = true)]
async fn in_line_an_end_that_was_not_costs_nobody_the_answer() {
    for status in COSTLY {
        let (queue, counts, calls) = waiting().await;
        // The owner lives, and this one does not hear of it.
        queue.lines[2].lose_beats();
        queue.forge(queue.lease_end().await, status, None).await;
        for answer in join_all(calls).await {
            assert_eq!(answer.text(), "run 0", "{status:?}");
        }
        // It waits on, and is in nobody's way.
        assert_eq!((counts.calls(), queue.attempts()), (1, 1), "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_line_who_hears_of_nothing_asks_to_own() {
    let (queue, counts, calls) = waiting().await;
    queue.lines[2].lose_beats();
    let lease_end = queue.lease_end().await;
    queue.forge_of(lease_end, Pushed::Watched { flight: queue.view().await.flight }).await;
    sleep_until(lease_end + ms(110)).await;
    assert_eq!(queue.attempts(), 2);
    assert!(join_all(calls).await.iter().all(|answer| answer.text() == "run 0"));
    assert_eq!(counts.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn in_line_a_newer_flight_is_followed_whatever_is_said_of_the_older() {
    let (queue, counts, mut calls) = waiting().await;
    let lease_end = queue.lease_end().await;
    queue.kill(1);
    drop(calls.remove(0));
    let flight = queue.view().await.flight;
    let (record, seal) = (None, None);
    let pushed = Pushed::Ended { flight, status: EndStatus::Stopped, record, seal };
    queue.forge_of(lease_end, pushed).await;
    assert_eq!(counts.calls(), 2, "the first in line owns");
    for answer in join_all(calls).await {
        assert_eq!(answer.text(), "run 1");
    }
    assert_eq!((counts.calls(), queue.attempts()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn in_line_an_end_that_was_not_keeps_nobody_from_taking_over() {
    for status in COSTLY {
        let (queue, counts, mut calls) = waiting().await;
        let lease_end = queue.lease_end().await;
        queue.kill(2);
        drop(calls.drain(..2));
        queue.forge(lease_end, status, None).await;
        for answer in join_all(calls).await {
            assert_eq!(answer.text(), "run 1", "{status:?}");
        }
        assert_eq!((counts.calls(), queue.attempts()), (2, 2), "{status:?}");
    }
}

/// They wait for a stream, of which the last one has got `one`.
async fn begun() -> (Queue, Taps, Vec<Open>, Open, Instant) {
    let taps = Taps::default();
    let queue = Queue::new(&taps.inner());
    let mut others = vec![queue.nodes[0].open("/a").await];
    let first = queue.nodes[1].opening("/a");
    queue.waits(1).await;
    let last = queue.nodes[2].opening("/a");
    queue.waits(2).await;
    let lease_end = queue.lease_end().await;
    taps.send(0, "one");
    others.push(first.await.unwrap());
    let mut last = last.await.unwrap();
    assert_eq!(last.next().await.unwrap(), "one");
    (queue, taps, others, last, lease_end)
}

/// Ends that cost whoever has begun.
fn ends() -> [(EndStatus, Option<Seal>); 3] {
    let seal = Seal { pieces: 1, proof: Bytes::from_static(b"forged") };
    [
        (EndStatus::Failed, None),
        (EndStatus::Failed, Some(seal.clone())),
        (EndStatus::Done, Some(seal)),
    ]
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_not_breaks_no_body() {
    for (status, seal) in ends() {
        let (queue, taps, _others, last, _) = begun().await;
        queue.forge(Instant::now(), status, seal).await;
        sleep(ms(50)).await;
        taps.send(0, " two");
        taps.end(0);
        assert_eq!(last.rest().await.as_deref(), Ok(" two"), "{status:?}");
        assert_eq!(taps.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn in_line_an_end_that_was_not_breaks_no_body() {
    // One of the others takes over, or nobody is left but the last.
    for killed in [1, 2] {
        for (status, seal) in ends() {
            let (queue, taps, mut others, last, _) = begun().await;
            let (lease_end, flight) = (queue.lease_end().await, queue.view().await.flight);
            queue.kill(killed);
            drop(others.drain(..killed));
            // What the first in line says does not come, and what is forged does.
            queue.lines[2].deafen();
            let pushed = Pushed::Ended { flight, status, record: None, seal };
            queue.forge_of(lease_end, pushed).await;
            until(|| taps.runs() == 2).await;
            taps.send(1, "one two");
            taps.end(1);
            assert_eq!(last.rest().await.as_deref(), Ok(" two"), "{killed} {status:?}");
        }
    }
}
