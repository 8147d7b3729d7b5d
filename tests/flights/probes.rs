//! Keys that are marked private, and how it is found that they are so no longer (row L3).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use futures_util::future::join_all;
use tower_singleflight::{Config, MemoryStore};

use crate::rig::*;

/// Answers after 500 ms: may not be shared while this holds.
fn sometimes_private(counts: &Arc<Counts>, private: &Arc<AtomicBool>) -> InnerService {
    let private = Arc::clone(private);
    inner(counts, move |nth| {
        let private = Arc::clone(&private);
        async move {
            tokio::time::sleep(ms(500)).await;
            let mut response = answer(format!("run {nth}"));
            if private.load(SeqCst) {
                response.headers_mut().insert("cache-control", "no-store".parse().unwrap());
            }
            response
        }
    })
}

struct Fleet {
    counts: Arc<Counts>,
    private: Arc<AtomicBool>,
    nodes: [Node; 2],
}

impl Fleet {
    /// With a mark on `/a`, for a minute.
    async fn marked() -> Self {
        let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
        let private = Arc::new(AtomicBool::new(true));
        let inner = sometimes_private(&counts, &private);
        let config = Config::builder().private_mark(ms(60_000)).build().unwrap();
        let nodes = [(); 2].map(|()| Node::new(store.clone(), &inner, config.clone()));
        assert_eq!(nodes[0].call("/a").await.text(), "run 0");
        until(|| nodes[0].in_air() == 0).await;
        Self { counts, private, nodes }
    }

    /// Asks five times in each process; how many runs that took, and how long.
    async fn ask(&self) -> usize {
        let before = self.counts.calls();
        let calls = self.nodes.iter().flat_map(|node| (0..5).map(|_| node.call("/a")));
        for answer in join_all(calls).await {
            assert!(answer.took < ms(510), "nobody waits: {:?}", answer.took);
        }
        tokio::time::sleep(ms(5)).await;
        self.counts.calls() - before
    }
}

#[tokio::test(start_paused = true)]
async fn l3_one_answer_that_may_be_shared_takes_the_mark_away() {
    let fleet = Fleet::marked().await;
    for _ in 0..3 {
        assert_eq!(fleet.ask().await, 10, "all run at once, the probe too");
    }
    fleet.private.store(false, SeqCst);
    assert_eq!(fleet.ask().await, 10, "nobody follows the probe");
    assert_eq!(fleet.ask().await, 1, "long before the mark runs out");
}

#[tokio::test(start_paused = true)]
async fn l3_a_probe_whose_caller_leaves_is_followed_by_another() {
    let fleet = Fleet::marked().await;
    let probe = fleet.nodes[0].call("/a");
    until(|| fleet.counts.calls() == 2).await;
    // Beside it nobody finds out.
    fleet.private.store(false, SeqCst);
    let alone = fleet.nodes[1].call("/a");
    until(|| fleet.counts.calls() == 3).await;
    tokio::time::sleep(ms(100)).await;
    probe.hang_up();
    assert_eq!(alone.await.text(), "run 2");
    assert_eq!(fleet.ask().await, 10, "the mark stood");
    assert_eq!(fleet.ask().await, 1);
}

#[tokio::test(start_paused = true)]
async fn l3_a_probe_that_fails_leaves_the_mark() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = inner(&counts, |nth| async move {
        tokio::time::sleep(ms(100)).await;
        assert!(nth != 1, "the probe panics");
        let mut response = answer(format!("run {nth}"));
        if nth == 0 {
            response.headers_mut().insert("cache-control", "no-store".parse().unwrap());
        }
        response
    });
    let node = Node::new(store, &inner, Config::default());
    assert_eq!(node.call("/a").await.text(), "run 0");
    assert!(tokio::spawn(node.call("/a")).await.is_err());
    tokio::time::sleep(ms(5)).await;
    let before = counts.calls();
    join_all((0..3).map(|_| node.call("/a"))).await;
    assert_eq!(counts.calls() - before, 3, "the mark stood");
    tokio::time::sleep(ms(5)).await;
    join_all((0..3).map(|_| node.call("/a"))).await;
    assert_eq!(counts.calls() - before, 4);
}
