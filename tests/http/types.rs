//! Auto traits: nothing is asked to be `Sync` that need not be.

use std::{
    cell::Cell,
    fmt,
    future::Future,
    marker::{PhantomData, PhantomPinned},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tower::{BoxError, Layer, Service, ServiceExt};
use tower_singleflight::{
    Bypass, FlightError, HttpCodec, HttpKey, Key, KeyExtractor, ResponseBody, ResponseFuture,
    SingleFlight, SingleFlightLayer, Store, ValueCodec,
    key::{BodyKey, Json, ReadBody},
    store::{Heartbeat, Scan, Session, Vigil},
};

/// `Send`, and not `Sync`.
type NotSync = PhantomData<Cell<()>>;

/// Neither.
type NotSend = PhantomData<*const ()>;

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

impl<B: Body> Service<Request<B>> for Inner {
    type Response = Response<Hostile>;
    type Error = Failed;
    type Future = Call;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Call {
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

pin_project_lite::pin_project! {
    /// As hostile, and made of a body that was read.
    struct Given {
        kind: Kind,
        #[pin]
        pinned: PhantomPinned,
    }
}

enum Kind {
    Sent(Pin<Box<Hostile>>),
    Read(Pin<Box<ReadBody<Given>>>),
}

fn given(kind: Kind) -> Given {
    Given { kind, pinned: PhantomPinned }
}

impl Body for Given {
    type Data = Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data>, BoxError>>> {
        match self.project().kind {
            Kind::Sent(body) => body.as_mut().poll_frame(cx),
            Kind::Read(body) => body.as_mut().poll_frame(cx).map(|frame| {
                frame.map(|frame| frame.map(|frame| frame.map_data(|data| Data(data, PhantomData))))
            }),
        }
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
    type Read = HttpKey<BodyKey<fn(ReadBody<Given>) -> Given, Json>>;
    is_send::<ResponseFuture<Inner, Request<Given>, Read, HttpCodec>>();
    is_sync::<SingleFlightLayer<Read>>();
    is_send::<ReadBody<Given>>();
    is_unpin::<ReadBody<Given>>();
    is_sync::<ReadBody<http_body_util::Full<Bytes>>>();
    // What a service's answers are is nothing to the layer.
    is_send::<SingleFlightLayer<HttpKey, ValueCodec<NotSend>>>();
    is_sync::<SingleFlightLayer<HttpKey, ValueCodec<NotSend>>>();
    is_unpin::<SingleFlightLayer<HttpKey, ValueCodec<PhantomPinned>>>();
    is_send::<SingleFlight<Inner, HttpKey, ValueCodec<NotSend>>>();
    is_sync::<SingleFlight<(), HttpKey, ValueCodec<NotSend>>>();
    is_unpin::<SingleFlight<Inner, HttpKey>>();
    is_sync::<FlightError<()>>();
    // What drivers and keepers take along into their tasks.
    is_send::<Box<dyn Session>>();
    is_send::<Box<dyn Heartbeat>>();
    is_send::<Box<dyn Scan>>();
    is_sync::<Box<dyn Vigil>>();
    is_sync::<Arc<dyn Store>>();
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

#[tokio::test]
async fn nothing_of_a_body_that_is_read_need_be_sync() {
    let key = HttpKey::new().raw_body(|body: ReadBody<Given>| given(Kind::Read(Box::pin(body))));
    let service = SingleFlightLayer::new(key).layer(Inner(PhantomData));
    let body = given(Kind::Sent(Box::pin(hostile(3))));
    let request = Request::post("http://a.test/").body(body).unwrap();
    let call = service.oneshot(request);
    let body = tokio::spawn(async move { call.await.unwrap().into_body().collect().await });
    assert_eq!(body.await.unwrap().unwrap().to_bytes(), "xxx");
}
