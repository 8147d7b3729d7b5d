//! Ends that meet: a lease's and its run's, a runtime's and its flights'.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use futures_util::{future::join_all, poll};
use http::HeaderValue;
use tokio::sync::Notify;
use tower_singleflight::{Config, FailureKind, FlightPhase, MemoryStore};

use crate::rig::*;

/// `finish` is on its way when the time limit passes: the run was in time.
#[tokio::test(start_paused = true)]
async fn a_run_that_ended_in_time_is_no_timeout() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let line = Line::new(&store);
    line.slow(ms(20));
    let config = Config::builder().hard_timeout(ms(1000)).build().unwrap();
    let inner = slow(&counts, ms(990));
    let a = Node::new(line, &inner, config.clone());
    let b = Node::new(store, &inner, config);
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    let follower = b.call("/a");
    assert_eq!(owner.await.text(), "run 0");
    assert_eq!(follower.await.text(), "run 0");
    assert_eq!(counts.calls(), 1);
}

/// A run has one time limit, with a lease and without.
#[tokio::test(start_paused = true)]
async fn a_run_that_lost_its_lease_has_the_same_time_limit() {
    let counts = Arc::<Counts>::default();
    let line = Line::new(&MemoryStore::new());
    let config = Config::builder().hard_timeout(ms(4000)).build().unwrap();
    let a = Node::new(line.clone(), &slow(&counts, ms(60_000)), config);
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    line.cut();
    let answer = owner.await;
    assert_eq!(answer.kind(), Some(FailureKind::OwnerTimedOut));
    assert!(answer.took <= ms(4010), "{:?}", answer.took);
}

/// The handler blocks the thread for longer than the lease, and with it the keeper
/// of a store in memory. Its own caller has its answer all the same, and at once.
#[tokio::test]
async fn a_caller_whose_run_ended_as_its_lease_did_hears_of_it_at_once() {
    let (counts, second_may_end) = (Arc::<Counts>::default(), Arc::<Notify>::default());
    let may_end = Arc::clone(&second_may_end);
    let inner = inner(&counts, move |nth| {
        let may_end = Arc::clone(&may_end);
        async move {
            if nth == 0 {
                std::thread::sleep(ms(120));
            } else {
                may_end.notified().await;
            }
            let mut response = answer(format!("run {nth}"));
            response.headers_mut().insert("cache-control", HeaderValue::from_static("no-store"));
            response
        }
    });
    let config = Config::builder().lease(ms(100)).build().unwrap();
    let node = Node::new(MemoryStore::new(), &inner, config);
    let [first, second] = [(); 2].map(|()| node.call("/a"));
    let first = tokio::time::timeout(ms(5000), first).await.expect("an answer at once");
    assert_eq!(first.text(), "run 0");
    second_may_end.notify_one();
    assert_eq!(second.await.text(), "run 1");
}

struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0, "a bomb in an inner future");
    }
}

/// The panic leaves the guard half dropped: the lease goes all the same.
#[tokio::test(start_paused = true)]
async fn a_run_that_panics_when_it_is_dropped_keeps_no_lease() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = inner(&counts, |nth| async move {
        let mut bomb = Bomb(nth == 0);
        tokio::time::sleep(ms(10_000)).await;
        bomb.0 = false;
        answer(format!("run {nth}"))
    });
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
    let _owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    let follower = b.call("/a");
    until(|| b.in_air() == 1).await;
    a.layer.drain(Duration::ZERO).await;
    let answer = follower.await;
    assert_eq!(answer.text(), "run 1");
    assert!(answer.took <= ms(10_500), "{:?}", answer.took);
}

/// Answers that always come later than the lease stands: the callers share a run
/// within the process, as where the store is away.
#[tokio::test(start_paused = true)]
async fn a_store_slower_than_the_lease_fails_no_request() {
    let counts = Arc::<Counts>::default();
    let line = Line::new(&MemoryStore::new());
    line.slow(ms(100));
    let config = Config::builder().lease(ms(100)).build().unwrap();
    let node = Node::new(line, &slow(&counts, ms(50)), config);
    let answer = tokio::time::timeout(ms(10_000), node.call("/a")).await.expect("an answer");
    assert_eq!(answer.text(), "run 0");
}

#[tokio::test(start_paused = true)]
async fn q4_a_drain_waits_for_a_lease_that_is_being_asked_for() {
    let counts = Arc::<Counts>::default();
    let line = Line::new(&MemoryStore::new());
    line.slow(ms(50));
    let node = Node::new(line, &slow(&counts, ms(300)), Config::default());
    let owner = node.call("/a");
    until(|| node.in_air() == 1).await;
    node.layer.drain(ms(1000)).await;
    assert_eq!(owner.await.text(), "run 0");
    assert!(counts.tokens.lock().unwrap()[0].is_some());
}

/// The next caller's flight has taken its place in the table.
#[tokio::test(start_paused = true)]
async fn q4_a_drain_waits_for_an_end_that_is_on_its_way() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let line = Line::new(&store);
    line.slow(ms(100));
    let inner = slow(&counts, ms(300));
    let a = Node::new(line, &inner, Config::default());
    let b = Node::new(store, &inner, Config::default());
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    let mut follower = b.call("/a");
    assert_eq!(owner.await.text(), "run 0");
    let _next = a.call("/a");
    until(|| a.layer.flights()[0].phase == FlightPhase::Joining).await;
    a.layer.drain(ms(1000)).await;
    tokio::task::yield_now().await;
    assert!(poll!(&mut follower).is_ready(), "the store has heard of the end");
}

/// The keeper of a store in memory lives on the runtime of the first flight.
#[test]
fn c5_the_keepers_runtime_goes_away() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = slow(&counts, ms(1500));
    let config = Config::builder().lease(ms(600)).build().unwrap();
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, config.clone()));
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (doomed, other) = (runtime(), runtime());
    doomed.block_on(async { join_all([a.call("/0"), b.call("/1")]).await });
    other.block_on(async {
        let callers: Vec<_> = (0..4).map(|nth| [&a, &b][nth % 2].call("/a")).collect();
        while counts.calls() < 3 || a.in_air() + b.in_air() < 2 {
            tokio::task::yield_now().await;
        }
        doomed.shutdown_background();
        for answer in join_all(callers).await {
            assert_eq!(answer.text(), "run 2");
        }
    });
    assert_eq!(counts.calls(), 3);
}

/// It is not shut down, but nobody polls what runs on it, either.
#[test]
fn a_flight_that_ends_on_a_resting_runtime_holds_up_no_other() {
    let counts = Arc::<Counts>::default();
    let line = Line::new(&MemoryStore::new());
    line.slow(ms(20));
    let config = Config::builder().lease(ms(300)).build().unwrap();
    let node = Node::new(line, &slow(&counts, ms(10)), config);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (resting, other) = (runtime(), runtime());
    assert_eq!(resting.block_on(async { node.call("/a").await }).text(), "run 0");
    assert_eq!(node.in_air(), 1, "the store is not told yet");
    let answer = other.block_on(async { tokio::time::timeout(ms(5000), node.call("/a")).await });
    assert_eq!(answer.expect("an answer").text(), "run 1");
}

/// Somebody else was faster to own what the store has lost: there is one run again.
#[tokio::test(start_paused = true)]
async fn f8_a_run_whose_key_was_taken_meanwhile_is_superseded() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let line = Line::new(&store);
    let inner = slow(&counts, ms(10_000));
    let a = Node::new(line.clone(), &inner, Config::default());
    let b = Node::new(store.clone(), &inner, Config::default());
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    // The renewal finds the record missing; to ask for it anew takes a while.
    line.slow(ms(1500));
    store.clear();
    tokio::time::sleep(BEAT * 2).await;
    let other = b.call("/a");
    assert_eq!(other.await.text(), "run 1");
    assert_eq!(owner.await.text(), "run 1");
    assert_eq!((counts.calls(), counts.dropped()), (2, 1));
}

/// Who has lost its lease looks who owns by then: where it goes on alone it waits for
/// nobody, and its look keeps no run alive that nobody wants.
#[tokio::test(start_paused = true)]
async fn a_look_of_one_who_goes_on_alone_leaves_no_mark() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let line = Line::new(&store);
    let inner = slow(&counts, ms(20_000));
    let a = Node::new(line.clone(), &inner, Config::default());
    let b = Node::new(store, &inner, Config::default());
    let alone = a.call("/a");
    until(|| counts.calls() == 1).await;
    line.lose_beats();
    until(|| a.layer.stats().leases_lost == 1).await;
    line.find_beats();
    // What it has to say is said within a beat.
    tokio::time::sleep(BEAT + ms(300)).await;
    let other = b.call("/a");
    until(|| counts.calls() == 2).await;
    other.hang_up();
    let left = tokio::time::Instant::now();
    until(|| counts.dropped() == 1).await;
    assert!(left.elapsed() < ms(100), "{:?}", left.elapsed());
    assert_eq!(alone.await.text(), "run 0");
}

/// Who has an answer whose record is lost asks to own again: where somebody else owns by
/// then, that question keeps no run alive that nobody wants.
#[tokio::test(start_paused = true)]
async fn an_owner_that_comes_too_late_to_own_again_leaves_no_mark() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let line = Line::new(&store);
    let inner = inner(&counts, |nth| async move {
        tokio::time::sleep(ms(if nth == 0 { 1000 } else { 20_000 })).await;
        answer(format!("run {nth}"))
    });
    let a = Node::new(line.clone(), &inner, Config::default());
    let b = Node::new(store.clone(), &inner, Config::default());
    let first = a.call("/a");
    until(|| counts.calls() == 1).await;
    // The end is told at 1200, and what follows from it is asked at 1400.
    line.slow(ms(200));
    assert_eq!(first.await.text(), "run 0");
    store.clear();
    tokio::time::sleep(ms(300)).await;
    let other = b.call("/a");
    until(|| counts.calls() == 2).await;
    // What is to be said is said within a beat.
    tokio::time::sleep(BEAT + ms(300)).await;
    assert_eq!(a.in_air(), 0);
    other.hang_up();
    let left = tokio::time::Instant::now();
    until(|| counts.dropped() == 1).await;
    assert!(left.elapsed() < ms(100), "{:?}", left.elapsed());
}

/// The store loses its data, and what its owner asks for then is not answered. The word
/// that this wait is over comes late, when the same driver waits again: it must not end
/// that wait too, or the answer would be let go as one that nobody wants.
#[tokio::test(start_paused = true)]
async fn who_took_a_wait_back_and_waits_again_is_waited_for() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = inner(&counts, |nth| async move {
        tokio::time::sleep(if nth == 0 { LEASE * 10 } else { ms(800) }).await;
        answer(format!("run {nth}"))
    });
    let config = Config::builder().lease(LEASE).build().unwrap();
    let line = Line::new(&store);
    let a = Node::new(line.clone(), &inner, config.clone());
    let b = Node::new(store.clone(), &inner, config);
    let first = a.call("/a");
    until(|| counts.calls() == 1).await;
    // Whose request can be run where the first one is given up.
    let other = a.call("/a");
    // The renewal after one beat finds nothing; the attempt to own again is on its way
    // when the line is cut.
    line.slow(ms(100));
    store.clear();
    tokio::time::sleep(BEAT + ms(50)).await;
    line.cut();
    let second = b.call("/a");
    until(|| counts.dropped() == 1).await;
    // The next attempt goes through; the words of the last one are tried again later.
    line.heal();
    assert_eq!(second.await.text(), "run 1");
    assert_eq!(first.await.text(), "run 1");
    assert_eq!(other.await.text(), "run 1");
    assert_eq!((counts.calls(), line.errors.load(SeqCst)), (2, 2));
}
