//! Answers whose messages are given by the test, one at a time, and their readers.

use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use http::uri::PathAndQuery;
use tokio::sync::{mpsc, watch};
use tokio_stream::{StreamExt, wrappers::UnboundedReceiverStream};
use tonic::{
    Request, Response, Status, Streaming, codec::CompressionEncoding, metadata::MetadataMap,
    transport::Channel,
};

use crate::{
    rig::{Answers, LIST, Messages, Plain},
    support::{Runs, until},
};

/// The answers of all runs, in the order of their beginning.
#[derive(Clone, Default)]
pub(crate) struct Taps {
    taps: Arc<Mutex<Vec<Tap>>>,
    /// What runs fail with before they answer.
    refusal: Arc<Mutex<Option<Status>>>,
}

struct Tap {
    /// Until the answer has ended.
    messages: Option<mpsc::UnboundedSender<Result<Bytes, Status>>>,
    /// Messages that were not read.
    waiting: Arc<AtomicUsize>,
    dropped: watch::Receiver<()>,
    /// The request's metadata.
    metadata: MetadataMap,
}

impl Taps {
    /// A service with the method whose answer is a stream.
    pub(crate) fn answers(&self) -> Answers {
        let this = self.clone();
        Answers::new(&Runs::default()).list(move |_, request| {
            let (messages, read) = mpsc::unbounded_channel();
            let (alive, dropped) = watch::channel(());
            let waiting = Arc::new(AtomicUsize::new(0));
            let tap = Tap {
                messages: Some(messages),
                waiting: Arc::clone(&waiting),
                dropped,
                metadata: request.metadata().clone(),
            };
            this.taps.lock().unwrap().push(tap);
            if let Some(refusal) = this.refusal.lock().unwrap().clone() {
                return Err(refusal);
            }
            let messages = UnboundedReceiverStream::new(read).map(move |message| {
                let _ = &alive;
                waiting.fetch_sub(1, SeqCst);
                message
            });
            Ok(Response::new(Box::pin(messages) as Messages))
        })
    }

    fn give(&self, run: usize, message: Result<Bytes, Status>) {
        let taps = self.taps.lock().unwrap();
        taps[run].waiting.fetch_add(1, SeqCst);
        // Its reader may be gone.
        let _ = taps[run].messages.as_ref().unwrap().send(message);
    }

    pub(crate) fn send(&self, run: usize, text: &str) {
        self.give(run, Ok(Bytes::from(text.to_owned())));
    }

    pub(crate) fn fail(&self, run: usize, status: Status) {
        self.give(run, Err(status));
        self.end(run);
    }

    /// Ends the answer; where that was no failure, as it should.
    pub(crate) fn end(&self, run: usize) {
        self.taps.lock().unwrap()[run].messages = None;
    }

    /// Runs from now on fail at once.
    pub(crate) fn refuse(&self, status: Status) {
        *self.refusal.lock().unwrap() = Some(status);
    }

    pub(crate) fn runs(&self) -> usize {
        self.taps.lock().unwrap().len()
    }

    pub(crate) fn metadata(&self, run: usize) -> MetadataMap {
        self.taps.lock().unwrap()[run].metadata.clone()
    }

    pub(crate) fn is_dropped(&self, run: usize) -> bool {
        self.taps.lock().unwrap()[run].dropped.has_changed().is_err()
    }

    /// Waits until there are so many runs.
    pub(crate) async fn until_runs(&self, runs: usize) {
        until("the next run", || self.runs() == runs).await;
    }

    /// Waits until inner's reader has taken all messages of a run.
    pub(crate) async fn until_read(&self, run: usize) {
        let read = || self.taps.lock().unwrap()[run].waiting.load(SeqCst) == 0;
        until("all is read", read).await;
    }
}

/// An answer that is read by and by. Dropped, it is cancelled.
#[derive(Debug)]
pub(crate) struct Open {
    messages: Streaming<Bytes>,
    pub(crate) metadata: MetadataMap,
}

/// A call, when its answer has begun.
pub(crate) fn open(
    channel: &Channel,
    request: Request<Bytes>,
) -> impl Future<Output = Result<Open, Status>> + Send + use<> {
    open_by(tonic::client::Grpc::new(channel.clone()), request)
}

/// As [`open`], of a client that knows compression.
pub(crate) fn open_compressed(
    channel: &Channel,
    request: Request<Bytes>,
) -> impl Future<Output = Result<Open, Status>> + Send + use<> {
    let client = tonic::client::Grpc::new(channel.clone());
    open_by(client.accept_compressed(CompressionEncoding::Gzip), request)
}

async fn open_by(
    mut client: tonic::client::Grpc<Channel>,
    request: Request<Bytes>,
) -> Result<Open, Status> {
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static(LIST);
    let response = client.server_streaming(request, path, Plain).await?;
    let metadata = response.metadata().clone();
    Ok(Open { messages: response.into_inner(), metadata })
}

impl Open {
    /// The next message; none after a good end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let next =
            tokio::time::timeout(std::time::Duration::from_secs(10), self.messages.message());
        next.await.expect("an answer that goes on")
    }

    /// All further messages up to a good end, and its metadata.
    pub(crate) async fn rest(mut self) -> Result<(Vec<Bytes>, MetadataMap), Status> {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await? {
            messages.push(message);
        }
        let trailers = self.messages.trailers().await?;
        Ok((messages, trailers.unwrap_or_default()))
    }

    /// As [`rest`](Self::rest); how it ended where that was no good end.
    pub(crate) async fn failure(self) -> Status {
        match self.rest().await {
            Ok((messages, _)) => panic!("a good end after {messages:?}"),
            Err(status) => status,
        }
    }
}
