//! Whoever registers with the keeper while its loop is about to sleep is heard.

use std::time::Duration;

use shuttle::{future::block_on, thread};

use super::*;
use crate::{
    store::{Beat, BeatReply, BoxFuture, MemoryStore, StoreError},
    sync::{Mutex, in_many_orders},
};

const TERMS: Terms = Terms {
    lease: Duration::from_secs(3),
    beat: Duration::from_secs(1),
    margin: Duration::from_millis(500),
    hard_timeout: Duration::from_secs(20),
    idle_timeout: Duration::from_secs(6),
};

/// Answers everything, and counts it.
struct Answers(Arc<Mutex<usize>>);

impl Heartbeat for Answers {
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>> {
        Box::pin(async {
            *self.0.lock().unwrap() += batch.len();
            batch.iter().map(|_| Ok(BeatReply::Gone)).collect()
        })
    }
}

/// Each errand is sent without a step of the clock, whoever comes while the loop goes
/// to sleep, and the loop ends when the handle is gone.
#[test]
fn an_errand_wakes_the_keeper() {
    in_many_orders(|| {
        let handle = Arc::new(KeeperHandle::new(TERMS, Arc::new(MemoryStore::new())));
        let sent = Arc::new(Mutex::new(0));
        let line = Box::new(Answers(Arc::clone(&sent)));
        let running = Running(Arc::clone(&handle.shared));
        let keeper = thread::spawn(move || block_on(keep(running, line)));
        let errands = [1, 2].map(|n| {
            let handle = Arc::clone(&handle);
            thread::spawn(move || {
                let key = KeyDigest::from_bytes([n; 32]);
                handle.forget(key, FlightId::from_u128(1), WaiterId::from_u128(1));
                block_on(handle.quiet());
            })
        });
        errands.into_iter().for_each(|errand| errand.join().unwrap());
        assert_eq!(*sent.lock().unwrap(), 4);
        drop(handle);
        keeper.join().unwrap();
    });
}
