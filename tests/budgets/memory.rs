//! The memory that a caller holds.

use allocation_counter::measure;
use http::Method;
use tower::{Layer, Service};

use crate::support::{Gated, Prompt, layer, look, request, runtime};

const WAITERS: usize = 1000;
/// Bytes for each, beside its request.
const ALLOWED: usize = 640;

/// Bytes of a caller's future, beside its request and the service: it has room for these, so
/// that a bypass allocates nothing.
const FUTURE: usize = 96;
/// The most bytes that a lone caller has in use at once, its request and answer with them.
const LONE: usize = 5_000;

#[test]
fn a_callers_future_is_small() {
    let mut service = layer().layer(Gated::default());
    let request = request(Method::GET);
    let given = size_of_val(&request) + size_of::<Gated>();
    let _entered = runtime().enter();
    assert!(size_of_val(&service.call(request)) <= given + FUTURE);
}

#[test]
fn a_lone_caller_needs_little() {
    let runtime = runtime();
    let mut service = layer().layer(Prompt::new(64));
    let mut ask = || {
        drop(runtime.block_on(async { service.call(request(Method::GET)).await }).unwrap());
    };
    ask();
    let used = measure(ask);
    assert!(used.bytes_max <= LONE as u64, "{used:?}");
}

#[test]
fn a_waiting_caller_holds_little_beside_its_request() {
    let runtime = runtime();
    let mut service = layer().layer(Gated::default());
    let _entered = runtime.enter();
    let mut first = Box::pin(service.call(request(Method::GET)));
    assert!(look(first.as_mut()).is_pending());
    // What they hold elsewhere is there before it is counted.
    let mut requests: Vec<_> = (0..WAITERS).map(|_| request(Method::GET)).collect();
    let mut waiters = Vec::with_capacity(WAITERS);
    let waiting = measure(|| {
        for request in requests.drain(..) {
            let mut waiter = Box::pin(service.call(request));
            assert!(look(waiter.as_mut()).is_pending());
            waiters.push(waiter);
        }
    });
    let each = usize::try_from(waiting.bytes_current).unwrap() / WAITERS;
    let inline = size_of_val(&request(Method::GET));
    assert!(each - inline <= ALLOWED, "{each} bytes, {inline} of them the request");
}
