//! Frames: the pieces of a response, in the order in which they came.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// What comes before the body.
///
/// Shaped as HTTP has it; a codec for something else puts what it needs into
/// these two fields, or leaves them as they are.
#[derive(Clone, Debug)]
pub struct Head {
    /// The status of the response.
    pub status: StatusCode,
    /// The header fields, in the order in which inner gave them.
    pub headers: HeaderMap,
}

/// One piece of a body.
#[derive(Clone, Debug)]
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
            Self::Trailers(map) => map.iter().map(|(n, v)| n.as_str().len() + v.len()).sum(),
        }
    }
}
