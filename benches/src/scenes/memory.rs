//! Allocations of a call, and the memory of a caller that waits. For the binary that
//! counts what is allocated.

use std::sync::Arc;

use http::Method;
use tokio::sync::Semaphore;
use tower_singleflight::{HttpKey, key_fn};

use super::{
    hot::{CALLERS, Crowd},
    one_thread,
};
use crate::{
    peers::{self, Bare, Ours, Peer, Visit},
    row::{Bound, Goal, point},
    work::{Inner, get, path},
};

/// What was allocated so far.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    pub allocations: usize,
    /// In use now. Threads may free while it is read.
    pub bytes: i64,
}

pub fn run(heap: fn() -> Heap) {
    let bare = allocations(heap, &Bare::new(Inner::new(64)), &Method::PUT);
    let layer = Ours::new(Inner::new(64), HttpKey::new());
    let bypass = allocations(heap, &layer, &Method::PUT);
    Goal {
        group: "In process",
        what: "bypass",
        of: "allocations over the bare service",
        most: Bound::Exactly(0.0),
        measured: bypass - bare,
        detail: format!("{bypass} to {bare}"),
    }
    .print();
    let lone = allocations(heap, &Ours::new(Inner::new(64), key_fn(path)), &Method::GET);
    Goal {
        group: "In process",
        what: "lone caller",
        of: "allocations over the bare service",
        most: Bound::None,
        measured: lone - bare,
        detail: format!("{lone} to {bare}"),
    }
    .print();
    let gate = Arc::new(Semaphore::new(0));
    let mut waiting = Waiting { heap, gate: Arc::clone(&gate) };
    peers::each(&key_fn(path), || Inner::new(64).behind(&gate), &mut waiting);
}

/// A call's.
fn allocations<P: Peer>(heap: fn() -> Heap, peer: &P, method: &Method) -> f64 {
    const CALLS: usize = 1000;
    one_thread().block_on(async {
        let mut counts = [0; 2];
        for count in &mut counts {
            let mut requests: Vec<_> = (0..CALLS).map(|_| get("/a")).collect();
            for request in &mut requests {
                *request.method_mut() = method.clone();
            }
            let before = heap().allocations;
            for request in requests {
                peer.call(request).await;
            }
            *count = heap().allocations - before;
        }
        // The first round warms up.
        counts[1] as f64 / CALLS as f64
    })
}

struct Waiting {
    heap: fn() -> Heap,
    gate: Arc<Semaphore>,
}

impl Visit for Waiting {
    fn visit<P: Peer>(&mut self, peer: P) {
        if P::NAME == "bare service" {
            return;
        }
        let heap = self.heap;
        let bytes = one_thread().block_on(async {
            // In place before anybody is counted.
            self.gate.add_permits(1);
            peer.call(get("/a")).await;
            let crowd = Crowd::default();
            let before = heap().bytes;
            let requests: Vec<_> = (0..CALLERS).map(|_| get("/a")).collect();
            let calls = crowd.enter(&peer, requests);
            crowd.all_wait().await;
            // The handles are this bench's own.
            let bytes = heap().bytes - before - size_of_val(&calls[..]) as i64;
            self.gate.add_permits(1);
            for call in calls {
                call.await.expect("an answer");
            }
            bytes as f64 / f64::from(CALLERS)
        });
        let ours = P::NAME == "tower-singleflight";
        // Only ours keeps the request of a caller that waits, to run it if need be.
        let beside = bytes - if ours { request(heap) } else { 0.0 };
        point("hot-bytes", "bytes", P::NAME, beside);
        if ours {
            Goal {
                group: "In process",
                what: "a caller that waits, of 10,000",
                of: "bytes, beside its request",
                most: Bound::AtMost(640.0),
                measured: beside,
                detail: format!("{bytes:.0} with it"),
            }
            .print();
        }
    }
}

/// The bytes of a request, by itself.
pub(super) fn request(heap: fn() -> Heap) -> f64 {
    let mut requests = Vec::with_capacity(1000);
    let before = heap().bytes;
    requests.extend((0..1000).map(|_| get("/a")));
    let outside = (heap().bytes - before) as f64 / 1000.0;
    outside + size_of_val(&requests[0]) as f64
}
