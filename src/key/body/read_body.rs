//! A request body of which a part was read.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, SizeHint};
use tower::BoxError;

use crate::frame::Frame;

/// A request body that was read for a key: what was read, byte for byte and with
/// its trailers, and then the rest.
///
/// It says its exact length where all was read. Where the body broke off, what came
/// before is followed by the error. See the [module docs](crate::key#bodies).
pub struct ReadBody<B> {
    read: VecDeque<Frame>,
    broken: Option<BoxError>,
    rest: Option<Pin<Box<B>>>,
}

impl<B> ReadBody<B> {
    /// All of a body.
    pub(super) fn whole(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self::new([data], trailers, None)
    }

    /// What was read until the body broke off.
    pub(super) fn broken(data: Bytes, why: BoxError) -> Self {
        Self { broken: Some(why), ..Self::new([data], None, None) }
    }

    /// What was read until it was too much, and where the rest comes from.
    pub(super) fn part<const N: usize>(
        data: [Bytes; N],
        trailers: Option<HeaderMap>,
        rest: Option<Pin<Box<B>>>,
    ) -> Self {
        Self::new(data, trailers, rest)
    }

    fn new<const N: usize>(
        data: [Bytes; N],
        trailers: Option<HeaderMap>,
        rest: Option<Pin<Box<B>>>,
    ) -> Self {
        let data = data.into_iter().filter(|data| !data.is_empty()).map(Frame::Data);
        let read = data.chain(trailers.map(Frame::Trailers)).collect();
        Self { read, broken: None, rest }
    }
}

impl<B> Body for ReadBody<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        if let Some(frame) = self.read.pop_front() {
            return Poll::Ready(Some(Ok(match frame {
                Frame::Data(data) => http_body::Frame::data(data),
                Frame::Trailers(trailers) => http_body::Frame::trailers(trailers),
            })));
        }
        if let Some(why) = self.broken.take() {
            return Poll::Ready(Some(Err(why)));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let next = ready!(rest.as_mut().poll_frame(cx));
        if next.is_none() {
            // Not every body can be asked again.
            self.rest = None;
        }
        Poll::Ready(next.map(|frame| match frame {
            Ok(frame) => Ok(frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))),
            Err(why) => Err(why.into()),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty()
            && self.broken.is_none()
            && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.read.iter().map(|frame| match frame {
            Frame::Data(data) => data.len() as u64,
            Frame::Trailers(_) => 0,
        });
        let read: u64 = read.sum();
        let rest = match &self.rest {
            // How much would have come is not known.
            _ if self.broken.is_some() => SizeHint::default(),
            None => SizeHint::with_exact(0),
            Some(rest) => rest.size_hint(),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl<B> fmt::Debug for ReadBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBody").field("frames_read", &self.read.len()).finish_non_exhaustive()
    }
}
