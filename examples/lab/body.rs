//! The body of an inner response: frames at the times that the request says.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::http::HeaderMap;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::{
    script::{Fail, Script},
    work::Run,
};

/// The bytes of a body, cut into frames; each is made when it is wanted, so that a
/// long body costs no memory.
#[derive(Debug)]
pub(crate) struct Payload {
    /// What the body begins with.
    line: String,
    bytes: usize,
    /// Bytes of a frame.
    size: usize,
    /// Bytes that are given: all, or half of them.
    given: usize,
    events: bool,
    /// What it goes on with, again and again.
    pattern: Vec<u8>,
}

impl Payload {
    pub(crate) fn new(script: &Script, fail: Option<Fail>, token: u64) -> Self {
        let line = if script.same { String::new() } else { line(token) };
        let bytes = script.bytes.max(line.len());
        let size = bytes.div_ceil(script.chunks).max(1);
        let given = if fail == Some(Fail::Short) { bytes / 2 } else { bytes };
        let events = script.content_type.as_bytes().starts_with(b"text/event-stream");
        let pattern = b"0123456789abcdefghijklmnopqrstuvwxyz".repeat(256);
        Self { line, bytes, size, given, events, pattern }
    }

    /// The length of the whole body.
    pub(crate) fn len(&self) -> usize {
        match self.events {
            true => {
                (0..self.bytes.div_ceil(self.size)).map(|id| self.cut(id, self.bytes).len()).sum()
            }
            false => self.bytes,
        }
    }

    /// How many frames are given.
    fn frames(&self) -> usize {
        self.given.div_ceil(self.size)
    }

    fn frame(&self, id: usize) -> Bytes {
        self.cut(id, self.given)
    }

    /// A frame of a body of so many bytes.
    fn cut(&self, id: usize, bytes: usize) -> Bytes {
        let [start, end] = [id, id + 1].map(|at| (at * self.size).min(bytes));
        let mut data = Vec::with_capacity(end - start);
        let line = self.line.as_bytes();
        data.extend_from_slice(&line[start.min(line.len())..end.min(line.len())]);
        while data.len() < end - start {
            let at = (start + data.len() - line.len()) % self.pattern.len();
            let left = end - start - data.len();
            data.extend_from_slice(&self.pattern[at..self.pattern.len().min(at + left)]);
        }
        if self.events { event(id, &data) } else { data.into() }
    }
}

fn event(id: usize, data: &[u8]) -> Bytes {
    let data = String::from_utf8_lossy(data).replace('\n', " ");
    format!("id: {id}\ndata: {data}\n\n").into()
}

/// What names a new run: the first line of its answer.
pub(crate) fn line(token: u64) -> String {
    let run = uuid(rand::random());
    format!("run={run} pid={} token={token}\n", std::process::id())
}

fn uuid(random: u128) -> String {
    let hex = format!("{random:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// A body that gives its frames one by one.
#[derive(Debug)]
pub(crate) struct Scripted {
    payload: Payload,
    next: usize,
    gap: Duration,
    pause: Option<Pin<Box<Sleep>>>,
    trailers: Option<HeaderMap>,
    fail: Option<Fail>,
    run: Run,
}

/// Why a body breaks off.
#[derive(Debug)]
pub(crate) struct AskedFor;

impl std::fmt::Display for AskedFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the request asked for an error")
    }
}

impl std::error::Error for AskedFor {}

impl Scripted {
    pub(crate) fn new(payload: Payload, script: &Script, fail: Option<Fail>, mut run: Run) -> Self {
        let trailers: HeaderMap = script.trailers.iter().cloned().collect::<HeaderMap>();
        let trailers = (!trailers.is_empty()).then_some(trailers);
        if payload.frames() == 0 && trailers.is_none() {
            run.finish();
        }
        Self { payload, next: 0, gap: script.gap, pause: None, trailers, fail, run }
    }

    fn half(&self) -> usize {
        self.payload.frames() / 2
    }
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = AskedFor;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AskedFor>>> {
        if self.next >= self.half() {
            match self.fail {
                Some(Fail::Error) => return Poll::Ready(Some(Err(AskedFor))),
                Some(Fail::Stall) => return Poll::Pending,
                _ => {}
            }
        }
        if self.next > 0 && self.next < self.payload.frames() && !self.gap.is_zero() {
            let gap = self.gap;
            ready!(self.pause.get_or_insert_with(|| Box::pin(sleep(gap))).as_mut().poll(cx));
            self.pause = None;
        }
        if self.next < self.payload.frames() {
            let frame = self.payload.frame(self.next);
            self.next += 1;
            self.run.give(frame.len());
            if self.is_end_stream() {
                self.run.finish();
            }
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        self.run.finish();
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let may_fail = matches!(self.fail, Some(Fail::Error | Fail::Stall));
        self.next >= self.payload.frames() && self.trailers.is_none() && !may_fail
    }

    fn size_hint(&self) -> SizeHint {
        // More frames than one are a stream: its length is not told.
        if self.payload.frames() == 1 && self.fail.is_none() && self.trailers.is_none() {
            let left = if self.next == 0 { self.payload.len() } else { 0 };
            return SizeHint::with_exact(left as u64);
        }
        SizeHint::default()
    }
}
