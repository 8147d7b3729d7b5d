use std::{
    any::type_name,
    convert::Infallible,
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::{Body, SizeHint};
use serde::{Serialize, de::DeserializeOwned};

use super::{Asked, Codec, FlightError, Judgement, Opened, gist::gist};
use crate::{
    body::{Replay, Resumed},
    cache_status::FlightRole,
    error::Failure,
    frame::{Frame, Head},
};

/// The codec of services whose response is a value: what `T` says to serde is
/// shared, by way of [postcard](https://docs.rs/postcard).
///
/// The caller whose request is run gets inner's own value, which needs no `Clone`;
/// all others get one that was read back. The layer's error is a [`FlightError`]:
/// inner's own, or the [`Failure`] of a run that was another caller's.
///
/// # What is shared
///
/// A value is shared only where others read back what was written: with the value
/// goes a digest over its names, kinds and contents as `Serialize` gives them. So a
/// caller never gets the value of another type, or of another release of the type,
/// in place of its own.
///
/// - A value that cannot be written, or leaves out a field
///   (`skip_serializing_if`), stays with its own caller; all others run their own
///   requests, at once.
/// - A caller that cannot read a value (untagged enums, `flatten`,
///   `serde_json::Value`; two types, or two releases of one, under one
///   [namespace](crate::SingleFlightLayer::namespace)) runs its own request, too.
///   Where that was used up already, it gets a failure of the kind
///   [`Unreadable`](crate::FailureKind::Unreadable).
///
/// Both cost sharing and are logged as warnings. A namespace for each release in
/// which `T` changes lets callers of each release share among themselves.
///
/// Inner's errors are not shared, but for their text; a `Result` inside `T` is.
pub struct ValueCodec<T> {
    value: PhantomData<fn() -> T>,
}

impl<T> ValueCodec<T> {
    /// The codec.
    #[must_use]
    pub const fn new() -> Self {
        Self { value: PhantomData }
    }
}

impl<T> Default for ValueCodec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for ValueCodec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ValueCodec<T> {}

impl<T> fmt::Debug for ValueCodec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ValueCodec").field(&format_args!("{}", type_name::<T>())).finish()
    }
}

/// Tells the record of a value from that of an HTTP response, and holds the gist.
pub(super) const MARK: HeaderName = HeaderName::from_static("x-tower-singleflight-value");

impl<Req, T, E> Codec<Req, T, E> for ValueCodec<T>
where
    T: Serialize + DeserializeOwned + Send + 'static,
    E: fmt::Display,
{
    type Response = T;
    type Error = FlightError<E>;
    type Body = ValueBody;
    type Extra = T;

    fn is_streamed(&self) -> bool {
        false
    }

    fn judge(&self, _: &T, _: &Asked<'_>) -> Judgement {
        Judgement::shared()
    }

    fn open(&self, value: T) -> Result<Opened<T, ValueBody>, T> {
        let Some((mark, bytes)) = guarded(|| write(&value)) else {
            let of = type_name::<T>();
            tracing::warn!(of, "a value is not shared: it cannot be written as it is");
            return Err(value);
        };
        let mut headers = HeaderMap::with_capacity(1);
        headers.insert(MARK, mark);
        let head = Head { status: StatusCode::OK, headers };
        Ok(Opened { head, promised: None, extra: value, body: ValueBody::new(bytes) })
    }

    fn replay(&self, head: &Head, own: Option<T>, body: Replay, _: FlightRole) -> Option<T> {
        own.or_else(|| {
            let mark = head.headers.get(MARK)?;
            let bytes = whole(body)?;
            guarded(|| read(mark, &bytes))
        })
    }

    fn resume(&self, _: &Head, own: T, _: Resumed<ValueBody>, _: FlightRole) -> T {
        own
    }

    fn pass(&self, value: T, _: FlightRole) -> T {
        value
    }

    fn error(&self, error: E) -> FlightError<E> {
        FlightError::Inner(error)
    }

    fn failure(&self, failure: Failure) -> Result<T, FlightError<E>> {
        Err(FlightError::Failure(failure))
    }

    fn describe(&self, error: &E) -> String {
        error.to_string()
    }
}

/// A panic of `T` itself would take more callers with it than the one it belongs to.
fn guarded<V>(f: impl FnOnce() -> Option<V>) -> Option<V> {
    catch_unwind(AssertUnwindSafe(f)).ok().flatten()
}

/// `1-` and the gist in hexadecimal digits.
fn mark(gist: u64) -> [u8; 18] {
    let mut mark = *b"1-0000000000000000";
    for (at, digit) in mark[2..].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(gist >> (60 - 4 * at)) as usize & 15];
    }
    mark
}

fn write<T: Serialize>(value: &T) -> Option<(HeaderValue, Bytes)> {
    let mark = HeaderValue::from_bytes(&mark(gist(value)?)).ok()?;
    Some((mark, postcard::to_stdvec(value).ok()?.into()))
}

fn read<T: Serialize + DeserializeOwned>(found: &HeaderValue, bytes: &[u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    (rest.is_empty() && *found == mark(gist(&value)?)[..]).then_some(value)
}

/// The bytes of a body that is there already, in whatever pieces it came.
fn whole(body: Replay) -> Option<Bytes> {
    body.gather(Bytes::new(), |all, frame| match frame {
        // A value that this process wrote is one piece.
        Frame::Data(piece) if all.is_empty() => Some(piece),
        Frame::Data(piece) => Some([all, piece].concat().into()),
        Frame::Trailers(_) => None,
    })
}

/// A written value, as one piece.
pub struct ValueBody(Bytes);

impl ValueBody {
    fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl Body for ValueBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let bytes = std::mem::take(&mut self.0);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(http_body::Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

impl fmt::Debug for ValueBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueBody").field("bytes", &self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests;
