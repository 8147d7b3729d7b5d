//! Bodies are shared, and not copied.

use http::Method;
use http_body_util::BodyExt;
use tower::{Layer, Service};

use crate::support::{Gated, layer, look, request, runtime};

const MIB: usize = 1024 * 1024;

#[test]
fn all_callers_read_the_bytes_that_inner_gave() {
    let runtime = runtime();
    let answer = vec![b'a'; MIB].into();
    let inner = Gated { answer, ..Gated::default() };
    let mut service = layer().layer(inner.clone());
    let _entered = runtime.enter();
    let mut callers: Vec<_> =
        (0..100).map(|_| Box::pin(service.call(request(Method::GET)))).collect();
    callers.iter_mut().for_each(|caller| assert!(look(caller.as_mut()).is_pending()));
    inner.gate.notify_one();
    let used = allocation_counter::measure(|| {
        for caller in callers.drain(..) {
            let mut body = runtime.block_on(caller).unwrap().into_body();
            let frame = runtime.block_on(body.frame()).unwrap().unwrap();
            let bytes = frame.into_data().unwrap();
            assert_eq!((bytes.as_ptr(), bytes.len()), (inner.answer.as_ptr(), MIB));
            assert!(runtime.block_on(body.frame()).is_none());
        }
    });
    assert!(used.bytes_max < MIB as u64, "{used:?}");
}
