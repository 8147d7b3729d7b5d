//! What every operation goes through: the time limit, the breaker, the count.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    breaker::{Admission, Breaker},
    counts::ErrorCounts,
    error,
};
use crate::store::{StoreError, StoreErrorKind};

/// So many operation limits a large record may take: 8 MiB in two seconds, by default.
pub(super) const TRANSFER: u32 = 8;

/// Guards the way to one server.
#[derive(Debug)]
pub(super) struct Gate {
    breaker: Mutex<Breaker>,
    errors: Arc<ErrorCounts>,
    limit: Duration,
    address: String,
}

impl Gate {
    pub(super) fn new(limit: Duration, address: String, errors: Arc<ErrorCounts>) -> Self {
        Self { breaker: Mutex::default(), errors, limit, address }
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    pub(super) fn is_open(&self) -> bool {
        self.breaker().is_open()
    }

    /// Whether an operation may go out now.
    pub(super) fn admit(&self) -> Admission {
        self.breaker().admit(Instant::now())
    }

    /// What an operation gets that may not.
    pub(super) fn refused(&self) -> StoreError {
        self.errors.count(StoreErrorKind::Open);
        let why = "the store does not answer: it is not asked for a moment";
        StoreError::new(StoreErrorKind::Open, why)
    }

    /// Runs an operation that may go out, within this limit.
    pub(super) async fn run<T>(
        &self,
        probe: bool,
        limit: Duration,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut forgo = Forgo { gate: self, armed: probe };
        let result = within(limit, operation).await;
        forgo.armed = false;
        match &result {
            Ok(_) => self.succeeded(),
            Err(error) => self.failed(error, probe),
        }
        result
    }

    /// Moves a large record: it may take longer, and how long it takes says nothing of
    /// the server's health.
    pub(super) async fn transfer<T>(
        &self,
        limit: Duration,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let result = within(limit, operation).await;
        match &result {
            Ok(_) => self.succeeded(),
            Err(error) if error.kind() == StoreErrorKind::TimedOut => self.count(error),
            Err(error) => self.failed(error, false),
        }
        result
    }

    /// Something came back, by whichever way.
    pub(super) fn succeeded(&self) {
        if self.breaker().success() {
            tracing::warn!(address = %self.address, "the store answers again");
        }
    }

    /// Counts what failed beside the breaker.
    pub(super) fn count(&self, error: &StoreError) {
        self.errors.count(error.kind());
    }

    fn failed(&self, error: &StoreError, probe: bool) {
        self.count(error);
        // An answer that makes no sense concerns one key: the store is there.
        if error.kind() == StoreErrorKind::Reply {
            return self.succeeded();
        }
        if self.breaker().failure(probe, Instant::now()) {
            tracing::warn!(address = %self.address, %error, "the store does not answer");
        }
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn within<T>(
    limit: Duration,
    operation: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let result = tokio::time::timeout(limit, operation).await;
    result.unwrap_or_else(|_| Err(error::timed_out()))
}

/// Frees the probe's place where its future is dropped.
struct Forgo<'a> {
    gate: &'a Gate,
    armed: bool,
}

impl Drop for Forgo<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.gate.breaker().forgo(Instant::now());
        }
    }
}
