use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use tokio::{runtime::Runtime, sync::Notify};
use tower::Service;
use tower_singleflight::{HttpKey, SingleFlightLayer};

pub(crate) type Body = Full<Bytes>;

/// A runtime of one thread with a clock that moves by itself where all wait.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
}

pub(crate) fn layer() -> SingleFlightLayer<HttpKey> {
    SingleFlightLayer::new(HttpKey::new())
}

pub(crate) fn request(method: Method) -> Request<Body> {
    let request = Request::builder().method(method).uri("/a").header("host", "a.test");
    request.header("accept", "text/plain").body(Body::default()).expect("a request")
}

/// Polls once.
pub(crate) fn look<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The output of a future that is ready at once.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match look(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("not ready at once"),
    }
}

/// Answers at once, and allocates nothing for it.
#[derive(Clone)]
pub(crate) struct Prompt(pub(crate) Bytes);

impl Prompt {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(vec![b'a'; bytes].into())
    }
}

impl Service<Request<Body>> for Prompt {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        ready(Ok(Response::new(Body::new(self.0.clone()))))
    }
}

/// Answers one request for each time that its gate is opened.
#[derive(Clone, Default)]
pub(crate) struct Gated {
    pub(crate) gate: Arc<Notify>,
    pub(crate) answer: Bytes,
}

impl Service<Request<Body>> for Gated {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let Self { gate, answer } = self.clone();
        Box::pin(async move {
            gate.notified().await;
            Ok(Response::new(Body::new(answer)))
        })
    }
}
