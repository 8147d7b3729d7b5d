//! What the benches share.
#![allow(dead_code, reason = "each bench uses its own part")]

#[path = "../../tests/support/redis_server.rs"]
pub(crate) mod redis_server;

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use tokio::sync::Notify;
use tower::Service;

pub(crate) type Body = Full<Bytes>;

pub(crate) fn get(path: &str) -> Request<Body> {
    Request::get(path)
        .header("host", "a.test")
        .header("accept", "application/json")
        .header("authorization", "Bearer 0123456789abcdef")
        .header("user-agent", "bench")
        .body(Body::default())
        .expect("a request")
}

/// Answers 64 bytes: at once, or when the gate opens.
#[derive(Clone, Default)]
pub(crate) struct Inner {
    gate: Option<Arc<Notify>>,
}

impl Inner {
    pub(crate) fn gated(gate: &Arc<Notify>) -> Self {
        Self { gate: Some(Arc::clone(gate)) }
    }
}

impl Service<Request<Body>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let gate = self.gate.clone();
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.notified().await;
            }
            Ok(Response::new(Body::new(Bytes::from_static(&[b'a'; 64]))))
        })
    }
}
