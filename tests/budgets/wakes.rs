//! Who waits costs no time.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use http::Method;
use http_body_util::BodyExt;
use tower::{Layer, Service};

use crate::support::{Gated, layer, look, request, runtime};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<F: Future>(future: Pin<&mut F>, count: &Arc<Count>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(count))))
}

/// Callers that wait for a minute are woken by the answer and by nothing else: not by
/// others who come and go, nor by the beats of a lease.
#[test]
fn a_waiting_caller_is_woken_once() {
    let runtime = runtime();
    let inner = Gated::default();
    let embedded = layer().layer(inner.clone());
    let leased = layer().store(tower_singleflight::MemoryStore::new()).layer(inner.clone());
    for mut service in [embedded, leased] {
        let _entered = runtime.enter();
        let mut first = Box::pin(service.call(request(Method::GET)));
        assert!(look(first.as_mut()).is_pending());
        let count = Arc::new(Count::default());
        let mut waiter = Box::pin(service.call(request(Method::GET)));
        assert!(poll(waiter.as_mut(), &count).is_pending());
        for _ in 0..60 {
            let mut other = Box::pin(service.call(request(Method::GET)));
            assert!(look(other.as_mut()).is_pending());
            runtime.block_on(tokio::time::sleep(Duration::from_secs(1)));
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        inner.gate.notify_one();
        drop(runtime.block_on(first).unwrap());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        let response = match poll(waiter.as_mut(), &count) {
            Poll::Ready(response) => response.unwrap(),
            Poll::Pending => panic!("woken for nothing"),
        };
        assert!(runtime.block_on(response.into_body().collect()).is_ok());
    }
}
