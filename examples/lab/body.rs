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

/// The bytes of a body, cut into frames.
#[derive(Debug)]
pub(crate) struct Payload {
    frames: Vec<Bytes>,
}

impl Payload {
    pub(crate) fn new(script: &Script, token: u64) -> Self {
        let mut text = if script.same { String::new() } else { line(token) };
        const PATTERN: &str = "0123456789abcdefghijklmnopqrstuvwxyz";
        while text.len() < script.bytes {
            text.push_str(&PATTERN[..PATTERN.len().min(script.bytes - text.len())]);
        }
        let bytes = Bytes::from(text);
        let size = bytes.len().div_ceil(script.chunks).max(1);
        let cut = |index: usize| {
            let [start, end] = [index, index + 1].map(|at| (at * size).min(bytes.len()));
            bytes.slice(start..end)
        };
        let events = script.content_type.as_bytes().starts_with(b"text/event-stream");
        let frames = (0..script.chunks).map(cut).filter(|frame| !frame.is_empty());
        let frames =
            frames.enumerate().map(|(id, frame)| if events { event(id, &frame) } else { frame });
        Self { frames: frames.collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.iter().map(Bytes::len).sum()
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
    frames: Vec<Bytes>,
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
        let mut frames = payload.frames;
        if fail == Some(Fail::Short) {
            let whole: Vec<u8> = frames.concat();
            frames = vec![Bytes::from(whole[..whole.len() / 2].to_vec())];
        }
        let trailers: HeaderMap = script.trailers.iter().cloned().collect::<HeaderMap>();
        let trailers = (!trailers.is_empty()).then_some(trailers);
        if frames.is_empty() && trailers.is_none() {
            run.finish();
        }
        Self { frames, next: 0, gap: script.gap, pause: None, trailers, fail, run }
    }

    fn half(&self) -> usize {
        self.frames.len() / 2
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
        if self.next > 0 && self.next < self.frames.len() && !self.gap.is_zero() {
            let gap = self.gap;
            ready!(self.pause.get_or_insert_with(|| Box::pin(sleep(gap))).as_mut().poll(cx));
            self.pause = None;
        }
        if let Some(frame) = self.frames.get(self.next).cloned() {
            self.next += 1;
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
        self.next >= self.frames.len() && self.trailers.is_none() && !may_fail
    }

    fn size_hint(&self) -> SizeHint {
        // More frames than one are a stream: its length is not told.
        match self.frames.as_slice() {
            [frame] if self.fail.is_none() && self.trailers.is_none() => {
                SizeHint::with_exact(if self.next == 0 { frame.len() as u64 } else { 0 })
            }
            _ => SizeHint::default(),
        }
    }
}
