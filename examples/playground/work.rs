//! The inner service: slow, and it tells of its runs.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Relaxed},
        },
    },
    time::{Duration, Instant},
};

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::State,
    http::header::CONTENT_TYPE,
    response::IntoResponse,
};
use futures_util::stream;
use tokio::sync::mpsc::UnboundedSender;
use tower_singleflight::FlightToken;

use crate::report::{self, Kind, Report};

/// The same words in every run, so that a caller who has some of them can go on with
/// the next run when the first one is lost.
const WORDS: &str = "Of all who ask the same at the same time, one is worked for, and all get \
    the answer, word by word as it comes; who comes late gets what was before at once.";

/// Where the runs of a node are known.
#[derive(Debug)]
pub(crate) struct Desk {
    node: String,
    /// How long a run takes.
    takes: Duration,
    begun: AtomicU64,
    runs: Mutex<Vec<Arc<Known>>>,
    tell: UnboundedSender<Report>,
}

#[derive(Debug)]
struct Known {
    number: u64,
    kind: Kind,
    token: Option<u64>,
    pieces: AtomicUsize,
    of: usize,
    began: Instant,
}

impl Desk {
    pub(crate) fn new(node: String, takes: Duration, tell: UnboundedSender<Report>) -> Arc<Self> {
        let (begun, runs) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Self { node, takes, begun, runs, tell })
    }

    /// The runs under way.
    pub(crate) fn runs(&self) -> Vec<report::Run> {
        self.lock().iter().map(|run| run.report()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Known>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn report(&self) -> report::Run {
        report::Run {
            number: self.number,
            kind: self.kind,
            token: self.token,
            pieces: self.pieces.load(Relaxed),
            of: self.of,
            elapsed_ms: self.began.elapsed().as_millis() as u64,
        }
    }
}

/// A run that has begun. The layer drops it where its lease is lost.
struct Run {
    known: Arc<Known>,
    desk: Arc<Desk>,
}

impl Run {
    fn begin(
        desk: Arc<Desk>,
        kind: Kind,
        of: usize,
        token: Option<Extension<FlightToken>>,
    ) -> Self {
        let known = Arc::new(Known {
            number: desk.begun.fetch_add(1, AcqRel) + 1,
            kind,
            token: token.map(|Extension(token)| token.get()),
            pieces: AtomicUsize::new(0),
            of,
            began: Instant::now(),
        });
        desk.lock().push(Arc::clone(&known));
        // Who listens is gone only when the node is.
        let _ = desk.tell.send(Report::Began(known.report()));
        Self { known, desk }
    }

    fn give(&self) {
        self.known.pieces.fetch_add(1, Relaxed);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.desk.lock().retain(|run| run.number != self.known.number);
        let run = self.known.report();
        let whole = run.pieces == run.of;
        let _ = self.desk.tell.send(Report::Ended { run, whole });
    }
}

/// `GET /answer`: all at once, at the end.
pub(crate) async fn answer(
    State(desk): State<Arc<Desk>>,
    token: Option<Extension<FlightToken>>,
) -> String {
    let (node, takes) = (desk.node.clone(), desk.takes);
    let run = Run::begin(desk, Kind::Answer, 1, token);
    tokio::time::sleep(takes).await;
    run.give();
    format!("Forty-two, says run {} of node {node}.", run.known.number)
}

/// `GET /stream`: word by word.
pub(crate) async fn words(
    State(desk): State<Arc<Desk>>,
    token: Option<Extension<FlightToken>>,
) -> impl IntoResponse {
    let words: Vec<&'static str> = WORDS.split_inclusive(' ').collect();
    let gap = desk.takes / words.len() as u32;
    let run = Run::begin(desk, Kind::Stream, words.len(), token);
    let words = stream::unfold((run, words.into_iter()), move |(run, mut words)| async move {
        let word = words.next()?;
        tokio::time::sleep(gap).await;
        run.give();
        Some((Ok::<_, Infallible>(Bytes::from_static(word.as_bytes())), (run, words)))
    });
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from_stream(words))
}
