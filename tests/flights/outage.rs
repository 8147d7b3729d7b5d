//! Owners that are cut off, and a store that is away.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use futures_util::future::join_all;
use tower_singleflight::{Config, FailureKind, LeaseLoss, MemoryStore, StoreDown};

use crate::rig::*;

/// An owner behind a line, and who follows it from elsewhere.
struct Pair {
    counts: Arc<Counts>,
    line: Line,
    a: Node,
    b: Node,
    owner: Call,
    follower: Call,
}

impl Pair {
    /// The run takes `time`, and begins now.
    async fn new(time: Duration) -> Self {
        let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
        let line = Line::new(&store);
        let inner = slow(&counts, time);
        let a = Node::new(line.clone(), &inner, Config::default());
        let b = Node::new(store, &inner, Config::default());
        let owner = a.call("/a");
        until(|| counts.calls() == 1).await;
        let follower = b.call("/a");
        Self { counts, line, a, b, owner, follower }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_fails_no_request() {
    let counts = Arc::<Counts>::default();
    let line = Line::new(&MemoryStore::new());
    line.cut();
    let node = Node::new(line, &slow(&counts, ms(1000)), Config::default());
    for answer in join_all((0..50).map(|_| node.call("/a"))).await {
        assert_eq!(answer.text(), "run 0");
        assert!(answer.took <= ms(1260), "{:?}", answer.took);
    }
    assert_eq!(counts.calls(), 1);
    assert_eq!(*counts.tokens.lock().unwrap(), [None], "no lease, no token");
    until(|| node.in_air() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_refuses_where_it_is_told_to() {
    let counts = Arc::<Counts>::default();
    let line = Line::new(&MemoryStore::new());
    line.cut();
    let config = Config::builder().store_down(StoreDown::Reject).build().unwrap();
    let node = Node::new(line, &slow(&counts, ms(1000)), config);
    let answer = node.call("/a").await;
    assert_eq!((answer.status, answer.kind()), (503, Some(FailureKind::StoreDown)));
    assert_eq!(counts.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn e1_a_short_cut_costs_no_lease() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let line = Line::new(&store);
    let inner = slow(&counts, ms(15_000));
    let a = Node::new(line.clone(), &inner, Config::default());
    let b = Node::new(store, &inner, Config::default());
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    let follower = b.call("/a");
    tokio::time::sleep(ms(4000)).await;
    line.cut();
    tokio::time::sleep(ms(1500)).await;
    assert!(line.errors.load(SeqCst) > 0, "a beat fell into the cut");
    line.heal();
    assert_eq!(owner.await.text(), "run 0");
    assert_eq!(follower.await.text(), "run 0");
    assert_eq!(counts.calls(), 1);
}

/// Cut off for good, the owner stops before anybody else can own.
#[tokio::test(start_paused = true)]
async fn e2_an_owner_that_is_cut_off_stops_in_time() {
    let (counts, others) = (Arc::<Counts>::default(), Arc::<Counts>::default());
    let store = MemoryStore::new();
    let line = Line::new(&store);
    let a = Node::new(line.clone(), &slow(&counts, ms(20_000)), Config::default());
    let b = Node::new(store, &slow(&others, ms(20_000)), Config::default());
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    // Somebody whose request can be run again.
    let second = a.call("/a");
    let follower = b.call("/a");
    tokio::time::sleep(ms(5000)).await;
    line.cut();
    until(|| counts.dropped() + others.calls() > 0).await;
    assert_eq!((counts.dropped(), others.calls()), (1, 0), "it stops before another begins");
    until(|| others.calls() == 1).await;
    line.heal();
    let answer = follower.await;
    assert!(answer.took <= ms(5000) + LEASE + ms(1000) + ms(20_000), "{:?}", answer.took);
    assert_eq!((others.calls(), others.dropped()), (1, 0));
    owner.await;
    second.await;
    let stats = a.layer.stats();
    assert_eq!(stats.leases_lost, 1);
}

/// A grant whose lease may be over by the time it is heard of is not begun.
#[tokio::test(start_paused = true)]
async fn e7_a_grant_that_comes_too_late_is_not_begun() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let line = Line::new(&store);
    let inner = slow(&counts, ms(2000));
    let a = Node::new(line.clone(), &inner, Config::default());
    let b = Node::new(store, &inner, Config::default());
    line.answer_join_late(LEASE + ms(1000));
    let late = a.call("/a");
    tokio::time::sleep(LEASE + ms(500)).await;
    assert_eq!(counts.calls(), 0);
    let next = b.call("/a");
    assert_eq!(next.await.text(), "run 0");
    // It has followed whoever came after it.
    let answer = late.await;
    assert_eq!((answer.text(), answer.took), ("run 0", LEASE + ms(2500)));
    assert_eq!(counts.calls(), 1);

    // With nobody else there it owns anew, under another token.
    line.answer_join_late(LEASE);
    let answer = a.call("/b").await;
    assert_eq!((answer.text(), answer.took), ("run 1", LEASE + ms(2000)));
    assert_eq!((counts.calls(), a.in_air(), b.in_air()), (2, 0, 0));
}

/// An end that cannot be told at once is told when it can, while the lease stands.
#[tokio::test(start_paused = true)]
async fn f6_an_end_is_told_once_the_store_is_asked_again() {
    let Pair { counts, line, a, b, owner, follower } = Pair::new(ms(1000)).await;
    tokio::time::sleep(ms(500)).await;
    line.refuse(true);
    let answer = owner.await;
    assert_eq!((answer.text(), answer.took), ("run 0", ms(1000)), "its own wait for nothing");
    tokio::time::sleep(ms(800)).await;
    line.refuse(false);
    let answer = follower.await;
    assert_eq!(answer.text(), "run 0");
    assert!(answer.took < ms(1800) + ms(500), "{:?}", answer.took);
    assert_eq!(counts.calls(), 1);
    until(|| a.in_air() + b.in_air() == 0).await;
}

/// It is tried for one lease: then somebody else may run.
#[tokio::test(start_paused = true)]
async fn f6_an_end_that_is_never_heard_holds_the_key_for_a_lease() {
    let Pair { counts, line, a, b, owner, follower } = Pair::new(ms(1000)).await;
    tokio::time::sleep(ms(500)).await;
    line.refuse(true);
    assert_eq!(owner.await.text(), "run 0");
    let answer = follower.await;
    assert_eq!(answer.text(), "run 1");
    assert!(answer.took <= ms(1000) + LEASE + ms(1000) + ms(1000), "{:?}", answer.took);
    assert_eq!((counts.calls(), b.layer.stats().takeovers), (2, 1));
    until(|| a.in_air() + b.in_air() == 0).await;
}

/// Nobody could run the request again, so the run goes on for its own caller.
#[tokio::test(start_paused = true)]
async fn a_cut_off_run_that_cannot_be_repeated_goes_on_alone() {
    let Pair { line, b, owner, follower, .. } = Pair::new(ms(20_000)).await;
    tokio::time::sleep(ms(5000)).await;
    line.cut();
    assert_eq!(owner.await.text(), "run 0");
    assert_eq!(follower.await.text(), "run 1", "the first run is not published");
    assert_eq!(b.layer.stats().takeovers, 1);
}

#[tokio::test(start_paused = true)]
async fn finish_locally_keeps_every_cut_off_run() {
    let counts = Arc::<Counts>::default();
    let line = Line::new(&MemoryStore::new());
    let config = Config::builder().lease_loss(LeaseLoss::FinishLocally).build().unwrap();
    let a = Node::new(line.clone(), &slow(&counts, ms(20_000)), config);
    let callers: Vec<_> = (0..3).map(|_| a.call("/a")).collect();
    tokio::time::sleep(ms(5000)).await;
    line.cut();
    for answer in join_all(callers).await {
        assert_eq!((answer.text(), answer.took), ("run 0", ms(20_000)));
    }
}

/// The process is gone without a word, as far as the others can see.
#[tokio::test(start_paused = true)]
async fn d3_an_owner_that_is_gone_is_taken_over_within_the_lease_and_a_second() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let line = Line::new(&store);
    let inner = slow(&counts, ms(20_000));
    let a = Node::new(line.clone(), &inner, Config::default());
    let nodes = [(); 3].map(|()| Node::new(store.clone(), &inner, Config::default()));
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    let followers: Vec<_> = (0..30).map(|nth| nodes[nth % 3].call("/a")).collect();
    tokio::time::sleep(ms(5000)).await;
    line.cut();
    let gone = tokio::time::Instant::now();
    owner.hang_up();
    until(|| counts.calls() == 2).await;
    assert!(gone.elapsed() <= LEASE + ms(1000), "{:?}", gone.elapsed());
    for answer in join_all(followers).await {
        assert_eq!(answer.text(), "run 1");
    }
    assert_eq!(counts.calls(), 2);
    assert_eq!(nodes.iter().map(|node| node.layer.stats().takeovers).sum::<u64>(), 1);
}

#[tokio::test(start_paused = true)]
async fn f8_a_store_that_loses_its_data_is_owned_again_by_the_same_run() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = slow(&counts, ms(10_000));
    let a = Node::new(store.clone(), &inner, Config::default());
    let b = Node::new(store.clone(), &inner, Config::default());
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    tokio::time::sleep(ms(3500)).await;
    // One waits already; it lets the owner own again.
    let early = b.call("/a");
    tokio::time::sleep(ms(100)).await;
    store.clear();
    tokio::time::sleep(BEAT * 2).await;
    let follower = b.call("/a");
    assert_eq!(owner.await.text(), "run 0");
    assert_eq!(early.await.text(), "run 0");
    assert_eq!(follower.await.text(), "run 0");
    assert_eq!(counts.calls(), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(store.len(), 0);
}

/// Lost since the last beat: the owner hears of it when it tells the end.
#[tokio::test(start_paused = true)]
async fn f8_an_answer_that_is_there_is_not_made_again_for_lost_data() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = slow(&counts, ms(10_000));
    let a = Node::new(store.clone(), &inner, Config::default());
    let b = Node::new(store.clone(), &inner, Config::default());
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    let follower = b.call("/a");
    tokio::time::sleep(ms(9_950)).await;
    store.clear();
    assert_eq!(owner.await.text(), "run 0");
    let answer = follower.await;
    assert_eq!(answer.text(), "run 0");
    // A beat, and what it takes to see it.
    assert!(answer.took <= ms(10_000) + BEAT + ms(100), "{:?}", answer.took);
    assert_eq!((counts.calls(), a.layer.stats().fenced), (1, 0));
    until(|| a.in_air() + b.in_air() == 0).await;
}

/// The store has heard of the end, nobody waited, and another runs; then all is lost. Who
/// was never answered does not own again: the answer is from before the others asked.
#[tokio::test(start_paused = true)]
async fn f8_an_end_that_may_have_been_heard_is_not_owned_again_for() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = inner(&counts, |nth| async move {
        tokio::time::sleep(ms(if nth == 0 { 1000 } else { 10_000 })).await;
        answer(format!("run {nth}"))
    });
    let line = Line::new(&store);
    let a = Node::new(line.clone(), &inner, Config::default());
    let b = Node::new(store.clone(), &inner, Config::default());
    line.lose_finish_answer();
    assert_eq!(a.call("/a").await.text(), "run 0");
    let next = b.call("/a");
    until(|| counts.calls() == 2).await;
    store.clear();
    assert_eq!(next.await.text(), "run 1");
    until(|| a.in_air() + b.in_air() == 0).await;
    assert_eq!((counts.calls(), counts.dropped(), line.errors.load(SeqCst)), (2, 0, 1));
}

/// What is granted to an owner that asks again, too late to be used, is let go at once:
/// nobody waits until that lease runs out.
#[tokio::test(start_paused = true)]
async fn f8_a_lease_that_comes_too_late_for_an_answer_is_let_go() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = slow(&counts, ms(10_000));
    let line = Line::new(&store);
    let a = Node::new(line.clone(), &inner, Config::default());
    let b = Node::new(store.clone(), &inner, Config::default());
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    tokio::time::sleep(ms(9_950)).await;
    store.clear();
    // Longer than an owner believes in its lease, shorter than the lease.
    let late = LEASE - ms(200);
    line.answer_join_late(late);
    assert_eq!(owner.await.text(), "run 0");
    let next = b.call("/a").await;
    assert_eq!(next.text(), "run 1");
    assert!(next.took <= late + ms(10_050), "{:?}", next.took);
    until(|| a.in_air() + b.in_air() == 0).await;
}
