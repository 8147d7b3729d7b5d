//! Bodies that do as they are told.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Data(Bytes),
    Trailers,
    Wait(Duration),
    Error,
    Panic,
}

/// What a body says of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    Exact,
    /// The half of it at least.
    Lower,
    None,
}

pub(crate) struct Script {
    steps: VecDeque<Step>,
    hint: Hint,
    /// Whether it says that it is at its end before it is asked for more.
    says_end: bool,
    waiting: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
pub(crate) struct Told;

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the disk is gone")
    }
}

impl std::error::Error for Told {}

pub(crate) fn data(text: &'static str) -> Step {
    Step::Data(Bytes::from_static(text.as_bytes()))
}

pub(crate) fn bytes_in(steps: impl IntoIterator<Item = Step>) -> u64 {
    let sizes = steps.into_iter().map(|step| match step {
        Step::Data(data) => data.len() as u64,
        _ => 0,
    });
    sizes.sum()
}

pub(crate) fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("7"));
    trailers
}

impl Script {
    pub(crate) fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps = steps.into_iter().collect();
        Self { steps, hint: Hint::None, says_end: false, waiting: None }
    }

    pub(crate) fn hint(self, hint: Hint) -> Self {
        Self { hint, ..self }
    }

    pub(crate) fn says_end(self, says_end: bool) -> Self {
        Self { says_end, ..self }
    }

    /// A response with this body, and this length in its head.
    pub(crate) fn response(self, length: Option<u64>) -> Response<Self> {
        let mut response = Response::new(self);
        if let Some(length) = length {
            response.headers_mut().insert("content-length", HeaderValue::from(length));
        }
        response
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = Told;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Told>>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                ready!(waiting.as_mut().poll(cx));
                self.waiting = None;
            }
            return Poll::Ready(match self.steps.pop_front() {
                None => None,
                Some(Step::Data(data)) => Some(Ok(Frame::data(data))),
                Some(Step::Trailers) => Some(Ok(Frame::trailers(trailers()))),
                Some(Step::Error) => Some(Err(Told)),
                Some(Step::Panic) => panic!("the body panics"),
                Some(Step::Wait(time)) => {
                    self.waiting = Some(Box::pin(sleep(time)));
                    continue;
                }
            });
        }
    }

    fn is_end_stream(&self) -> bool {
        self.says_end && self.steps.is_empty() && self.waiting.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let left = bytes_in(self.steps.iter().cloned());
        let mut hint = SizeHint::new();
        match self.hint {
            Hint::Exact => hint.set_exact(left),
            Hint::Lower => hint.set_lower(left / 2),
            Hint::None => {}
        }
        hint
    }
}
