//! Bodies are shared, and not copied.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::watch;
use tower::{Layer, Service, service_fn};
use tower_singleflight::{Config, Delivery};

use crate::support::{Body, Gated, Prompt, layer, look, request, runtime};

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

/// Also while it comes, and by whoever joins in the middle.
#[test]
fn all_callers_read_the_pieces_that_inner_gave() {
    const PIECES: usize = 4;
    let runtime = runtime();
    let config = Config::builder().delivery(Delivery::Streaming).build().unwrap();
    let pieces = [(); PIECES].map(|()| Bytes::from(vec![b'a'; MIB / 4]));
    let (open, gate) = watch::channel(0);
    let given = pieces.clone();
    let mut service = layer().config(config).layer(service_fn(move |_: Request<Body>| {
        let pieces = given.clone().into_iter().enumerate();
        let frames = futures_util::stream::unfold((pieces, gate.clone()), |mut on| async move {
            let (n, piece) = on.0.next()?;
            on.1.wait_for(|open| *open > n).await.unwrap();
            Some((Ok::<_, Infallible>(Frame::data(piece)), on))
        });
        async { Ok::<_, Infallible>(Response::new(StreamBody::new(Box::pin(frames)))) }
    }));
    let _entered = runtime.enter();
    let mut bodies = Vec::new();
    for (n, piece) in pieces.iter().enumerate() {
        bodies.push(runtime.block_on(service.call(request(Method::GET))).unwrap().into_body());
        open.send_replace(n + 1);
        let body = &mut bodies[0];
        let frame = runtime.block_on(body.frame()).unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame.as_ptr(), piece.as_ptr());
    }
    for mut body in bodies.drain(1..) {
        for piece in &pieces {
            let frame = runtime.block_on(body.frame()).unwrap().unwrap().into_data().unwrap();
            assert_eq!((frame.as_ptr(), frame.len()), (piece.as_ptr(), piece.len()));
        }
    }
}

/// What is held is one copy, that holds on to nothing of inner's, and all who use it read it.
#[test]
fn what_is_held_is_one_copy_for_all() {
    let runtime = runtime();
    let config = Config::builder().reuse(Duration::from_secs(10)).build().unwrap();
    let layer = layer().config(config);
    let inner = Prompt::new(MIB / 4);
    let mut service = layer.layer(inner.clone());
    let mut ask = || {
        runtime.block_on(async {
            let mut body = service.call(request(Method::GET)).await.unwrap().into_body();
            body.frame().await.unwrap().unwrap().into_data().unwrap()
        })
    };
    assert_eq!(ask().as_ptr(), inner.0.as_ptr());
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    let used = [(); 3].map(|()| ask());
    assert_eq!(layer.stats().reused_local, 3);
    assert!(used.windows(2).all(|pair| pair[0].as_ptr() == pair[1].as_ptr()));
    assert_eq!(used[0].len(), MIB / 4);
}
