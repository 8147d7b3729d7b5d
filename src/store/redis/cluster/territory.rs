//! What a node has.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::map::Range;

/// The slots of one node, as far as is known.
#[derive(Debug, Default)]
pub(in super::super) struct Territory(Mutex<Vec<Range>>);

impl Territory {
    pub(in super::super) fn has(&self, slot: u16) -> bool {
        self.ranges().iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.ranges().is_empty()
    }

    pub(super) fn set(&self, ranges: Vec<Range>) {
        *self.ranges() = ranges;
    }

    fn ranges(&self) -> MutexGuard<'_, Vec<Range>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
