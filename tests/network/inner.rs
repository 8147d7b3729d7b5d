//! The wrapped service: it counts its runs, and its answers say whose they are.

use std::{
    convert::Infallible,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use tokio::sync::watch;
use tower::util::BoxCloneSyncService;
use tower_singleflight::FlightToken;

use crate::BEAT;

pub(crate) type Body = Full<Bytes>;
pub(crate) type Reply = UnsyncBoxBody<Bytes, io::Error>;
pub(crate) type Service = BoxCloneSyncService<Request<Body>, Response<Reply>, Infallible>;

/// What an answer looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One that travels in a push.
    Small,
    /// One that is stored apart.
    Large,
    /// One that is handed out as it comes.
    Stream,
    /// The same, and every run says the same.
    Same,
}

const FRAMES: usize = 6;
const FRAME: usize = 1000;

impl Shape {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Small => "/small",
            Self::Large => "/large",
            Self::Stream => "/stream",
            Self::Same => "/same",
        }
    }

    fn of(path: &str) -> Option<Self> {
        [Self::Small, Self::Large, Self::Stream, Self::Same]
            .into_iter()
            .find(|shape| shape.path() == path)
    }

    pub(crate) fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::Same)
    }

    fn size(self) -> usize {
        match self {
            Self::Small => 200,
            Self::Large => 40_000,
            Self::Stream | Self::Same => FRAMES * FRAME,
        }
    }

    /// The answer of a run; those of two runs differ in every byte that could be mixed
    /// up, unless they are to be the same.
    fn body(self, run: u64) -> Vec<u8> {
        let (line, run) = match self {
            Self::Same => (String::new(), 0),
            _ => (format!("run {run}\n"), run),
        };
        let letter = |at| b'a' + ((run * 7 + at as u64) % 26) as u8;
        line.into_bytes().into_iter().chain((0..).map(letter)).take(self.size()).collect()
    }

    /// Whose bytes these are, which may be the first of more; panics where they are
    /// nobody's.
    pub(crate) fn run_of(self, bytes: &[u8]) -> u64 {
        let run = match self {
            Self::Same => 0,
            _ => {
                let text = String::from_utf8_lossy(bytes);
                let line = text.lines().next().unwrap_or_default();
                let run = line.strip_prefix("run ").and_then(|run| run.parse().ok());
                run.unwrap_or_else(|| panic!("bytes of no run: {line}"))
            }
        };
        assert!(self.body(run).starts_with(bytes), "bytes of several runs");
        run
    }

    pub(crate) fn is_whole(self, bytes: &[u8]) -> bool {
        bytes.len() == self.size()
    }
}

/// The runs of one world.
pub(crate) struct Inner {
    calls: AtomicU64,
    running: AtomicU64,
    dropped: AtomicU64,
    tokens: Mutex<Vec<u64>>,
    /// How far runs may go: at 1 streams go on, at 2 all end.
    stage: watch::Sender<u32>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            calls: AtomicU64::new(0),
            running: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            tokens: Mutex::default(),
            stage: watch::Sender::new(0),
        }
    }
}

impl Inner {
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }

    pub(crate) fn running(&self) -> u64 {
        self.running.load(SeqCst)
    }

    /// The tokens of all runs that had one, in the order of their starts.
    pub(crate) fn tokens(&self) -> Vec<u64> {
        self.tokens.lock().unwrap().clone()
    }

    pub(crate) fn stage(&self, stage: u32) {
        self.stage.send_if_modified(|now| std::mem::replace(now, stage.max(*now)) < stage);
    }

    pub(crate) fn service(self: &Arc<Self>) -> Service {
        let inner = Arc::clone(self);
        BoxCloneSyncService::new(tower::service_fn(move |request| {
            let inner = Arc::clone(&inner);
            async move { Ok(inner.answer(&request).await) }
        }))
    }

    async fn answer(self: &Arc<Self>, request: &Request<Body>) -> Response<Reply> {
        let path = request.uri().path();
        let Some(shape) = Shape::of(path) else {
            // Before or after what is looked at; for longer than a beat, or at once.
            let time = if path == "/warm" { BEAT * 5 / 4 } else { BEAT / 4 };
            tokio::time::sleep(time).await;
            return whole(format!("{:032x}", rand::random::<u128>()));
        };
        let nth = self.calls.fetch_add(1, SeqCst) + 1;
        self.running.fetch_add(1, SeqCst);
        let run = Run { inner: Arc::clone(self), finished: false };
        if let Some(token) = request.extensions().get::<FlightToken>() {
            self.tokens.lock().unwrap().push(token.get());
        }
        if shape.is_stream() {
            return streamed(shape.body(nth), run);
        }
        run.reaches(2).await;
        run.finish();
        whole(shape.body(nth))
    }
}

struct Run {
    inner: Arc<Inner>,
    finished: bool,
}

impl Run {
    async fn reaches(&self, stage: u32) {
        let mut stages = self.inner.stage.subscribe();
        stages.wait_for(|now| *now >= stage).await.unwrap();
    }

    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.inner.running.fetch_sub(1, SeqCst);
        if !self.finished {
            self.inner.dropped.fetch_add(1, SeqCst);
        }
    }
}

fn whole(body: impl Into<Bytes>) -> Response<Reply> {
    let body = Full::new(body.into()).map_err(|never| match never {});
    Response::new(body.boxed_unsync())
}

/// The first frame at once, half of the rest at stage 1, and the others at stage 2.
fn streamed(body: Vec<u8>, run: Run) -> Response<Reply> {
    let frames = stream::unfold((0, Bytes::from(body), run), |(at, mut body, run)| async move {
        if body.is_empty() {
            run.finish();
            return None;
        }
        run.reaches(if at == 0 { 0 } else { 1 + u32::from(at > FRAMES / 2) }).await;
        let frame = body.split_to(FRAME);
        Some((Ok(Frame::data(frame)), (at + 1, body, run)))
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}
