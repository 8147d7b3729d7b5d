//! Failed operations, by kind.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::StoreErrorKind;

/// Counts that only grow.
#[derive(Debug)]
pub(super) struct ErrorCounts([AtomicU64; StoreErrorKind::ALL.len()]);

impl Default for ErrorCounts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl ErrorCounts {
    pub(super) fn count(&self, kind: StoreErrorKind) {
        if let Some(count) = self.0.get(kind as usize) {
            count.fetch_add(1, Ordering::Relaxed);
            #[cfg(feature = "metrics")]
            metrics::counter!("single_flight_store_errors_total", "kind" => kind.name())
                .increment(1);
        }
    }

    /// The kinds that there were, and how often.
    pub(super) fn snapshot(&self) -> Vec<(StoreErrorKind, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        StoreErrorKind::ALL.iter().copied().zip(counts).filter(|(_, count)| *count > 0).collect()
    }
}
