//! Ends that meet: a lease's and its run's, a runtime's and its flights'.

use std::{sync::Arc, time::Duration};

use tower_singleflight::{Config, MemoryStore};

use crate::rig::*;

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
