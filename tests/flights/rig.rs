//! A counting inner service, nodes that share a store, and a store that can be cut.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use tokio::{task::JoinHandle, time::Instant};
use tower::{Layer, ServiceExt, util::BoxCloneSyncService};
use tower_singleflight::{
    Config, Failure, FailureKind, FlightRef, FlightToken, HttpKey, KeyDigest, MemoryStore,
    ResponseBody, SingleFlight, SingleFlightLayer, Store,
    store::{
        Abandoned, Append, Appended, Beat, BeatReply, BoxFuture, Finish, Finished, Heartbeat, Join,
        Joined, Pieces, Pushed, Session, StoreError, StoreErrorKind, StoreState,
    },
};

pub(crate) type Body = Full<Bytes>;
pub(crate) type Reply = UnsyncBoxBody<Bytes, io::Error>;
pub(crate) type InnerService = BoxCloneSyncService<Request<Body>, Response<Reply>, Infallible>;

pub(crate) const LEASE: Duration = Duration::from_secs(3);
pub(crate) const BEAT: Duration = Duration::from_secs(1);

pub(crate) fn ms(ms: u64) -> Duration {
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
        let request = Request::get(format!("http://a.test{path}")).body(Body::default()).unwrap();
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

/// A memory store behind a line that can be cut or be slow, for one node.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    store: MemoryStore,
    cut: Arc<AtomicBool>,
    delay: Arc<AtomicU64>,
    deaf: Arc<AtomicBool>,
    errors: Arc<AtomicUsize>,
    /// Steps that added to a stream.
    pub(crate) appends: Arc<AtomicUsize>,
}

impl Line {
    pub(crate) fn new(store: &MemoryStore) -> Self {
        let (cut, delay, deaf, errors, appends) = Default::default();
        Self { store: store.clone(), cut, delay, deaf, errors, appends }
    }

    /// Each operation of a session comes to the store this late; heartbeats do not.
    pub(crate) fn slow(&self, delay: Duration) {
        self.delay.store(delay.as_millis() as u64, SeqCst);
    }

    async fn travel(&self) -> Result<(), StoreError> {
        let delay = self.delay.load(SeqCst);
        if delay > 0 {
            tokio::time::sleep(ms(delay)).await;
        }
        self.pass().await
    }

    pub(crate) fn cut(&self) {
        self.cut.store(true, SeqCst);
    }

    /// Pushes are lost from now on.
    pub(crate) fn deafen(&self) {
        self.deaf.store(true, SeqCst);
    }

    pub(crate) fn heal(&self) {
        self.cut.store(false, SeqCst);
    }

    /// What every operation over a cut line costs: the operation limit.
    async fn pass(&self) -> Result<(), StoreError> {
        if self.cut.load(SeqCst) {
            tokio::time::sleep(ms(250)).await;
            self.errors.fetch_add(1, SeqCst);
            return Err(StoreError::new(StoreErrorKind::TimedOut, "the line is cut"));
        }
        Ok(())
    }
}

impl Store for Line {
    fn session(&self, key: KeyDigest) -> Box<dyn Session> {
        Box::new(Cuttable(self.clone(), self.store.session(key)))
    }

    fn heartbeat(&self) -> Box<dyn Heartbeat> {
        Box::new(Cuttable(self.clone(), self.store.heartbeat()))
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn state(&self) -> StoreState {
        if self.cut.load(SeqCst) { StoreState::Degraded } else { StoreState::Ok }
    }

    fn errors(&self) -> Vec<(StoreErrorKind, u64)> {
        vec![(StoreErrorKind::TimedOut, self.errors.load(SeqCst) as u64)]
    }
}

struct Cuttable<T: ?Sized>(Line, Box<T>);

impl Session for Cuttable<dyn Session> {
    fn join(&mut self, join: Join) -> BoxFuture<'_, Result<Joined, StoreError>> {
        Box::pin(async {
            self.0.travel().await?;
            self.1.join(join).await
        })
    }

    fn pushed(&mut self) -> BoxFuture<'_, Pushed> {
        Box::pin(async {
            loop {
                let pushed = self.1.pushed().await;
                // Else it is lost on the way.
                if !self.0.cut.load(SeqCst) && !self.0.deaf.load(SeqCst) {
                    return pushed;
                }
            }
        })
    }

    fn fetch(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(async {
            self.0.travel().await?;
            self.1.fetch().await
        })
    }

    fn append(&mut self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        Box::pin(async {
            self.0.travel().await?;
            self.0.appends.fetch_add(1, SeqCst);
            self.1.append(append).await
        })
    }

    fn read(&mut self, flight: FlightRef, from: u64) -> BoxFuture<'_, Result<Pieces, StoreError>> {
        Box::pin(async move {
            self.0.travel().await?;
            self.1.read(flight, from).await
        })
    }

    fn listen(
        &mut self,
        flight: FlightRef,
        lease: Duration,
    ) -> BoxFuture<'_, Result<BeatReply, StoreError>> {
        Box::pin(async move {
            self.0.travel().await?;
            self.1.listen(flight, lease).await
        })
    }

    fn deafen(&mut self) {
        self.1.deafen();
    }

    fn finish(&mut self, finish: Finish) -> BoxFuture<'_, Result<Finished, StoreError>> {
        Box::pin(async {
            self.0.travel().await?;
            self.1.finish(finish).await
        })
    }

    fn abandon(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<Abandoned, StoreError>> {
        Box::pin(async move {
            self.0.travel().await?;
            self.1.abandon(flight).await
        })
    }

    fn forget(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async {
            self.0.pass().await?;
            self.1.forget().await
        })
    }
}

impl Heartbeat for Cuttable<dyn Heartbeat> {
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>> {
        Box::pin(async {
            match self.0.pass().await {
                Ok(()) => self.1.beat(batch).await,
                Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            }
        })
    }
}
