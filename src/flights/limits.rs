//! How many callers may wait.

use crate::sync::atomic::{AtomicUsize, Ordering};

/// How many followers flights may have in this process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) per_key: Option<usize>,
    pub(crate) in_all: Option<usize>,
}

/// Which of the limits a caller has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Key,
    All,
}

/// Counts the followers of all flights.
pub(super) struct Followers {
    limits: Limits,
    count: AtomicUsize,
}

impl Followers {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, count: AtomicUsize::new(0) }
    }

    /// Lets one more in, beside `others` of its flight.
    pub(super) fn admit(&self, others: usize) -> Result<(), Full> {
        if self.limits.per_key.is_some_and(|most| others >= most) {
            return Err(Full::Key);
        }
        let most = self.limits.in_all.unwrap_or(usize::MAX);
        let admitted = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < most).then_some(count + 1)
        });
        admitted.map(drop).map_err(|_| Full::All)
    }

    /// One has left.
    pub(super) fn dismiss(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
