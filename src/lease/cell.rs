use std::time::Duration;

use tokio::time::Instant;

use crate::{
    id::FlightRef,
    sync::{
        Notified, Notify,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
};

/// What keeper and driver share of one lease.
#[derive(Debug)]
pub(crate) struct Lease {
    flight: FlightRef,
    granted: Instant,
    /// Nanoseconds from `granted` until the lease is over by our own clock.
    deadline: AtomicU64,
    /// Processes that wait elsewhere, as of the last renewal.
    waiters: AtomicU32,
    /// Set while no caller is left here: the driver then wants every renewal.
    attentive: AtomicBool,
    end: AtomicU8,
    /// For the driver.
    changed: Notify,
    /// Told of each renewal and of the end.
    news: Notify,
}

/// Why a lease is over although its run is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// The store says that somebody else owns.
    Superseded,
    /// The store has no record of it.
    Missing,
    /// It was forgotten.
    Forgotten,
    /// It was stopped.
    Stopped,
    /// No renewal was confirmed in time.
    Silence,
    /// The run passed its hard timeout.
    HardTimeout,
    /// The run had begun to answer, and gave nothing for too long.
    IdleTimeout,
}

impl LeaseEnd {
    /// Whether the run passed a time limit.
    pub(crate) fn is_timeout(self) -> bool {
        matches!(self, Self::HardTimeout | Self::IdleTimeout)
    }
}

const HELD: u8 = 0;
/// Beyond all of [`ENDS`].
const CONCLUDED: u8 = u8::MAX;
const ENDS: [LeaseEnd; 7] = [
    LeaseEnd::Superseded,
    LeaseEnd::Missing,
    LeaseEnd::Forgotten,
    LeaseEnd::Stopped,
    LeaseEnd::Silence,
    LeaseEnd::HardTimeout,
    LeaseEnd::IdleTimeout,
];

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Lease {
    /// A lease that was asked for at `granted` and stands for `term`, which is the
    /// time in the store less the margin.
    pub(crate) fn new(flight: FlightRef, granted: Instant, term: Duration) -> Self {
        Self {
            flight,
            granted,
            deadline: AtomicU64::new(nanos(term)),
            waiters: AtomicU32::new(0),
            attentive: AtomicBool::new(false),
            end: AtomicU8::new(HELD),
            changed: Notify::new(),
            news: Notify::new(),
        }
    }

    pub(crate) fn flight(&self) -> FlightRef {
        self.flight
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.granted + Duration::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Whether what the run gives may be handed on: read from the clock, since the
    /// keeper may be late to say so.
    pub(crate) fn stands(&self) -> bool {
        self.end().is_none() && Instant::now() < self.deadline()
    }

    pub(crate) fn end(&self) -> Option<LeaseEnd> {
        match self.end.load(Ordering::Acquire) {
            HELD | CONCLUDED => None,
            end => ENDS.get(usize::from(end - 1)).copied(),
        }
    }

    pub(crate) fn waiters(&self) -> u32 {
        self.waiters.load(Ordering::Acquire)
    }

    pub(crate) fn set_waiters(&self, waiters: u32) {
        self.waiters.store(waiters, Ordering::Release);
        self.news.notify_waiters();
    }

    /// Ready at the next renewal, or at the end. Made before the look that it is about,
    /// it misses none.
    pub(crate) fn news(&self) -> Notified<'_> {
        self.news.notified()
    }

    pub(crate) fn set_attentive(&self, attentive: bool) {
        self.attentive.store(attentive, Ordering::Release);
    }

    /// A renewal that was sent at `sent` is confirmed.
    pub(super) fn renewed(&self, sent: Instant, term: Duration, waiters: u32) {
        let deadline = sent.saturating_duration_since(self.granted) + term;
        self.deadline.fetch_max(nanos(deadline), Ordering::AcqRel);
        self.set_waiters(waiters);
        if self.attentive.load(Ordering::Acquire) {
            self.changed.notify_one();
        }
    }

    /// Makes the driver look.
    pub(super) fn call(&self) {
        self.changed.notify_one();
    }

    /// Ends the lease; the first reason stands. True where this is it.
    pub(super) fn finish(&self, end: LeaseEnd) -> bool {
        let code = ENDS.iter().position(|known| *known == end).map_or(HELD, |at| at as u8 + 1);
        let first = self.leave_held(code);
        self.news.notify_waiters();
        self.changed.notify_one();
        first
    }

    /// The run has ended, and the store is yet to hear of it: from now on only the
    /// clock ends the lease. False where it has ended before.
    pub(crate) fn conclude(&self) -> bool {
        self.leave_held(CONCLUDED) && self.stands()
    }

    fn leave_held(&self, code: u8) -> bool {
        self.end.compare_exchange(HELD, code, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether its run goes on under it.
    pub(super) fn is_held(&self) -> bool {
        self.end.load(Ordering::Acquire) == HELD
    }

    /// Waits for the next thing the driver must look at. Cancel-safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
