//! Tells connections that are of no more use.

use std::time::{Duration, Instant};

use bb8_redis::redis::RedisError;

use super::error;
use crate::store::StoreErrorKind;

/// Watches one wait for an answer. Calls `lost` where the connection broke, and
/// where it was silent for so long that whoever waited gave up: a server that is
/// gone without a word never says so.
pub(super) struct Suspect<F: Fn()> {
    lost: F,
    patience: Instant,
    waiting: bool,
}

impl<F: Fn()> Suspect<F> {
    pub(super) fn new(limit: Duration, lost: F) -> Self {
        // Part of the limit may have gone by before: half of it is long enough.
        Self { lost, patience: Instant::now() + limit / 2, waiting: true }
    }

    pub(super) fn answered(mut self, error: Option<&RedisError>) {
        self.waiting = false;
        let gone = |error| {
            let kind = error::from_redis(error).kind();
            matches!(kind, StoreErrorKind::Disconnected | StoreErrorKind::TimedOut)
        };
        if error.is_some_and(gone) {
            (self.lost)();
        }
    }
}

impl<F: Fn()> Drop for Suspect<F> {
    fn drop(&mut self) {
        if self.waiting && Instant::now() >= self.patience {
            (self.lost)();
        }
    }
}
