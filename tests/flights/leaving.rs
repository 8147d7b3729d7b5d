//! Callers that leave, and runtimes that go away.

use std::{sync::Arc, task::Poll};

use futures_util::{future::join_all, poll};
use http::Request;
use http_body_util::BodyExt;
use tower::ServiceExt;
use tower_singleflight::{Abandon, Config, FailureKind, MemoryStore};

use crate::rig::*;

#[tokio::test(start_paused = true)]
async fn a1_owner_leaves_followers_stay() {
    let counts = Arc::<Counts>::default();
    let inner = inner(&counts, |_| async {
        tokio::time::sleep(ms(500)).await;
        answer(vec![7; 10 * 1024])
    });
    let node = Node::new(MemoryStore::new(), &inner, Config::default());
    let owner = node.call("/a");
    tokio::time::sleep(ms(100)).await;
    let followers = [node.call("/a"), node.call("/a")];
    tokio::time::sleep(ms(100)).await;
    owner.hang_up();
    for answer in join_all(followers).await {
        assert_eq!((answer.status, answer.body.unwrap().len()), (200, 10 * 1024));
        assert_eq!(answer.took, ms(400));
    }
    assert_eq!((counts.calls(), counts.dropped()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a2_a_follower_leaves_and_nothing_else_happens() {
    for elsewhere in [false, true] {
        let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
        let inner = slow(&counts, ms(1000));
        let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
        let second = if elsewhere { &b } else { &a };
        let owner = a.call("/a");
        until(|| counts.calls() == 1).await;
        let follower = second.call("/a");
        tokio::time::sleep(ms(200)).await;
        follower.hang_up();
        tokio::time::sleep(ms(100)).await;
        let third = second.call("/a");
        assert_eq!(owner.await.text(), "run 0");
        assert_eq!(third.await.text(), "run 0");
        assert_eq!((counts.calls(), counts.dropped()), (1, 0));
        until(|| a.in_air() + b.in_air() == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a3_a_parked_caller_holds_nobody_up() {
    let counts = Arc::<Counts>::default();
    let node = Node::new(MemoryStore::new(), &slow(&counts, ms(100)), Config::default());
    let request = Request::get("http://a.test/a").body(Body::default()).unwrap();
    let mut parked = Box::pin(node.service.clone().oneshot(request));
    assert!(matches!(poll!(&mut parked), Poll::Pending));
    let other = node.call("/a").await;
    assert_eq!((other.text(), other.took), ("run 0", ms(100)));
    let body = parked.await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "run 0");
    assert_eq!(counts.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a4_the_last_watcher_anywhere_ends_the_run() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = slow(&counts, ms(10_000));
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    let follower = b.call("/a");
    tokio::time::sleep(ms(200)).await;
    owner.hang_up();
    tokio::time::sleep(ms(100)).await;
    assert_eq!(counts.dropped(), 0, "somebody waits elsewhere");
    let left = tokio::time::Instant::now();
    follower.hang_up();
    until(|| counts.dropped() == 1).await;
    assert!(left.elapsed() <= BEAT, "{:?}", left.elapsed());
    // The lease is gone: the next caller runs at once.
    let next = b.call("/a").await;
    assert_eq!(next.took, ms(10_000));
}

#[tokio::test(start_paused = true)]
async fn a4_alone_the_run_ends_at_once() {
    let counts = Arc::<Counts>::default();
    let node = Node::new(MemoryStore::new(), &slow(&counts, ms(10_000)), Config::default());
    let owner = node.call("/a");
    until(|| counts.calls() == 1).await;
    owner.hang_up();
    until(|| counts.dropped() == 1).await;
    until(|| node.in_air() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a4_finish_runs_to_the_end_for_reuse() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let config = Config::builder().abandon(Abandon::Finish).reuse(ms(20_000)).build().unwrap();
    let inner = slow(&counts, ms(10_000));
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, config.clone()));
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    owner.hang_up();
    tokio::time::sleep(ms(11_000)).await;
    assert_eq!((counts.calls(), counts.dropped()), (1, 0));
    assert_eq!(b.call("/a").await.text(), "run 0");
    assert_eq!(counts.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a4_only_the_owners_caller_leaves() {
    for abandon in [Abandon::Abort, Abandon::Finish] {
        let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
        let config = Config::builder().abandon(abandon).build().unwrap();
        let inner = slow(&counts, ms(10_000));
        let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, config.clone()));
        let owner = a.call("/a");
        until(|| counts.calls() == 1).await;
        let follower = b.call("/a");
        tokio::time::sleep(ms(200)).await;
        owner.hang_up();
        assert_eq!(follower.await.text(), "run 0");
        assert_eq!((counts.calls(), counts.dropped()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn c3_what_a_departed_owner_left_is_not_served_later() {
    let counts = Arc::<Counts>::default();
    let node = Node::new(MemoryStore::new(), &slow(&counts, ms(100)), Config::default());
    let owner = node.call("/a");
    tokio::time::sleep(ms(99)).await;
    owner.hang_up();
    until(|| node.in_air() == 0).await;
    tokio::time::sleep(ms(1000)).await;
    assert_eq!(node.call("/a").await.text(), "run 1");
}

#[tokio::test(start_paused = true)]
async fn q4_a_drain_waits_for_what_ends_in_its_grace() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = slow(&counts, ms(800));
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    let follower = b.call("/a");
    let started = tokio::time::Instant::now();
    a.layer.drain(ms(1000)).await;
    assert!(started.elapsed() <= ms(810), "{:?}", started.elapsed());
    assert_eq!(owner.await.text(), "run 0");
    assert_eq!(follower.await.text(), "run 0");
    // No more leases: what still comes is run here, unknown to the others.
    assert_eq!(a.call("/b").await.text(), "run 1");
    assert_eq!(counts.tokens.lock().unwrap()[1], None);
}

#[tokio::test(start_paused = true)]
async fn q4_a_drain_hands_over_what_is_left_after_its_grace() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = slow(&counts, ms(10_000));
    let config = Config::builder().lease(ms(30_000)).retention(ms(60_000)).build().unwrap();
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, config.clone()));
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    let follower = b.call("/a");
    until(|| b.layer.stats().owner == 0 && b.in_air() == 1).await;
    let started = tokio::time::Instant::now();
    a.layer.drain(ms(1000)).await;
    until(|| counts.calls() == 2).await;
    assert!(started.elapsed() <= ms(1300), "{:?}", started.elapsed());
    assert_eq!(counts.max_running.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert_eq!(follower.await.text(), "run 1");
    let owner = owner.await;
    // Whether the next owner was there in time to be followed decides which.
    assert!(owner.kind() == Some(FailureKind::Draining) || owner.text() == "run 1", "{owner:?}");
}

/// The driver lives on the runtime of the flight's first caller. When that runtime
/// goes away, another caller drives the flight on.
#[test]
fn c5_the_owners_runtime_goes_away() {
    let counts = Arc::<Counts>::default();
    let store = MemoryStore::new();
    let inner = slow(&counts, ms(200));
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (doomed, other) = (runtime(), runtime());
    let owner = {
        let _on = doomed.enter();
        a.call("/a")
    };
    other.block_on(async {
        while counts.calls() == 0 {
            tokio::task::yield_now().await;
        }
        let followers: Vec<_> = (0..50).map(|nth| [&a, &b][nth % 2].call("/a")).collect();
        while a.layer.flights().iter().map(|flight| flight.callers).sum::<usize>() < 26
            || b.in_air() == 0
        {
            tokio::task::yield_now().await;
        }
        doomed.shutdown_background();
        for answer in join_all(followers).await {
            assert_eq!(answer.text(), "run 1");
        }
    });
    assert_eq!(counts.calls(), 2);
    assert_eq!(counts.max_running.load(std::sync::atomic::Ordering::SeqCst), 1);
    drop(owner);
}
