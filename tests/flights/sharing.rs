//! One run answers all.

use std::sync::Arc;

use futures_util::future::join_all;
use tower_singleflight::{Config, MemoryStore};

use crate::rig::*;

#[tokio::test(start_paused = true)]
async fn one_run_answers_all_and_the_next_call_is_a_new_run() {
    let counts = Arc::<Counts>::default();
    let node = Node::new(MemoryStore::new(), &slow(&counts, ms(1000)), Config::default());
    for answer in join_all((0..20).map(|_| node.call("/a"))).await {
        assert_eq!(answer.text(), "run 0");
        assert_eq!(answer.took, ms(1000));
    }
    assert_eq!(node.call("/a").await.text(), "run 1");
    assert_eq!(counts.calls(), 2);
    until(|| node.in_air() == 0).await;
    let stats = node.layer.stats();
    assert_eq!((stats.owner, stats.follower_local), (2, 19));
}

#[tokio::test(start_paused = true)]
async fn c1_one_run_a_key_over_three_nodes() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = slow(&counts, ms(300));
    let nodes = [(); 3].map(|()| Node::new(store.clone(), &inner, Config::default()));
    for round in 0..100 {
        let path = format!("/{round}");
        let calls = (0..60).map(|caller| nodes[caller % 3].call(&path));
        for answer in join_all(calls).await {
            assert_eq!(answer.text(), format!("run {round}"));
        }
        assert_eq!(counts.calls(), round + 1);
    }
    let stats = nodes.each_ref().map(|node| node.layer.stats());
    assert_eq!(stats.iter().map(|stats| stats.owner).sum::<u64>(), 100);
    assert_eq!(stats.iter().map(|stats| stats.follower_remote).sum::<u64>(), 4000);
    assert!(counts.tokens.lock().unwrap().iter().all(Option::is_some));
}

#[tokio::test(start_paused = true)]
async fn d5_a_follower_waits_however_long_the_run_takes() {
    let store = MemoryStore::new();
    for time in [ms(150), ms(500), ms(5000), ms(60_000)] {
        let counts = Arc::<Counts>::default();
        let inner = slow(&counts, time);
        let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
        let owner = a.call("/a");
        until(|| counts.calls() == 1).await;
        let follower = b.call("/a");
        assert_eq!(owner.await.text(), "run 0");
        assert_eq!(follower.await.text(), "run 0");
        assert_eq!(counts.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_caller_elsewhere_shares_a_run_of_many_leases() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = slow(&counts, LEASE * 4);
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
    let mut calls = Vec::new();
    for node in [&a, &b, &a, &b] {
        calls.push(node.call("/a"));
        tokio::time::sleep(LEASE).await;
    }
    for answer in join_all(calls).await {
        assert_eq!(answer.text(), "run 0");
    }
    assert_eq!(counts.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn different_keys_do_not_wait_for_each_other() {
    let counts = Arc::<Counts>::default();
    let node = Node::new(MemoryStore::new(), &slow(&counts, ms(100)), Config::default());
    let paths: Vec<_> = (0..1000).map(|nth| format!("/{nth}")).collect();
    let answers = join_all(paths.iter().map(|path| node.call(path))).await;
    assert!(answers.iter().all(|answer| answer.took <= ms(110)));
    assert_eq!(counts.calls(), 1000);
}

#[tokio::test(start_paused = true)]
async fn reuse_serves_who_comes_within_the_window() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = slow(&counts, ms(100));
    let config = Config::builder().reuse(ms(2000)).build().unwrap();
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, config.clone()));
    assert_eq!(a.call("/a").await.text(), "run 0");
    let reused = b.call("/a").await;
    assert_eq!((reused.text(), reused.took), ("run 0", ms(0)));
    assert_eq!(reused.headers["cache-status"], "tower-singleflight; hit");
    assert_eq!(reused.headers["age"], "0");
    tokio::time::sleep(ms(1500)).await;
    assert_eq!(b.call("/a").await.headers["age"], "1");
    tokio::time::sleep(ms(501)).await;
    assert_eq!(b.call("/a").await.text(), "run 1");
}

/// The memory of a flight is given back, whatever became of it.
#[tokio::test(start_paused = true)]
async fn c4_cancelled_callers_leave_nothing_behind() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let node = Node::new(store.clone(), &slow(&counts, ms(10_000)), Config::default());
    for batch in 0..1000 {
        let paths: Vec<_> = (0..100).map(|nth| format!("/{batch}/{nth}")).collect();
        let calls: Vec<_> = paths.iter().map(|path| node.call(path)).collect();
        tokio::time::sleep(ms(1)).await;
        calls.into_iter().for_each(Call::hang_up);
    }
    until(|| node.in_air() == 0).await;
    assert_eq!(counts.dropped(), counts.calls());
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(store.len(), 0);
}
