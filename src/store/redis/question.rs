//! What is asked about one key, and by which way.

use std::time::Duration;

use super::{
    gate::{Gate, TRANSFER},
    pool::Request,
    seat::Seat,
    vigil::RedisVigil,
};
use crate::id::KeyDigest;

/// A question about one key.
pub(super) struct Question<'a> {
    pub(super) key: KeyDigest,
    pub(super) request: Request<'a>,
    pub(super) way: Way<'a>,
}

/// How it goes out.
pub(super) enum Way<'a> {
    /// On a connection that scripts share.
    Small,
    /// On the connection of large records, and in their time.
    Large,
    /// On the line that pushes come by, from this seat, which it takes first; as `Small`
    /// where there is no line.
    Seated(&'a mut Option<Seat>),
    /// On that line, which tells of the next change of what is read; not at all where that
    /// cannot be had.
    Tracked {
        /// None where that cannot be had.
        vigil: &'a mut Option<RedisVigil>,
        silence: Duration,
    },
}

impl Question<'_> {
    /// How long it may take, with all waiting.
    pub(super) fn limit(&self, gate: &Gate) -> Duration {
        match self.way {
            Way::Large => gate.limit() * TRANSFER,
            Way::Small | Way::Seated(_) | Way::Tracked { .. } => gate.limit(),
        }
    }
}
