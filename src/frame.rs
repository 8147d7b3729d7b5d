//! Frames: the pieces of a response, in the order in which they came.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};

/// Header fields that say when and by which way an answer was made: two runs differ in
/// them, whatever was asked.
pub(crate) const OF_THE_RUN: &[&str] = &["age", "cache-status", "date", "expires", "server-timing"];

/// What comes before the body.
///
/// Shaped as HTTP has it; a codec for something else puts what it needs into
/// these two fields, or leaves them as they are.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "codecs make it")]
pub struct Head {
    /// The status of the response.
    pub status: StatusCode,
    /// The header fields, in the order in which inner gave them.
    pub headers: HeaderMap,
}

impl Head {
    /// The bytes that its header fields have.
    pub(crate) fn size(&self) -> usize {
        size(&self.headers)
    }

    /// One that keeps nothing else in memory.
    pub(crate) fn copied(&self) -> Self {
        Self { status: self.status, headers: copied(&self.headers) }
    }
}

fn size(map: &HeaderMap) -> usize {
    map.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Values may be parts of what was read from a connection at once.
pub(crate) fn copied(map: &HeaderMap) -> HeaderMap {
    let mut copy = map.clone();
    for value in copy.values_mut() {
        let is_sensitive = value.is_sensitive();
        // It is one already.
        if let Ok(own) = HeaderValue::from_bytes(value.as_bytes()) {
            *value = own;
            value.set_sensitive(is_sensitive);
        }
    }
    copy
}

/// One piece of a body.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, reason = "a body has no other pieces")]
pub enum Frame {
    /// Bytes of the body; never empty.
    Data(Bytes),
    /// Trailers; nothing follows them.
    Trailers(HeaderMap),
}

impl Frame {
    /// The bytes this frame counts against a flight's limit.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Data(bytes) => bytes.len(),
            Self::Trailers(map) => size(map),
        }
    }
}
