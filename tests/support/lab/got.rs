//! What came of an answer, frame by frame.

use std::time::Instant;

use http::{HeaderMap, StatusCode};

use super::answer::role;

/// What was read of an answer.
#[derive(Clone)]
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) asked: Instant,
    pub(crate) body: Vec<u8>,
    /// Where each frame ends in the body, and when it came.
    pub(crate) frames: Vec<(usize, Instant)>,
    pub(crate) trailers: Option<HeaderMap>,
    /// Why the body broke off; none after a clean end.
    pub(crate) error: Option<String>,
    /// When the last of it came.
    pub(crate) at: Instant,
}

impl Got {
    /// What `Cache-Status` says of the caller's part.
    pub(crate) fn role(&self) -> &'static str {
        role(&self.headers)
    }

    /// The first line: the run's name and process.
    pub(crate) fn run(&self) -> String {
        let end = self.body.iter().position(|&byte| byte == b'\n').unwrap_or(0);
        String::from_utf8_lossy(&self.body[..end]).into_owned()
    }

    /// Whether this is the whole of one run's body, and nothing else: it ended well, and
    /// each byte is the one that the run gives there.
    pub(crate) fn is_whole(&self, bytes: usize) -> bool {
        self.error.is_none() && self.body.len() == bytes && self.is_part()
    }

    /// Whether each byte is the one that its run gives there.
    pub(crate) fn is_part(&self) -> bool {
        let line = match self.body.starts_with(b"run=") {
            true => self.body.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1),
            false => 0,
        };
        let pattern = b"0123456789abcdefghijklmnopqrstuvwxyz";
        self.body[line..].chunks(pattern.len()).all(|part| pattern.starts_with(part))
    }

    /// When so many bytes were there.
    pub(crate) fn when(&self, bytes: usize) -> Instant {
        let at = self.frames.partition_point(|(end, _)| *end < bytes);
        self.frames[at].1
    }

    /// Where each server-sent event ends.
    pub(crate) fn events(&self) -> Vec<usize> {
        let ends = self.body.windows(2).enumerate().filter(|(_, pair)| pair == b"\n\n");
        ends.map(|(at, _)| at + 2).collect()
    }
}

impl std::fmt::Debug for Got {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Got")
            .field("status", &self.status)
            .field("role", &self.role())
            .field("run", &self.run())
            .field("bytes", &self.body.len())
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
