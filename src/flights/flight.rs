//! One local flight: its callers, what they left, and what became of it.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use slab::Slab;
use tokio::{
    sync::{Notify, futures::OwnedNotified},
    time::Instant,
};

use super::{FlightInfo, FlightPhase, Flights, info::Position};
use crate::{
    error::{Failure, FailureKind},
    frame::Head,
    id::KeyDigest,
    log::Log,
    store::BoxFuture,
};

/// A request and a service that could run it, as the table sees them.
pub(crate) trait Deposit: Send + Sync {
    /// Takes the request out and runs it. `None` when its caller has left.
    fn start(self: Arc<Self>, brief: Brief) -> Option<BoxFuture<'static, RunEnd>>;

    /// Whether a request that was started could be run again.
    fn is_repeatable(&self) -> bool;

    /// Puts a request back that was started and can be run again. False where it
    /// cannot, or its caller has left.
    fn restore(&self) -> bool;
}

/// What a run needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brief {
    /// The fencing token; none for a run without a lease.
    pub(crate) token: Option<u64>,
    /// The most bytes that are kept to be shared.
    pub(crate) max_share_bytes: usize,
}

/// How a run ended. What belongs to the caller whose run it was has been handed
/// to that caller already.
#[derive(Debug)]
pub(crate) enum RunEnd {
    /// With an answer for all.
    Shared(SharedRun),
    /// With an answer for its own caller only.
    Private {
        /// Time to the head.
        took: Duration,
    },
    /// With more bytes than are shared; the rest goes to its own caller.
    TooLarge,
    /// With an error, a panic, or a body that broke off.
    Failed {
        /// The error's text.
        report: String,
    },
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct SharedRun {
    pub(crate) head: Arc<Head>,
    pub(crate) log: Arc<Log>,
    /// Whether callers that come after the end may have it inside the reuse window.
    pub(crate) reusable: bool,
}

/// Where a shared answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From a run of this process.
    Here,
    /// From the flight of another process.
    Elsewhere,
    /// From a flight that had ended before.
    Reused,
}

/// What became of a flight, for its callers.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// All get this answer.
    Replay { run: SharedRun, origin: Origin },
    /// Each runs its own request, at once.
    Alone,
    /// All get this failure.
    Failed(Failure),
}

/// One key's flight in this process.
pub(crate) struct Flight {
    key: KeyDigest,
    table: Arc<Flights>,
    seats: Mutex<Seats>,
    verdict: OnceLock<Verdict>,
    /// Wakes the callers.
    stirred: Arc<Notify>,
    /// Wakes the driver when the last caller has left.
    vacated: Notify,
    /// How many drivers it had; too many of them died.
    drivers: AtomicU32,
    orphaned: AtomicBool,
    settled: AtomicBool,
    settling: Notify,
    /// Kept until it has settled.
    before: Mutex<Option<Arc<Flight>>>,
    /// A lease is being asked for.
    asking: AtomicBool,
    since: Instant,
    position: Position,
}

#[derive(Default)]
struct Seats {
    /// A place for each caller; empty once its request was taken.
    places: Slab<Option<Arc<dyn Deposit>>>,
    closed: bool,
}

/// A flight whose drivers die this often fails its callers.
const DRIVERS: u32 = 3;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while these locks are held, so what is behind them is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flight {
    pub(super) fn new(key: KeyDigest, table: Arc<Flights>, before: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            key,
            table,
            seats: Mutex::default(),
            verdict: OnceLock::new(),
            stirred: Arc::default(),
            vacated: Notify::new(),
            drivers: AtomicU32::new(1),
            orphaned: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            settling: Notify::new(),
            before: Mutex::new(before),
            asking: AtomicBool::new(false),
            since: Instant::now(),
            position: Position::default(),
        })
    }

    /// The share of the caller that the flight is made for.
    pub(super) fn first(self: &Arc<Self>, deposit: Arc<dyn Deposit>) -> Share {
        let place = lock(&self.seats).places.insert(Some(deposit));
        Share { flight: Arc::clone(self), place }
    }

    /// Takes a share, or gives the deposit back where the flight is closed.
    pub(super) fn enter(
        self: &Arc<Self>,
        deposit: Arc<dyn Deposit>,
    ) -> Result<Share, Arc<dyn Deposit>> {
        let mut seats = lock(&self.seats);
        if seats.closed {
            return Err(deposit);
        }
        let place = seats.places.insert(Some(deposit));
        Ok(Share { flight: Arc::clone(self), place })
    }

    pub(crate) fn key(&self) -> KeyDigest {
        self.key
    }

    /// Whether its run is one of this process.
    pub(crate) fn runs_here(&self) -> bool {
        matches!(self.position.get().0, FlightPhase::Owning | FlightPhase::Local)
    }

    /// What can be told of it.
    pub(crate) fn info(&self) -> FlightInfo {
        let (phase, token) = self.position.get();
        let callers = lock(&self.seats).places.len();
        FlightInfo { key: self.key, phase, token, age: self.since.elapsed(), callers }
    }

    /// Says where the driver is, under which token if it knows one.
    pub(crate) fn at(&self, phase: FlightPhase, token: u64) {
        self.position.set(phase, token);
        self.set_asking(false);
    }

    /// Says whether a lease is being asked for. Ends with the next phase, too.
    pub(crate) fn set_asking(&self, asking: bool) {
        self.asking.store(asking, Ordering::Release);
        self.table.moved.notify_waiters();
    }

    /// Whether this flight, or the one before it, holds a lease or may get one.
    pub(crate) fn is_committed(&self) -> bool {
        let (phase, _) = self.position.get();
        matches!(phase, FlightPhase::Owning | FlightPhase::Ending)
            || self.asking.load(Ordering::Acquire)
            || lock(&self.before).as_ref().is_some_and(|before| {
                !before.settled.load(Ordering::Acquire) && before.is_committed()
            })
    }

    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        self.verdict.get()
    }

    /// Ready at the next change that callers must look at. Made before the look,
    /// it misses none.
    pub(crate) fn stirred(&self) -> OwnedNotified {
        Arc::clone(&self.stirred).notified_owned()
    }

    /// Makes all callers look again.
    pub(crate) fn stir(&self) {
        self.stirred.notify_waiters();
    }

    /// The next request that is still held here, and its caller's place.
    pub(crate) fn next_deposit(&self) -> Option<(usize, Arc<dyn Deposit>)> {
        let mut seats = lock(&self.seats);
        seats.places.iter_mut().find_map(|(at, place)| Some((at, place.take()?)))
    }

    /// Takes a request back whose run is lost, if it can be run again.
    pub(crate) fn give_back(&self, at: usize, deposit: Arc<dyn Deposit>) {
        if !deposit.restore() {
            return;
        }
        // Whoever has this place by now, if its caller has left, keeps it.
        if let Some(place @ None) = lock(&self.seats).places.get_mut(at) {
            *place = Some(deposit);
        }
    }

    /// Whether a request is still held here.
    pub(crate) fn has_deposit(&self) -> bool {
        lock(&self.seats).places.iter().any(|(_, place)| place.is_some())
    }

    /// Waits until no caller is left. One may come again at any time, until
    /// [`close_if_vacant`](Self::close_if_vacant) has said that it is closed.
    pub(crate) async fn vacated(&self) {
        loop {
            let vacated = self.vacated.notified();
            if self.is_vacant() {
                return;
            }
            vacated.await;
        }
    }

    pub(crate) fn is_vacant(&self) -> bool {
        lock(&self.seats).places.is_empty()
    }

    /// Closes the flight if nobody is left, and takes it off the table.
    pub(crate) fn close_if_vacant(&self) -> bool {
        let mut shard = self.table.shard(&self.key);
        let mut seats = lock(&self.seats);
        if !seats.places.is_empty() {
            return false;
        }
        seats.closed = true;
        Flights::remove(&mut shard, self);
        true
    }

    /// Lets nobody in any more; the flight stays on the table, so that who comes
    /// next waits for [`settle`](Self::settle).
    pub(crate) fn close(&self) {
        lock(&self.seats).closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.seats).closed
    }

    /// Tells all callers what became of the flight. The first verdict stands.
    pub(crate) fn decide(&self, verdict: Verdict) {
        self.close();
        // A second verdict is that of the driver's own end, and says nothing new.
        let _ = self.verdict.set(verdict);
        self.stir();
    }

    /// Its driver is gone without a verdict: the runtime that it ran on shut down,
    /// or it panicked. One of the callers drives it on.
    pub(crate) fn orphan(&self) {
        self.set_asking(false);
        self.orphaned.store(true, Ordering::Release);
        if self.close_if_vacant() {
            self.settle();
        } else {
            self.stir();
        }
    }

    /// True for the one caller that is to drive an orphaned flight.
    pub(crate) fn adopt(&self) -> bool {
        if !self.orphaned.load(Ordering::Acquire) || !self.orphaned.swap(false, Ordering::AcqRel) {
            return false;
        }
        if self.drivers.fetch_add(1, Ordering::Relaxed) < DRIVERS {
            return true;
        }
        self.decide(Verdict::Failed(Failure::new(FailureKind::OwnerVanished, None)));
        self.settle();
        false
    }

    /// The store knows the outcome too: the key is free for the next flight.
    pub(crate) fn settle(&self) {
        {
            let mut shard = self.table.shard(&self.key);
            lock(&self.seats).closed = true;
            Flights::remove(&mut shard, self);
        }
        self.settled.store(true, Ordering::Release);
        self.settling.notify_waiters();
        self.table.moved.notify_waiters();
    }

    /// Waits until the key's flight before this one has settled; not longer than
    /// `limit`, since the runtime that it ends on may rest.
    pub(crate) async fn predecessor_settled(&self, limit: Duration) {
        let Some(before) = lock(&self.before).clone() else { return };
        let settled = async {
            loop {
                let settling = before.settling.notified();
                if before.settled.load(Ordering::Acquire) {
                    return;
                }
                settling.await;
            }
        };
        // Settled or not: what the store knows by then is followed.
        let _ = tokio::time::timeout(limit, settled).await;
        *lock(&self.before) = None;
        self.table.moved.notify_waiters();
    }

    fn leave(&self, place: usize) {
        let (left, vacant) = {
            let mut seats = lock(&self.seats);
            (seats.places.try_remove(place), seats.places.is_empty())
        };
        // A request may run anything when it is dropped: not under the lock.
        drop(left);
        if vacant {
            self.vacated.notify_one();
            if self.orphaned.load(Ordering::Acquire) && self.close_if_vacant() {
                self.settle();
            }
        }
    }
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A caller's part in a flight. The flight goes on while one is held.
pub(crate) struct Share {
    flight: Arc<Flight>,
    place: usize,
}

impl Share {
    pub(crate) fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.flight.leave(self.place);
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Share").field(&self.flight.key).finish()
    }
}
