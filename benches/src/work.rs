//! The work that is shared: a service that answers so many bytes, and requests for it.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::sync::Semaphore;
use tower::Service;
use tower_singleflight::Key;

pub type Body = Full<Bytes>;

/// A request as an API gets it.
pub fn get(path: &str) -> Request<Body> {
    Request::get(path)
        .header("host", "a.test")
        .header("accept", "application/json")
        .header("authorization", "Bearer 0123456789abcdef")
        .header("user-agent", "bench")
        .body(Body::default())
        .expect("a request")
}

/// The least key that a service could do with.
pub fn path(request: &Request<Body>) -> Option<Key> {
    Some(Key::from(request.uri().path()))
}

/// Answers so many bytes: at once, or when the gate lets it.
#[derive(Clone, Debug)]
pub struct Inner {
    body: Bytes,
    gate: Option<Arc<Semaphore>>,
}

impl Inner {
    pub fn new(bytes: usize) -> Self {
        Self { body: vec![b'a'; bytes].into(), gate: None }
    }

    /// Takes a permit before it answers.
    #[must_use]
    pub fn behind(mut self, gate: &Arc<Semaphore>) -> Self {
        self.gate = Some(Arc::clone(gate));
        self
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
        let Self { body, gate } = self.clone();
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.acquire().await.expect("an open gate").forget();
            }
            Ok(Response::new(Body::new(body)))
        })
    }
}

/// Reads an answer to its end, and gives its first frame.
pub async fn read<B>(answer: Response<B>) -> Bytes
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Unpin,
{
    let mut body = answer.into_body();
    let first = body.frame().await.expect("a frame").expect("no error");
    while let Some(frame) = body.frame().await {
        frame.expect("no error");
    }
    first.into_data().expect("data")
}
