use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::Lease;
use crate::sync::{
    Mutex, MutexGuard, Notify, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// A run's leave to hand on what it gives: while its lease stands, and for good
/// where it goes on without one. In return it gives signs of life.
#[derive(Debug)]
pub(crate) struct Permit {
    lease: Mutex<Option<Arc<Lease>>>,
    changed: Notify,
    since: Instant,
    /// Nanoseconds from then to the last sign of life; 0 before the first.
    pulse: AtomicU64,
}

impl Permit {
    pub(super) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self {
            lease: Mutex::default(),
            changed: Notify::new(),
            since: now,
            pulse: AtomicU64::new(0),
        })
    }

    /// When the run was let go.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// The run has given something of its answer.
    pub(crate) fn beat(&self) {
        let nanos = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.pulse.store(nanos.max(1), Ordering::Release);
    }

    /// When the run will have given nothing for so long; none while it has not begun
    /// to answer.
    pub(crate) fn idle_at(&self, limit: Duration) -> Option<Instant> {
        match self.pulse.load(Ordering::Acquire) {
            0 => None,
            last => Some(self.since + Duration::from_nanos(last) + limit),
        }
    }

    fn lease(&self) -> MutexGuard<'_, Option<Arc<Lease>>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, lease: Option<Arc<Lease>>) {
        *self.lease() = lease;
        self.changed.notify_waiters();
    }

    /// Whether what the run has may be handed on.
    pub(crate) fn is_granted(&self) -> bool {
        self.lease().as_ref().is_none_or(|lease| lease.stands())
    }

    /// Waits until what the run has may be handed on; for ever where it never may.
    pub(crate) async fn granted(&self) {
        loop {
            let changed = self.changed.notified();
            let lease = self.lease().clone();
            let Some(lease) = lease else { return };
            let news = lease.news();
            if lease.stands() {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = news => {}
            }
        }
    }
}
