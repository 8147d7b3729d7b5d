//! An inner service that counts, callers, and nodes of a simulated fleet.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use tokio::{sync::watch, time::timeout};
use tower::{BoxError, Service, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_singleflight::{Bypass, Failure, FlightRole, HttpKey, MemoryStore, SingleFlightLayer};

pub(crate) type Full = http_body_util::Full<Bytes>;
pub(crate) type Req = Request<Full>;
pub(crate) type Inner<B = Full, E = Infallible> = BoxCloneSyncService<Req, Response<B>, E>;

pub(crate) const ALONE: Option<FlightRole> = Some(FlightRole::Bypass(Bypass::Unshared));

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Counts runs of an inner.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<Counters>);

#[derive(Default)]
struct Counters {
    total: AtomicUsize,
    running: AtomicUsize,
    highest: AtomicUsize,
    dropped: AtomicUsize,
}

impl Runs {
    /// Counts a run until it is finished, or dropped.
    pub(crate) fn begin(&self) -> Run {
        let number = self.0.total.fetch_add(1, SeqCst);
        let running = self.0.running.fetch_add(1, SeqCst) + 1;
        self.0.highest.fetch_max(running, SeqCst);
        Run { runs: self.clone(), number, finished: false }
    }

    pub(crate) fn total(&self) -> usize {
        self.0.total.load(SeqCst)
    }

    pub(crate) fn running(&self) -> usize {
        self.0.running.load(SeqCst)
    }

    /// The most runs at one moment.
    pub(crate) fn highest(&self) -> usize {
        self.0.highest.load(SeqCst)
    }

    /// Runs that did not come to their end.
    pub(crate) fn dropped(&self) -> usize {
        self.0.dropped.load(SeqCst)
    }
}

pub(crate) struct Run {
    runs: Runs,
    pub(crate) number: usize,
    finished: bool,
}

impl Run {
    pub(crate) fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.runs.0.running.fetch_sub(1, SeqCst);
        if !self.finished {
            self.runs.0.dropped.fetch_add(1, SeqCst);
        }
    }
}

/// An inner that takes this long; `answer` gets the number of the run.
pub(crate) fn inner<B, E, F>(runs: &Runs, takes: Duration, answer: F) -> Inner<B, E>
where
    F: Fn(usize, Req) -> Result<Response<B>, E> + Clone + Send + Sync + 'static,
    B: Send + 'static,
    E: Send + 'static,
{
    let runs = runs.clone();
    BoxCloneSyncService::new(service_fn(move |request| {
        let (run, answer) = (runs.begin(), answer.clone());
        async move {
            tokio::time::sleep(takes).await;
            let answer = answer(run.number, request);
            run.finish();
            answer
        }
    }))
}

/// As [`inner`], and it cannot fail.
pub(crate) fn sure<B, F>(runs: &Runs, takes: Duration, answer: F) -> Inner<B>
where
    F: Fn(usize, Req) -> Response<B> + Clone + Send + Sync + 'static,
    B: Send + 'static,
{
    inner(runs, takes, move |run, request| Ok(answer(run, request)))
}

/// Answers with the number of the run.
pub(crate) fn numbered(runs: &Runs, takes: Duration) -> Inner {
    sure(runs, takes, |run, _| text(format!("run {run}")))
}

pub(crate) fn text(text: impl Into<Bytes>) -> Response<Full> {
    Response::new(Full::new(text.into()))
}

pub(crate) fn get(path: &str) -> Req {
    Request::get(format!("http://a.test{path}")).body(Full::default()).unwrap()
}

pub(crate) fn with(mut request: Req, name: &'static str, value: &'static str) -> Req {
    request.headers_mut().append(name, http::HeaderValue::from_static(value));
    request
}

/// A layer with all defaults.
pub(crate) fn layer() -> SingleFlightLayer<HttpKey> {
    SingleFlightLayer::new(HttpKey::new())
}

/// Layers that meet on one store, as processes of a fleet do.
pub(crate) fn nodes<const N: usize>() -> [SingleFlightLayer<HttpKey>; N] {
    let store = MemoryStore::new();
    std::array::from_fn(|_| layer().store(store.clone()).namespace("tests"))
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) role: Option<FlightRole>,
    pub(crate) failure: Option<Failure>,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) fn is_shared(&self) -> bool {
        self.role.is_some_and(|role| role.is_shared())
    }

    pub(crate) fn is_owner(&self) -> bool {
        self.role == Some(FlightRole::Owner)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The headers in their order, without the layer's own remark.
    pub(crate) fn fields(&self) -> Vec<(String, Vec<u8>)> {
        let fields = self.headers.iter().filter(|(name, _)| *name != "cache-status");
        fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
    }
}

/// Reads a response; an error of its body is the error.
pub(crate) async fn read<B>(response: Response<B>) -> Result<Answer, BoxError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send,
{
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(Into::into)?;
    let trailers = body.trailers().cloned();
    Ok(Answer {
        status: parts.status,
        version: parts.version,
        headers: parts.headers,
        role: parts.extensions.get().copied(),
        failure: parts.extensions.get().cloned(),
        body: body.to_bytes(),
        trailers,
    })
}

/// Sends a request through a clone of the service and reads all of the answer.
pub(crate) fn ask<S, B, E>(
    service: &S,
    request: Req,
) -> impl Future<Output = Answer> + Send + use<S, B, E>
where
    S: Service<Req, Response = Response<B>, Error = E, Future: Send> + Clone + Send,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send,
    E: fmt::Debug + Send,
{
    let service = service.clone();
    async move { read(service.oneshot(request).await.unwrap()).await.unwrap() }
}

/// `each` callers of each service with the same request, all at once.
pub(crate) async fn crowd<S, B, E>(services: &[&S], each: usize, request: Req) -> Vec<Answer>
where
    S: Service<Req, Response = Response<B>, Error = E, Future: Send> + Clone + Send + Sync,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send,
    E: fmt::Debug + Send,
{
    let callers = services.iter().flat_map(|service| (0..each).map(move |_| service));
    join_all(callers.map(|service| ask(*service, request.clone()))).await
}

/// Holds runs back until it is opened.
#[derive(Clone)]
pub(crate) struct Gate(watch::Sender<bool>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(watch::channel(false).0)
    }

    pub(crate) fn open(&self) {
        self.0.send_replace(true);
    }

    /// Holds the runs back that come from now on.
    pub(crate) fn close(&self) {
        self.0.send_replace(false);
    }

    pub(crate) async fn passed(&self) {
        self.0.subscribe().wait_for(|open| *open).await.unwrap();
    }
}

/// Waits until this holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool + Send + Sync) {
    let poll = async {
        while !holds() {
            tokio::time::sleep(ms(1)).await;
        }
    };
    assert!(timeout(Duration::from_secs(10), poll).await.is_ok(), "never came: {what}");
}

/// Callers in the air in this node.
pub(crate) fn callers<K: Clone>(layer: &SingleFlightLayer<K>) -> usize {
    layer.flights().iter().map(|flight| flight.callers).sum()
}
