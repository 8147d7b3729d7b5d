//! An inner service whose bodies are given their frames by the test, and readers.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, StreamBody};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tower::{ServiceExt, util::BoxCloneSyncService};
use tower_singleflight::{FlightRole, ResponseBody};

use crate::rig::*;

type Item = io::Result<Frame<Bytes>>;

/// The bodies of all runs, in the order of their beginning.
#[derive(Clone)]
pub(crate) struct Taps(Arc<Shared>);

struct Shared {
    taps: Mutex<Vec<Tap>>,
    held: watch::Sender<bool>,
}

struct Tap {
    /// Until the body has ended.
    frames: Option<mpsc::UnboundedSender<Item>>,
    /// Frames that were not read.
    waiting: Arc<AtomicUsize>,
    dropped: watch::Receiver<()>,
}

impl Default for Taps {
    fn default() -> Self {
        let held = watch::channel(false).0;
        Self(Arc::new(Shared { taps: Mutex::default(), held }))
    }
}

impl Taps {
    /// Answers at once, with a body that the test gives its frames.
    pub(crate) fn inner(&self) -> InnerService {
        let shared = Arc::clone(&self.0);
        BoxCloneSyncService::new(tower::service_fn(move |_: Request<Body>| {
            let (frames, mut read) = mpsc::unbounded_channel();
            let (alive, dropped) = watch::channel(());
            let waiting = Arc::new(AtomicUsize::new(0));
            let tap = Tap { frames: Some(frames), waiting: Arc::clone(&waiting), dropped };
            shared.taps.lock().unwrap().push(tap);
            let mut held = shared.held.subscribe();
            async move {
                held.wait_for(|held| !held).await.unwrap();
                let frames = futures_util::stream::poll_fn(move |cx| {
                    let _ = &alive;
                    let next = read.poll_recv(cx);
                    if matches!(next, Poll::Ready(Some(_))) {
                        waiting.fetch_sub(1, SeqCst);
                    }
                    next
                });
                Ok(Response::new(StreamBody::new(frames).boxed_unsync()))
            }
        }))
    }

    fn give(&self, run: usize, item: Item) {
        let taps = self.0.taps.lock().unwrap();
        taps[run].waiting.fetch_add(1, SeqCst);
        let _ = taps[run].frames.as_ref().unwrap().send(item);
    }

    pub(crate) fn send(&self, run: usize, text: &str) {
        self.give(run, Ok(Frame::data(Bytes::from(text.to_owned()))));
    }

    pub(crate) fn trailers(&self, run: usize, name: &'static str, value: &'static str) {
        let trailers = [(name.parse().unwrap(), value.parse().unwrap())].into_iter().collect();
        self.give(run, Ok(Frame::trailers(trailers)));
    }

    pub(crate) fn fail(&self, run: usize, why: &'static str) {
        self.give(run, Err(io::Error::other(why)));
    }

    pub(crate) fn end(&self, run: usize) {
        self.0.taps.lock().unwrap()[run].frames = None;
    }

    pub(crate) fn runs(&self) -> usize {
        self.0.taps.lock().unwrap().len()
    }

    /// Frames of a run that inner's reader has not taken.
    pub(crate) fn waiting(&self, run: usize) -> usize {
        self.0.taps.lock().unwrap()[run].waiting.load(SeqCst)
    }

    pub(crate) fn is_dropped(&self, run: usize) -> bool {
        self.0.taps.lock().unwrap()[run].dropped.has_changed().is_err()
    }

    pub(crate) fn hold_heads(&self) {
        self.0.held.send_replace(true);
    }

    pub(crate) fn let_heads_go(&self) {
        self.0.held.send_replace(false);
    }
}

/// A response whose body is read by and by.
#[derive(Debug)]
pub(crate) struct Open(Response<ResponseBody<Reply>>);

impl Node {
    pub(crate) async fn open(&self, path: &str) -> Open {
        self.opening(path).await.unwrap()
    }

    /// The response, when its head is there.
    pub(crate) fn opening(&self, path: &str) -> JoinHandle<Open> {
        let request = Request::get(format!("http://a.test{path}")).body(Body::default()).unwrap();
        let service = self.service.clone();
        tokio::spawn(async move { Open(service.oneshot(request).await.unwrap()) })
    }
}

impl Open {
    pub(crate) fn role(&self) -> Option<FlightRole> {
        self.0.extensions().get().copied()
    }

    /// The trailers, where those come next.
    pub(crate) async fn trailers(&mut self) -> Option<http::HeaderMap> {
        self.0.body_mut().frame().await?.ok()?.into_trailers().ok()
    }

    /// The next data; the text of the error where the body has broken off. Empty at
    /// its end.
    pub(crate) async fn next(&mut self) -> Result<String, String> {
        match self.0.body_mut().frame().await {
            None => Ok(String::new()),
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                Ok(String::from_utf8(data.to_vec()).unwrap())
            }
            Some(Err(error)) => Err(error.to_string()),
        }
    }

    /// Everything up to a clean end.
    pub(crate) async fn rest(self) -> Result<String, String> {
        let mut body = self.0.into_body();
        let mut text = String::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| error.to_string())?;
            if let Ok(data) = frame.into_data() {
                text.push_str(std::str::from_utf8(&data).unwrap());
            }
        }
        // Inner's own body need not say so.
        assert!(body.is_end_stream() || format!("{body:?}") == "ResponseBody(passed)");
        Ok(text)
    }
}
