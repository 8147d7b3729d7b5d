use std::{fmt, sync::Arc};

use tokio::{sync::mpsc, time::Instant};

use super::{KeeperHandle, Lease, keeper::Place};
use crate::{
    flights::RunEnd,
    id::{FlightRef, KeyDigest, WaiterId},
    store::{BoxFuture, Join, Joined},
};

/// Ties a running inner future, its heartbeat and the store's lease together.
///
/// It ends in one of three ways: [`finished`](Self::finished), when the store has
/// been told how the flight ended; [`detached`](Self::detached), when the run goes
/// on without a lease; or dropped, which drops the run first, then ends the
/// heartbeat and lets the lease go, without waiting for the store.
pub(crate) struct OwnerGuard {
    run: Option<BoxFuture<'static, RunEnd>>,
    held: Option<Held>,
}

struct Held {
    key: KeyDigest,
    lease: Arc<Lease>,
    keeper: Arc<KeeperHandle>,
    place: Place,
}

impl OwnerGuard {
    /// Starts the heartbeat of a lease that was asked for at `asked`.
    pub(crate) fn new(
        keeper: &Arc<KeeperHandle>,
        key: KeyDigest,
        flight: FlightRef,
        asked: Instant,
    ) -> Self {
        Self { run: None, held: Some(Held::new(keeper, key, flight, asked)) }
    }

    /// Goes on under a new lease; the old one is gone in the store.
    pub(crate) fn renew(
        &mut self,
        keeper: &Arc<KeeperHandle>,
        key: KeyDigest,
        flight: FlightRef,
        asked: Instant,
    ) {
        self.end_heartbeat();
        self.held = Some(Held::new(keeper, key, flight, asked));
    }

    /// A guard for a run without a lease.
    pub(crate) fn without_lease() -> Self {
        Self { run: None, held: None }
    }

    /// Drops the run; the lease is kept.
    pub(crate) fn stop(&mut self) {
        self.run = None;
    }

    /// Puts the run into the guard's keeping.
    pub(crate) fn begin(&mut self, run: BoxFuture<'static, RunEnd>) {
        self.run = Some(run);
    }

    /// Drives the run to its end. Cancel-safe: the run stays in the guard.
    pub(crate) async fn run(&mut self) -> RunEnd {
        match &mut self.run {
            Some(run) => {
                let end = run.as_mut().await;
                self.run = None;
                end
            }
            None => std::future::pending().await,
        }
    }

    /// The lease, until it is given up.
    pub(crate) fn lease(&self) -> Option<&Arc<Lease>> {
        self.held.as_ref().map(|held| &held.lease)
    }

    /// Whether what the run gives may still be handed on and published.
    pub(crate) fn stands(&self) -> bool {
        self.held.as_ref().is_none_or(|held| held.lease.stands())
    }

    /// The store knows the end: nothing is left to be let go.
    pub(crate) fn finished(mut self) {
        self.end_heartbeat();
    }

    /// Gives the lease up, here and in the store; the run goes on without.
    pub(crate) fn detach(&mut self) {
        if let Some(held) = self.end_heartbeat() {
            held.release();
        }
    }

    fn end_heartbeat(&mut self) -> Option<Held> {
        let held = self.held.take()?;
        held.keeper.with(|state, _| state.dismiss(held.place));
        Some(held)
    }
}

impl Held {
    fn new(keeper: &Arc<KeeperHandle>, key: KeyDigest, flight: FlightRef, asked: Instant) -> Self {
        let lease = Arc::new(Lease::new(flight, asked, keeper.terms().stands()));
        let place = keeper.with(|state, now| state.hold(key, Arc::clone(&lease), asked, now));
        Self { key, lease, keeper: Arc::clone(keeper), place }
    }

    fn release(self) {
        let flight = self.lease.flight();
        self.keeper.with(|state, now| state.release(self.key, flight.id, Some(flight.token), now));
    }
}

impl Drop for OwnerGuard {
    fn drop(&mut self) {
        // The lease must not be free while the run can still do something.
        self.run = None;
        self.detach();
    }
}

impl fmt::Debug for OwnerGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerGuard").field("lease", &self.lease()).finish_non_exhaustive()
    }
}

/// Keeps a waiter's mark in the store and looks at what it waits for, each beat.
/// Dropped, it ends both.
#[derive(Debug)]
pub(crate) struct WatchGuard {
    key: KeyDigest,
    waiter: WaiterId,
    keeper: Arc<KeeperHandle>,
    place: Place,
    seen: mpsc::UnboundedReceiver<Joined>,
}

impl WatchGuard {
    /// Watches what `join` follows.
    pub(crate) fn new(keeper: &Arc<KeeperHandle>, key: KeyDigest, join: Join) -> Self {
        let (sender, seen) = mpsc::unbounded_channel();
        let waiter = join.waiter;
        let place = keeper.with(|state, now| state.watch(key, join, sender, now));
        Self { key, waiter, keeper: Arc::clone(keeper), place, seen }
    }

    /// What the next look found. Cancel-safe. Pends once watching has ended.
    pub(crate) async fn seen(&mut self) -> Joined {
        match self.seen.recv().await {
            Some(joined) => joined,
            None => std::future::pending().await,
        }
    }

    /// Takes the waiter's mark away, for one who leaves before the end.
    pub(crate) fn leave(self) {
        let (key, waiter) = (self.key, self.waiter);
        self.keeper.with(|state, now| state.leave(key, waiter, now));
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.keeper.with(|state, _| state.dismiss(self.place));
    }
}
