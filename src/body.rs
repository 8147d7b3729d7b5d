//! The body of a response that came through the layer.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Body, SizeHint};
use pin_project_lite::pin_project;
use tower::BoxError;

use crate::{
    flights::Share,
    frame::{Frame, Head},
    log::{Reader, Splice},
    print::Printer,
    selection::Selection,
};

pin_project! {
    /// The body of a response that came through the layer: inner's own, or a
    /// replay of a shared one.
    ///
    /// Frames keep their order and trailers come last. A body that did not end
    /// well ends in an error, never as if it were whole.
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        Passed { #[pin] body: B },
        Replay { replay: Replay },
        Resumed { resumed: Resumed<B> },
        Text { text: Option<Bytes> },
    }
}

/// A shared body, from its start.
pub struct Replay {
    splice: Splice,
    /// Held until the body is read or dropped.
    share: Option<Share>,
    broken: bool,
}

/// A body of which a part was read before it was given to its own caller, or that is
/// digested while it is read.
pub struct Resumed<B> {
    read: VecDeque<Result<Frame, BoxError>>,
    /// None when it has ended already.
    rest: Option<Pin<Box<B>>>,
    /// Sees what is yet to be read.
    printer: Option<Box<Printer>>,
}

/// Why a shared body broke off.
#[derive(Clone, Debug)]
pub struct BodyError(Arc<str>);

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the shared body broke off: {}", self.0)
    }
}

impl std::error::Error for BodyError {}

impl<B> ResponseBody<B> {
    pub(crate) fn passed(body: B) -> Self {
        Self { kind: Kind::Passed { body } }
    }

    pub(crate) fn replay(replay: Replay) -> Self {
        Self { kind: Kind::Replay { replay } }
    }

    pub(crate) fn resumed(resumed: Resumed<B>) -> Self {
        Self { kind: Kind::Resumed { resumed } }
    }

    pub(crate) fn empty() -> Self {
        Self { kind: Kind::Text { text: None } }
    }

    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self { kind: Kind::Text { text: Some(text.into()) } }
    }
}

impl Replay {
    /// `selection` says which callers may have what is read; none: all of them.
    pub(crate) fn new(
        head: Arc<Head>,
        selection: Option<Arc<Selection>>,
        reader: Reader,
        share: Option<Share>,
    ) -> Self {
        Self { splice: Splice::new(head, selection, reader), share, broken: false }
    }

    /// What `add` makes of all of a body that is there already, frame by frame. None where
    /// not all of it is, or `add` has none.
    pub(crate) fn gather<T>(
        mut self,
        mut all: T,
        add: impl Fn(T, Frame) -> Option<T>,
    ) -> Option<T> {
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            match self.splice.poll_next(&mut cx) {
                Poll::Ready(Some(Ok(frame))) => all = add(all, frame)?,
                Poll::Ready(None) => return Some(all),
                Poll::Ready(Some(Err(_))) | Poll::Pending => return None,
            }
        }
    }
}

impl<B> Resumed<B> {
    /// What was read, and then the rest.
    pub(crate) fn new(read: Vec<Frame>, rest: Pin<Box<B>>) -> Self {
        Self { read: read.into_iter().map(Ok).collect(), rest: Some(rest), printer: None }
    }

    /// A body that `printer` sees.
    pub(crate) fn printed(body: B, printer: Printer) -> Self
    where
        B: Body,
    {
        let mut printer = Box::new(printer);
        // A body that is at its end need not be asked for more.
        if body.is_end_stream() {
            printer.end(None);
        }
        Self { read: VecDeque::new(), rest: Some(Box::pin(body)), printer: Some(printer) }
    }
}

impl<B> Resumed<B>
where
    B: Body<Error: Into<BoxError>>,
{
    /// Reads what is there already.
    pub(crate) fn read_ahead(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        while self.rest.is_some()
            && let Poll::Ready(next) = self.poll_rest(&mut cx)
        {
            if !matches!(next, Some(Ok(_))) {
                self.rest = None;
            }
            self.read.extend(next.and_then(|next| next.map(from_http).transpose()));
        }
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Polled {
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let next = ready!(rest.as_mut().poll_frame(cx));
        let next = next.map(|frame| frame.map(to_bytes).map_err(Into::into));
        if let Some(printer) = &mut self.printer {
            match &next {
                Some(Ok(frame)) => {
                    printer.see(frame);
                    if rest.is_end_stream() {
                        printer.end(None);
                    }
                }
                Some(Err(_)) => printer.broken(),
                None => printer.end(None),
            }
        }
        Poll::Ready(next)
    }
}

fn http_frame(frame: Frame) -> http_body::Frame<Bytes> {
    match frame {
        Frame::Data(bytes) => http_body::Frame::data(bytes),
        Frame::Trailers(trailers) => http_body::Frame::trailers(trailers),
    }
}

fn from_http(frame: http_body::Frame<Bytes>) -> Option<Frame> {
    frame
        .into_data()
        .map(Frame::Data)
        .or_else(|frame| frame.into_trailers().map(Frame::Trailers))
        .ok()
}

fn to_bytes<D: Buf>(frame: http_body::Frame<D>) -> http_body::Frame<Bytes> {
    frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
}

type Polled = Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>>;

impl Body for Replay {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        // After an error there is nothing, also for those who ask again.
        if self.broken {
            return Poll::Ready(None);
        }
        let next = ready!(self.splice.poll_next(cx));
        if !matches!(next, Some(Ok(_))) {
            self.share = None;
            self.broken = next.is_some();
        }
        Poll::Ready(next.map(|frame| frame.map(http_frame).map_err(|why| BodyError(why).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.splice.is_at_end()
    }

    fn size_hint(&self) -> SizeHint {
        let Some(remaining) = self.splice.remaining() else { return SizeHint::default() };
        let mut hint = SizeHint::new();
        hint.set_lower(remaining);
        if self.splice.tells_length() {
            hint.set_upper(remaining);
        }
        hint
    }
}

impl<B> Body for Resumed<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        if let Some(read) = self.read.pop_front() {
            return Poll::Ready(Some(read.map(http_frame)));
        }
        self.poll_rest(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let read: u64 = self
            .read
            .iter()
            .map(|frame| match frame {
                Ok(Frame::Data(bytes)) => bytes.len() as u64,
                _ => 0,
            })
            .sum();
        let rest = match &self.rest {
            Some(rest) => rest.size_hint(),
            None => SizeHint::with_exact(0),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        match self.project().kind.project() {
            KindProj::Passed { body } => {
                let next = ready!(body.poll_frame(cx));
                Poll::Ready(next.map(|frame| frame.map(to_bytes).map_err(Into::into)))
            }
            KindProj::Replay { replay } => Pin::new(replay).poll_frame(cx),
            KindProj::Resumed { resumed } => Pin::new(resumed).poll_frame(cx),
            KindProj::Text { text } => {
                Poll::Ready(text.take().map(|text| Ok(http_body::Frame::data(text))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Passed { body } => body.is_end_stream(),
            Kind::Replay { replay } => replay.is_end_stream(),
            Kind::Resumed { resumed } => resumed.is_end_stream(),
            Kind::Text { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Passed { body } => body.size_hint(),
            Kind::Replay { replay } => replay.size_hint(),
            Kind::Resumed { resumed } => resumed.size_hint(),
            Kind::Text { text } => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Passed { .. } => "ResponseBody(passed)",
            Kind::Replay { .. } => "ResponseBody(replay)",
            Kind::Resumed { .. } => "ResponseBody(resumed)",
            Kind::Text { .. } => "ResponseBody(text)",
        })
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").finish_non_exhaustive()
    }
}

impl<B> fmt::Debug for Resumed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resumed").field("frames_read", &self.read.len()).finish_non_exhaustive()
    }
}
