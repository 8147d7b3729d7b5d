//! What inner does: anything, by the seed, the key and the run.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::sleep;
use tower::util::BoxCloneSyncService;
use tower_singleflight::FlightToken;

use super::steps::Recorder;
use crate::{
    history::Run,
    rig::{Body, InnerService, Reply, ms},
};

/// The longest run but for one that hangs, and the hard timeout above it.
pub(crate) const LONGEST: Duration = Duration::from_secs(7);
/// Longer than all time limits; without any, a caller waits for it.
const STALL: Duration = Duration::from_secs(60);
/// More than is kept to be shared.
pub(crate) const LARGE: usize = 3000;

/// All runs so far.
pub(crate) struct Runs {
    pub(crate) seed: u64,
    recorder: Arc<Recorder>,
    runs: Mutex<HashMap<u64, Run>>,
}

impl Runs {
    pub(crate) fn new(seed: u64, recorder: &Arc<Recorder>) -> Arc<Self> {
        Arc::new(Self { seed, recorder: Arc::clone(recorder), runs: Mutex::default() })
    }

    pub(crate) fn take(&self) -> HashMap<u64, Run> {
        self.runs.lock().unwrap().clone()
    }

    /// Runs on these nodes that are not over.
    pub(crate) fn running(&self, node: impl Fn(usize) -> bool) -> usize {
        let runs = self.runs.lock().unwrap();
        runs.values().filter(|run| run.over.is_none() && node(run.node)).count()
    }

    /// The inner service of one node.
    pub(crate) fn of(self: &Arc<Self>, node: usize) -> InnerService {
        let this = Arc::clone(self);
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            let key = request.uri().path()[1..].parse().unwrap();
            let token = request.extensions().get::<FlightToken>().map(|token| token.get());
            let running = this.begin(key, node, token);
            async move { Ok::<_, Infallible>(running.work().await) }
        }))
    }

    fn begin(self: &Arc<Self>, key: u64, node: usize, token: Option<u64>) -> Running {
        let mut runs = self.runs.lock().unwrap();
        let nth = runs.len() as u64;
        let mut rng = StdRng::seed_from_u64(self.seed ^ nth << 20);
        // What it says depends on the run, for two keys of three; for the third it is
        // longer than one piece sometimes.
        let said = if key.is_multiple_of(3) { 0 } else { nth };
        let lines = match rng.random_range(0..12) {
            _ if key.is_multiple_of(3) => 12 + key,
            0 => LARGE as u64 / 8,
            _ => rng.random_range(1..60),
        };
        let text: String = (0..lines).map(|line| format!("{key} {said} {line}\n")).collect();
        let run = Run { key, node, token, text: text.clone(), whole: false, over: None };
        runs.insert(nth, run);
        Running { runs: Arc::clone(self), nth, text: text.into(), rng }
    }
}

/// One run; over when it is dropped.
struct Running {
    runs: Arc<Runs>,
    nth: u64,
    text: Bytes,
    rng: StdRng,
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = self.runs.recorder.now();
        self.runs.runs.lock().unwrap().get_mut(&self.nth).unwrap().over = Some(now);
    }
}

impl Running {
    fn whole(&self) {
        self.runs.runs.lock().unwrap().get_mut(&self.nth).unwrap().whole = true;
    }

    async fn pause(&mut self, longest: Duration) {
        let longest = if self.rng.random_ratio(1, 30) { LONGEST / 2 } else { longest };
        sleep(longest.mul_f64(self.rng.random::<f64>())).await;
    }

    async fn work(mut self) -> Response<Reply> {
        let kind = self.rng.random_range(0..40);
        self.pause(ms(500)).await;
        if kind == 1 {
            sleep(STALL).await;
        }
        let mut response = match kind {
            // As a panic, without a word on stderr.
            0 => std::panic::resume_unwind(Box::new("asked for by the seed")),
            2..20 => {
                self.whole();
                let body = Full::new(self.text.clone()).map_err(|never| match never {});
                Response::new(body.boxed_unsync())
            }
            _ => Response::new(self.stream()),
        };
        match kind {
            2 | 20 => {
                let value = HeaderValue::from_static("no-store");
                response.headers_mut().insert("cache-control", value);
            }
            3 | 21 => *response.status_mut() = StatusCode::BAD_GATEWAY,
            _ => {}
        }
        response
    }

    /// In frames of any size, with pauses; a few break off or stall.
    fn stream(mut self) -> Reply {
        let bad = self.rng.random_ratio(1, 10);
        let breaks = bad.then(|| self.rng.random_range(0..=self.text.len()));
        let stalls = self.rng.random_ratio(1, 2);
        let frames = futures_util::stream::unfold((self, 0), move |(mut this, at)| async move {
            if this.rng.random_ratio(2, 3) {
                this.pause(ms(60)).await;
            }
            if breaks.is_some_and(|breaks| breaks <= at) {
                if stalls {
                    sleep(STALL).await;
                }
                return Some((Err(io::Error::other("by the seed")), (this, at)));
            }
            if at == this.text.len() {
                this.whole();
                return None;
            }
            let end = (at + this.rng.random_range(1..200)).min(this.text.len());
            let frame = Ok(Frame::data(this.text.slice(at..end)));
            Some((frame, (this, end)))
        });
        StreamBody::new(frames).boxed_unsync()
    }
}
