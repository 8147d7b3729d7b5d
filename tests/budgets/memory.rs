//! The memory that a waiting caller holds.

use allocation_counter::measure;
use http::Method;
use tower::{Layer, Service};

use crate::support::{Gated, layer, look, request, runtime};

const WAITERS: usize = 1000;
/// Bytes for each, beside its request.
const ALLOWED: usize = 640;

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
