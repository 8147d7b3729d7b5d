//! Forgetting a key in mid-flight.

use std::sync::Arc;

use futures_util::future::join_all;
use http::Request;
use tower_singleflight::{Config, MemoryStore};

use crate::rig::*;

fn runs(counts: &Arc<Counts>, first: u64, others: u64) -> InnerService {
    inner(counts, move |nth| async move {
        tokio::time::sleep(ms(if nth == 0 { first } else { others })).await;
        answer(format!("run {nth}"))
    })
}

async fn forget(node: &Node, path: &str) {
    let request = Request::get(format!("http://a.test{path}")).body(Body::default()).unwrap();
    node.layer.forget(&request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c2_the_end_of_a_forgotten_run_does_not_touch_the_next() {
    let counts = Arc::<Counts>::default();
    let node = Node::new(MemoryStore::new(), &runs(&counts, 200, 500), Config::default());
    let first = node.call("/a");
    tokio::time::sleep(ms(50)).await;
    forget(&node, "/a").await;
    let second = node.call("/a");
    assert_eq!(first.await.text(), "run 0");
    tokio::time::sleep(ms(100)).await;
    let third = node.call("/a");
    assert_eq!(second.await.text(), "run 1");
    assert_eq!(third.await.text(), "run 1");
    assert_eq!(counts.calls(), 2);
    until(|| node.in_air() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn c9_a_follower_of_the_next_flight_never_gets_the_forgotten_answer() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = runs(&counts, 200, 500);
    let config = Config::builder().reuse(ms(10_000)).build().unwrap();
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, config.clone()));
    assert_eq!(a.call("/a").await.text(), "run 0");
    assert_eq!(b.call("/a").await.text(), "run 0", "reused");
    forget(&a, "/a").await;
    let owner = a.call("/a");
    until(|| counts.calls() == 2).await;
    assert_eq!(b.call("/a").await.text(), "run 1");
    assert_eq!(owner.await.text(), "run 1");
}

#[tokio::test(start_paused = true)]
async fn followers_elsewhere_move_to_the_next_flight() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = runs(&counts, 10_000, 500);
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
    let owner = a.call("/a");
    until(|| counts.calls() == 1).await;
    let followers: Vec<_> = (0..5).map(|_| b.call("/a")).collect();
    until(|| b.in_air() == 1).await;
    tokio::time::sleep(ms(100)).await;
    // Forgotten by whoever: here by the process that follows.
    forget(&b, "/a").await;
    let later = b.call("/a");
    for answer in join_all(followers).await {
        assert_eq!(answer.text(), "run 1");
        assert!(answer.took < ms(1000), "{:?}", answer.took);
    }
    assert_eq!(later.await.text(), "run 1");
    assert_eq!(owner.await.text(), "run 0", "its own callers keep it");
    // Not published, and not counted as fenced.
    assert_eq!(a.layer.stats().fenced, 0);
    assert_eq!(counts.calls(), 2);
    until(|| a.in_air() + b.in_air() == 0).await;
}

/// Of an answer that is used again, also where it was on its way here.
#[tokio::test(start_paused = true)]
async fn c9_who_comes_after_forget_has_no_answer_from_before() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = runs(&counts, 0, 0);
    let reuse = Config::builder().reuse(ms(20_000)).local_results(0);
    let config = reuse.build().unwrap();
    let line = Line::new(&store);
    let near = Node::new(line.clone(), &inner, config.clone());
    let far = Node::new(store, &inner, config);
    assert_eq!(far.call("/a").await.text(), "run 0");
    line.answer_join_late(ms(20));
    let early = near.call("/a");
    tokio::time::sleep(ms(10)).await;
    forget(&near, "/a").await;
    assert_eq!(near.call("/a").await.text(), "run 1");
    early.await.text();
}
