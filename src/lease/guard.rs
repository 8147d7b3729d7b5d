use std::{fmt, sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::Instant};

use super::{KeeperHandle, Lease, Permit, keeper::Place};
use crate::{
    id::{FlightRef, KeyDigest, WaiterId},
    store::{BoxFuture, Join, Joined},
};

/// Ties a running inner future, its heartbeat and the store's lease together.
///
/// It ends in one of three ways: [`finished`](Self::finished), when the store has
/// been told how the flight ended; [`detach`](Self::detach), when the run goes on
/// without a lease; or dropped, which drops the run first, then ends the
/// heartbeat and lets the lease go, without waiting for the store.
pub(crate) struct OwnerGuard<T> {
    // Dropped in this order, also where the run panics when it is dropped: the lease
    // must not be free while the run can still do something.
    run: Option<BoxFuture<'static, T>>,
    held: Option<Held>,
    permit: Arc<Permit>,
    /// When the run is over its time limit, with a lease or without; none where it
    /// belongs to its own callers for good.
    limit: Option<Instant>,
}

/// Dropped, it ends the heartbeat and lets the lease go.
struct Held {
    key: KeyDigest,
    lease: Arc<Lease>,
    keeper: Arc<KeeperHandle>,
    place: Place,
    /// The store knows that it is over.
    told: bool,
}

impl<T> OwnerGuard<T> {
    /// Starts the heartbeat of a lease that was asked for at `asked`.
    pub(crate) fn new(
        keeper: &Arc<KeeperHandle>,
        key: KeyDigest,
        flight: FlightRef,
        asked: Instant,
    ) -> Self {
        let mut this = Self::without_lease(keeper);
        this.hold(keeper, key, flight, asked);
        this
    }

    fn hold(
        &mut self,
        keeper: &Arc<KeeperHandle>,
        key: KeyDigest,
        flight: FlightRef,
        asked: Instant,
    ) {
        let lease = Arc::new(Lease::new(flight, asked, keeper.terms().stands()));
        self.permit.set(Some(Arc::clone(&lease)));
        let limit = self.limit.unwrap_or(asked);
        let place = keeper.with(|state, _| {
            state.hold(key, Arc::clone(&lease), Arc::clone(&self.permit), asked, limit)
        });
        let keeper = Arc::clone(keeper);
        self.held = Some(Held { key, lease, keeper, place, told: false });
    }

    /// Goes on under a new lease; the old one is gone in the store.
    pub(crate) fn renew(
        &mut self,
        keeper: &Arc<KeeperHandle>,
        key: KeyDigest,
        flight: FlightRef,
        asked: Instant,
    ) {
        self.told();
        self.hold(keeper, key, flight, asked);
    }

    /// A guard for a run without a lease.
    pub(crate) fn without_lease(keeper: &KeeperHandle) -> Self {
        let now = Instant::now();
        let limit = Some(now + keeper.terms().hard_timeout);
        Self { run: None, held: None, permit: Permit::new(now), limit }
    }

    /// When the run is over its time limit, the hard one or that for being idle; none
    /// where it has no limits.
    pub(crate) fn limit(&self, idle: Duration) -> Option<Instant> {
        let hard = self.limit?;
        Some(self.permit.idle_at(idle).map_or(hard, |idle| idle.min(hard)))
    }

    /// The run's leave to hand on what it gives.
    pub(crate) fn permit(&self) -> &Arc<Permit> {
        &self.permit
    }

    /// The run has begun to answer: from now on it may be idle.
    pub(crate) fn begun(&self) {
        if let Some(held) = &self.held {
            held.keeper.with(|state, _| state.look(self.permit.idle_at(state.idle_timeout())));
        }
    }

    /// Drops the run; the lease is kept.
    pub(crate) fn stop(&mut self) {
        self.run = None;
    }

    /// Puts the run into the guard's keeping.
    pub(crate) fn begin(&mut self, run: BoxFuture<'static, T>) {
        self.run = Some(run);
    }

    /// Drives the run to its end. Cancel-safe: the run stays in the guard.
    pub(crate) async fn run(&mut self) -> T {
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
        self.told();
    }

    /// Gives the lease up, here and in the store; the run goes on without.
    pub(crate) fn detach(&mut self) {
        self.held = None;
        self.permit.set(None);
    }

    /// Gives the lease up, of which the store knows already if `told`; the run goes on
    /// for its own callers, for as long as they like.
    pub(crate) fn release_to_callers(&mut self, told: bool) {
        if told {
            self.told();
        }
        self.limit = None;
        self.detach();
    }

    fn told(&mut self) {
        if let Some(held) = &mut self.held {
            held.told = true;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let FlightRef { token, id } = self.lease.flight();
        self.keeper.with(|state, now| {
            state.dismiss(self.place);
            if !self.told {
                state.release(self.key, id, Some(token), now);
            }
        });
    }
}

impl<T> fmt::Debug for OwnerGuard<T> {
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

    /// What the next look found. Cancel-safe. Pends once the flight has ended;
    /// `None` where the keeper is gone and the watch with it.
    pub(crate) async fn seen(&mut self) -> Option<Joined> {
        self.seen.recv().await
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
