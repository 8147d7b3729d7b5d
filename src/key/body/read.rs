//! Reading a body up to a limit.

use std::{future::poll_fn, pin::Pin};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request};
use http_body::Body;
use tower::BoxError;

use super::ReadBody;
use crate::key::{Bypass, Key, KeyBuilder};

/// The most bytes that are read for a key, unless told otherwise.
pub(in crate::key) const BODY_LIMIT: usize = 1024 * 1024;

/// All of a body.
#[derive(Default)]
pub(in crate::key) struct Whole {
    pub(in crate::key) data: Bytes,
    pub(in crate::key) trailers: Option<HeaderMap>,
}

/// Reads the body of a request and gives it back in its own type; `write` adds it to
/// the key of the head.
pub(in crate::key) async fn read_request<B, F, W>(
    request: Request<B>,
    head: Result<KeyBuilder, Bypass>,
    limit: usize,
    give_back: F,
    write: W,
) -> (Request<B>, Result<Key, Bypass>)
where
    B: Body<Error: Into<BoxError>> + Send,
    F: Fn(ReadBody<B>) -> B + Send,
    W: FnOnce(&Whole, &mut KeyBuilder) -> Result<(), Bypass> + Send,
{
    let mut key = match head {
        Ok(key) => key,
        // Not touched.
        Err(why) => return (request, Err(why)),
    };
    let (parts, body) = request.into_parts();
    let (body, whole) = read(body, limit).await;
    let key = whole.and_then(|whole| write(&whole, &mut key)).map(|()| key.build());
    (Request::from_parts(parts, give_back(body)), key)
}

/// Reads a body to its end, or until it is larger than `limit` or breaks off; gives
/// it back with all of its bytes.
///
/// Holds `limit` bytes and the frame that passes it at most.
pub(super) async fn read<B>(body: B, limit: usize) -> (ReadBody<B>, Result<Whole, Bypass>)
where
    B: Body<Error: Into<BoxError>>,
{
    let mut body = Box::pin(body);
    let mut prefix = Prefix { limit, ..Prefix::default() };
    while let Some(frame) = next(&mut body).await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(why) => {
                let read = ReadBody::broken(prefix.finish(), why.into());
                return (read, Err(Bypass::BodyFailed));
            }
        };
        match frame.into_data() {
            Ok(mut data) => {
                let data = data.copy_to_bytes(data.remaining());
                if data.len() > prefix.left() {
                    let read = ReadBody::part([prefix.finish(), data], None, Some(body));
                    return (read, Err(Bypass::BodyTooLarge));
                }
                prefix.push(data);
            }
            Err(frame) => {
                let Ok(trailers) = frame.into_trailers() else { continue };
                let size: usize = trailers.iter().map(|(n, v)| n.as_str().len() + v.len()).sum();
                if size > prefix.left() {
                    let read = ReadBody::part([prefix.finish()], Some(trailers), None);
                    return (read, Err(Bypass::BodyTooLarge));
                }
                return whole(prefix.finish(), Some(trailers));
            }
        }
    }
    whole(prefix.finish(), None)
}

fn whole<B>(data: Bytes, trailers: Option<HeaderMap>) -> (ReadBody<B>, Result<Whole, Bypass>) {
    let read = ReadBody::whole(data.clone(), trailers.clone());
    (read, Ok(Whole { data, trailers }))
}

async fn next<B: Body>(
    body: &mut Pin<Box<B>>,
) -> Option<Result<http_body::Frame<B::Data>, B::Error>> {
    if body.is_end_stream() {
        return None;
    }
    poll_fn(|cx| body.as_mut().poll_frame(cx)).await
}

/// What was read, in one piece: a body of tiny frames would cost many times its
/// length if each were kept.
#[derive(Default)]
struct Prefix {
    limit: usize,
    /// The first frame, as it came; most bodies have no second one.
    first: Bytes,
    all: Vec<u8>,
}

impl Prefix {
    fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }

    fn left(&self) -> usize {
        self.limit - self.len()
    }

    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&self.first);
        }
        let wanted = self.all.len() + data.len();
        if wanted > self.all.capacity() {
            // Twice as much as before, as vectors do, but never beyond the limit.
            let capacity = (wanted * 2).min(self.limit);
            self.all.reserve_exact(capacity - self.all.len());
        }
        self.all.extend_from_slice(&data);
    }

    fn finish(&mut self) -> Bytes {
        match self.all.is_empty() {
            true => std::mem::take(&mut self.first),
            false => Bytes::from(std::mem::take(&mut self.all)),
        }
    }
}
