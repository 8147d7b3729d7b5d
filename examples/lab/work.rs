//! The inner service, and what it counts.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Relaxed},
        },
    },
    time::{Duration, Instant},
};

use axum::{
    Extension,
    body::Body,
    extract::{Path, RawQuery, State},
    http::{HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use serde_json::{Value, json};
use tower_singleflight::FlightToken;

use super::{
    body::{Payload, Scripted},
    script::{Fail, Script},
};

/// Counts of inner runs in this process.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    calls: AtomicU64,
    running: AtomicU64,
    max_running: AtomicU64,
    finished: AtomicU64,
    dropped: AtomicU64,
    panicked: AtomicU64,
    /// Bytes of data of all bodies.
    bytes: AtomicU64,
    runs: Mutex<HashMap<String, u64>>,
}

impl Inner {
    pub(crate) fn stats(&self) -> Value {
        json!({
            "calls": self.calls.load(Relaxed),
            "running": self.running.load(Relaxed),
            "max_running": self.max_running.load(Relaxed),
            "finished": self.finished.load(Relaxed),
            "dropped": self.dropped.load(Relaxed),
            "panicked": self.panicked.load(Relaxed),
            "bytes": self.bytes.load(Relaxed),
        })
    }

    /// Begins a run, and says which of its name it is.
    pub(crate) fn begin(self: &Arc<Self>, name: &str) -> (Run, u64) {
        self.calls.fetch_add(1, Relaxed);
        let running = self.running.fetch_add(1, AcqRel) + 1;
        self.max_running.fetch_max(running, Relaxed);
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let nth = runs.entry(name.to_owned()).or_default();
        *nth += 1;
        (Run { inner: Arc::clone(self), finished: false }, *nth)
    }
}

/// A run that has begun; dropped before it is finished, it counts as dropped.
#[derive(Debug)]
pub(crate) struct Run {
    inner: Arc<Inner>,
    finished: bool,
}

impl Run {
    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }

    /// Counts data that was given.
    pub(crate) fn give(&self, bytes: usize) {
        self.inner.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.inner.running.fetch_sub(1, AcqRel);
        let count = if self.finished {
            &self.inner.finished
        } else if std::thread::panicking() {
            &self.inner.panicked
        } else {
            &self.inner.dropped
        };
        count.fetch_add(1, Relaxed);
    }
}

/// `GET /work/{name}`.
pub(crate) async fn work(
    State(inner): State<Arc<Inner>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    token: Option<Extension<FlightToken>>,
) -> axum::response::Response {
    let script = match Script::parse(query.as_deref().unwrap_or_default()) {
        Ok(script) => script,
        Err(message) => return (StatusCode::BAD_REQUEST, message).into_response(),
    };
    let (run, nth) = inner.begin(&name);
    let fail = script.failure(nth);
    match fail {
        Some(Fail::Hang) => std::future::pending().await,
        Some(Fail::Block) => std::thread::sleep(script.ms),
        Some(Fail::Freeze) => on_all_threads(script.ms, std::thread::sleep).await,
        Some(Fail::Spin) => on_all_threads(script.ms, spin).await,
        _ => tokio::time::sleep(script.ms).await,
    }
    if fail == Some(Fail::Panic) {
        panic!("the request asked for a panic");
    }
    let token = token.map_or(0, |Extension(token)| token.get());
    respond(&script, fail, token, run)
}

/// Occupies all threads of the runtime until so much later.
async fn on_all_threads(time: Duration, occupy: fn(Duration)) {
    let end = Instant::now() + time;
    let occupy =
        |_| tokio::spawn(async move { occupy(end.saturating_duration_since(Instant::now())) });
    // More of them than there are threads, so that none finds another way.
    let threads = tokio::runtime::Handle::current().metrics().num_workers();
    futures_util::future::join_all((0..2 * threads).map(occupy)).await;
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn respond(script: &Script, fail: Option<Fail>, token: u64, run: Run) -> axum::response::Response {
    let payload = Payload::new(script, fail, token);
    let declared = (fail == Some(Fail::Short)).then(|| payload.len());
    let body = Body::new(Scripted::new(payload, script, fail, run));
    let mut response = Response::new(body);
    *response.status_mut() = script.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, script.content_type.clone());
    if let Some(declared) = declared {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(declared));
    }
    for (name, _) in &script.trailers {
        headers.append(header::TRAILER, HeaderValue::from(name.clone()));
    }
    for (name, value) in &script.set {
        headers.append(name, value.clone());
    }
    response
}
