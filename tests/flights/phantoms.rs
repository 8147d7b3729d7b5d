//! Leases that are granted to nobody: the one who asked has given up waiting by then.
//! An owner that was cut off for a lease must not take that for a successor.

use std::sync::Arc;

use tower_singleflight::{Config, FailureKind, MemoryStore};

use crate::rig::*;

/// An owner whose look at the store, once its lease is over, gets there after the lease
/// of a follower was granted.
struct Thaw {
    counts: Arc<Counts>,
    lines: [Line; 2],
    nodes: [Node; 2],
    owner: Call,
    follower: Call,
}

impl Thaw {
    /// The run takes `time`, and begins now. Nobody can run its request again.
    async fn new(time: std::time::Duration) -> Self {
        let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
        let lines = [Line::new(&store), Line::new(&store)];
        let inner = slow(&counts, time);
        let nodes = lines.clone().map(|line| Node::new(line, &inner, Config::default()));
        let owner = nodes[0].call("/a");
        until(|| counts.calls() == 1).await;
        let follower = nodes[1].call("/a");
        tokio::time::sleep(ms(4500)).await;
        lines[0].cut();
        // Its lease is over for itself after 6.5 s, for the store after 7 s.
        tokio::time::sleep(ms(1900)).await;
        lines[0].slow(ms(700));
        tokio::time::sleep(ms(200)).await;
        lines[0].heal();
        Self { counts, lines, nodes, owner, follower }
    }

    /// What is granted to the follower is not heard of, nor let go for now.
    fn loses_the_grant(&self) {
        self.lines[1].lose_join_answer();
        self.lines[1].lose_beats();
    }

    async fn all_is_over(&self) {
        until(|| self.nodes.iter().all(|node| node.in_air() == 0)).await;
    }
}

/// Nobody runs under it: the run that is there is good.
#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_heard_of_is_no_successor() {
    for is_let_go in [true, false] {
        let thaw = Thaw::new(ms(20_000)).await;
        thaw.loses_the_grant();
        tokio::time::sleep(ms(1500)).await;
        thaw.lines[0].slow(ms(0));
        if is_let_go {
            thaw.lines[1].find_beats();
        }
        let Thaw { counts, nodes, owner, follower, .. } = &mut { thaw };
        let answer = owner.await;
        assert_eq!((answer.status, answer.kind()), (200, None), "let go: {is_let_go}");
        assert_eq!((answer.text(), answer.took), ("run 0", ms(20_000)));
        // Alone: nothing of that run is published.
        assert_eq!(follower.await.text(), "run 1");
        assert_eq!((counts.calls(), counts.dropped()), (2, 0));
        assert_eq!((nodes[0].layer.stats().leases_lost, nodes[1].layer.stats().takeovers), (1, 0));
        until(|| nodes.iter().all(|node| node.in_air() == 0)).await;
    }
}

/// A successor that runs is seen by its renewals: the run that was cut off ends.
#[tokio::test(start_paused = true)]
async fn a_successor_that_runs_is_followed() {
    let thaw = Thaw::new(ms(20_000)).await;
    let (counts, began) = (Arc::clone(&thaw.counts), tokio::time::Instant::now());
    until(|| counts.calls() == 2).await;
    thaw.lines[0].slow(ms(0));
    until(|| counts.dropped() == 1).await;
    assert!(began.elapsed() <= ms(500) + BEAT * 3, "{:?}", began.elapsed());
    thaw.all_is_over().await;
    let Thaw { nodes, owner, follower, .. } = thaw;
    assert_eq!((owner.await.text(), nodes[1].layer.stats().takeovers), ("run 1", 1));
    assert_eq!(follower.await.text(), "run 1");
    assert_eq!(counts.max_running.load(std::sync::atomic::Ordering::SeqCst), 2);
}

/// Whoever hangs up meanwhile leaves nothing to wait for.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_the_end_of_a_doubt() {
    let thaw = Thaw::new(ms(20_000)).await;
    thaw.loses_the_grant();
    tokio::time::sleep(ms(1000)).await;
    let Thaw { counts, nodes, owner, follower, .. } = thaw;
    assert_eq!(counts.dropped(), 0);
    owner.hang_up();
    until(|| counts.dropped() == 1).await;
    until(|| nodes[0].in_air() == 0).await;
    assert_eq!(follower.await.text(), "run 1");
    assert_eq!(nodes[1].call("/b").await.kind(), None::<FailureKind>);
}
