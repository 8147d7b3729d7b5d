//! Auto traits: nothing is asked to be `Sync` that need not be.

use std::{
    cell::Cell,
    fmt,
    future::Future,
    marker::{PhantomData, PhantomPinned},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tower::{BoxError, Layer, Service, ServiceExt};
use tower_singleflight::{
    Bypass, HttpCodec, HttpKey, Key, KeyExtractor, ResponseBody, ResponseFuture, SingleFlight,
    SingleFlightLayer,
};

/// `Send`, and not `Sync`.
type NotSync = PhantomData<Cell<()>>;

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}
fn is_unpin<T: Unpin>() {}
fn is_clone<T: Clone>() {}

pin_project_lite::pin_project! {
    /// A body that is neither `Sync` nor `Unpin`, whose data is no `Bytes`.
    struct Hostile {
        left: u8,
        not_sync: NotSync,
        #[pin]
        pinned: PhantomPinned,
    }
}

fn hostile(left: u8) -> Hostile {
    Hostile { left, not_sync: PhantomData, pinned: PhantomPinned }
}

struct Data(Bytes, NotSync);

impl Buf for Data {
    fn remaining(&self) -> usize {
        self.0.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.0.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }
}

#[derive(Debug)]
struct Failed(NotSync);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed")
    }
}

impl Body for Hostile {
    type Data = Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data>, BoxError>>> {
        let left = self.project().left;
        if *left == 0 {
            return Poll::Ready(None);
        }
        *left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Data(Bytes::from_static(b"x"), PhantomData)))))
    }
}

#[derive(Clone)]
struct Inner(NotSync);

struct Call(NotSync, PhantomPinned);

impl Future for Call {
    type Output = Result<Response<Hostile>, Failed>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(Response::new(hostile(3))))
    }
}

impl Service<Request<Hostile>> for Inner {
    type Response = Response<Hostile>;
    type Error = Failed;
    type Future = Call;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Hostile>) -> Call {
        Call(PhantomData, PhantomPinned)
    }
}

#[derive(Clone)]
struct AnyBody;

impl<B> KeyExtractor<Request<B>> for AnyBody {
    fn extract(&self, request: &Request<B>) -> Result<Key, Bypass> {
        HttpKey::new().extract(request)
    }

    fn covers_body(&self) -> bool {
        true
    }
}

#[test]
fn auto_traits() {
    is_send::<SingleFlightLayer<HttpKey>>();
    is_sync::<SingleFlightLayer<HttpKey>>();
    is_clone::<SingleFlightLayer<HttpKey>>();
    is_unpin::<SingleFlightLayer<HttpKey>>();

    is_send::<SingleFlight<Inner, HttpKey>>();
    is_clone::<SingleFlight<Inner, HttpKey>>();
    is_send::<ResponseFuture<Inner, Request<Hostile>, HttpKey, HttpCodec>>();
    is_send::<ResponseBody<Hostile>>();
    // With a service that is `Sync` the layer's is too.
    is_sync::<SingleFlight<(), HttpKey>>();
    is_sync::<ResponseBody<http_body_util::Full<Bytes>>>();
}

#[tokio::test]
async fn nothing_need_be_sync() {
    let service = SingleFlightLayer::new(AnyBody).layer(Inner(PhantomData));
    for path in ["/", "/no-host"] {
        let uri = if path == "/" { "http://a.test/" } else { path };
        let call = service.clone().oneshot(Request::get(uri).body(hostile(1)).unwrap());
        let body = tokio::spawn(async move { call.await.unwrap().into_body().collect().await });
        assert_eq!(body.await.unwrap().unwrap().to_bytes(), "xxx");
    }
}
