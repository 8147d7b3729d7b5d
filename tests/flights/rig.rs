//! A counting inner service, and nodes that share a store.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use tokio::{task::JoinHandle, time::Instant};
use tower::{Layer, ServiceExt, util::BoxCloneSyncService};
use tower_singleflight::{
    Config, Failure, FailureKind, FlightRole, FlightToken, HttpKey, ResponseBody, SingleFlight,
    SingleFlightLayer, Store,
};

pub(crate) use crate::line::Line;

pub(crate) type Body = Full<Bytes>;
pub(crate) type Reply = UnsyncBoxBody<Bytes, io::Error>;
pub(crate) type InnerService = BoxCloneSyncService<Request<Body>, Response<Reply>, Infallible>;

pub(crate) const LEASE: Duration = Duration::from_secs(3);
pub(crate) const BEAT: Duration = Duration::from_secs(1);

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What all inner services of a test count together.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) calls: AtomicUsize,
    pub(crate) running: AtomicUsize,
    pub(crate) max_running: AtomicUsize,
    pub(crate) dropped: Mutex<Vec<Instant>>,
    pub(crate) tokens: Mutex<Vec<Option<u64>>>,
}

impl Counts {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    /// Counts a run that begins now.
    pub(crate) fn run(self: &Arc<Self>) -> Run {
        let running = self.running.fetch_add(1, SeqCst) + 1;
        self.max_running.fetch_max(running, SeqCst);
        Run(Arc::clone(self), false)
    }

    pub(crate) fn dropped(&self) -> usize {
        self.dropped.lock().unwrap().len()
    }
}

/// A run; dropped before it is finished, it counts as dropped.
pub(crate) struct Run(Arc<Counts>, bool);

impl Run {
    pub(crate) fn finish(mut self) {
        self.1 = true;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
        if !self.1 {
            self.0.dropped.lock().unwrap().push(Instant::now());
        }
    }
}

/// An inner service: `work` gets the number of the run and gives the response.
pub(crate) fn inner<F, Fut>(counts: &Arc<Counts>, work: F) -> InnerService
where
    F: Fn(usize) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<Reply>> + Send + 'static,
{
    let counts = Arc::clone(counts);
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
        let nth = counts.calls.fetch_add(1, SeqCst);
        let token = request.extensions().get::<FlightToken>().map(|token| token.get());
        counts.tokens.lock().unwrap().push(token);
        let run = counts.run();
        let work = work(nth);
        async move {
            let response = work.await;
            run.finish();
            Ok(response)
        }
    }))
}

/// An inner service that takes `time` and says which run it was.
pub(crate) fn slow(counts: &Arc<Counts>, time: Duration) -> InnerService {
    inner(counts, move |nth| async move {
        tokio::time::sleep(time).await;
        answer(format!("run {nth}"))
    })
}

pub(crate) fn answer(text: impl Into<Bytes>) -> Response<Reply> {
    let body = Full::new(text.into()).map_err(|never| match never {});
    Response::new(body.boxed_unsync())
}

pub(crate) fn status(status: u16) -> Response<Reply> {
    let mut response = answer("a");
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// One simulated process.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) service: SingleFlight<InnerService, HttpKey>,
    pub(crate) layer: SingleFlightLayer<HttpKey>,
}

impl Node {
    pub(crate) fn new(store: impl Store, inner: &InnerService, config: Config) -> Self {
        let layer =
            SingleFlightLayer::new(HttpKey::new()).store(store).namespace("test").config(config);
        Self { service: layer.layer(inner.clone()), layer }
    }

    pub(crate) fn call(&self, path: &str) -> Call {
        self.send(Request::get(format!("http://a.test{path}")).body(Body::default()).unwrap())
    }

    pub(crate) fn send(&self, request: Request<Body>) -> Call {
        let service = self.service.clone();
        let started = Instant::now();
        Call(tokio::spawn(async move {
            let response = service.oneshot(request).await.unwrap();
            Answer::read(response, started).await
        }))
    }

    pub(crate) fn in_air(&self) -> usize {
        self.layer.flights().len()
    }
}

/// A caller; dropped, it hangs up.
pub(crate) struct Call(JoinHandle<Answer>);

impl Call {
    pub(crate) fn hang_up(self) {
        drop(self);
    }
}

impl Future for Call {
    type Output = Answer;

    fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(Result::unwrap)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Result<Bytes, String>,
    pub(crate) role: Option<FlightRole>,
    pub(crate) failure: Option<Failure>,
    pub(crate) took: Duration,
}

impl Answer {
    async fn read(response: Response<ResponseBody<Reply>>, started: Instant) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await;
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.map(|body| body.to_bytes()).map_err(|error| error.to_string()),
            role: parts.extensions.get().copied(),
            failure: parts.extensions.get().cloned(),
            took: started.elapsed(),
        }
    }

    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.body.as_ref().expect("a whole body")).unwrap()
    }

    pub(crate) fn kind(&self) -> Option<FailureKind> {
        self.failure.as_ref().map(Failure::kind)
    }
}

/// Waits, under the paused clock, until `holds`; the clock goes on a millisecond a
/// look. Panics after ten minutes of it.
#[track_caller]
pub(crate) fn until(holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let at = std::panic::Location::caller();
    async move {
        let mut holds = holds;
        for _ in 0..600_000 {
            if holds() {
                return;
            }
            tokio::time::sleep(ms(1)).await;
        }
        panic!("never came true: {at}");
    }
}
