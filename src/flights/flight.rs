//! One local flight: its callers, what they left, and what became of it.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use slab::Slab;
use tokio::{sync::futures::OwnedNotified, time::Instant};

use super::{
    Deposit, FlightInfo, FlightPhase, Flights, Halt, Share,
    info::Position,
    share::Entered,
    verdict::{Live, Verdict},
};
use crate::{
    error::{Failure, FailureKind},
    id::KeyDigest,
    key::Name,
    lease::Probe,
    selection::Selection,
    sync::{
        Mutex, MutexGuard, Notify, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    trace::TraceParent,
};

/// One key's flight in this process.
pub(crate) struct Flight {
    name: Arc<Name>,
    table: Arc<Flights>,
    seats: Mutex<Seats>,
    /// The answer that is handed out while it comes.
    pub(super) live: Mutex<Option<Live>>,
    pub(super) verdict: OnceLock<Verdict>,
    /// Which callers may have what the run of this process is about to give.
    pub(super) selection: Mutex<Option<Arc<Selection>>>,
    /// Wakes the callers.
    stirred: Arc<Notify>,
    /// Wakes the driver when the last caller has left.
    vacated: Notify,
    /// How many drivers it had; too many of them died.
    drivers: AtomicU32,
    orphaned: AtomicBool,
    settled: AtomicBool,
    settling: Notify,
    pub(super) halt: Halt,
    pub(super) probe: Mutex<Option<Box<Probe>>>,
    /// Kept until it has settled.
    before: Mutex<Option<Arc<Flight>>>,
    /// A lease is being asked for.
    asking: AtomicBool,
    /// How often its key was forgotten by this process.
    forgets: AtomicU32,
    since: Instant,
    position: Position,
    /// Where who runs is in its trace.
    trace: Mutex<Option<TraceParent>>,
}

#[derive(Default)]
struct Seats {
    /// A place for each caller; empty once its request was taken.
    places: Slab<Option<Arc<dyn Deposit>>>,
    closed: bool,
}

/// A flight whose drivers die this often fails its callers.
const DRIVERS: u32 = 3;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while these locks are held, so what is behind them is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flight {
    pub(super) fn new(
        name: Arc<Name>,
        table: Arc<Flights>,
        before: Option<Arc<Self>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            table,
            seats: Mutex::default(),
            live: Mutex::default(),
            verdict: OnceLock::new(),
            selection: Mutex::default(),
            stirred: Arc::default(),
            vacated: Notify::new(),
            drivers: AtomicU32::new(1),
            orphaned: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            settling: Notify::new(),
            halt: Halt::default(),
            probe: Mutex::default(),
            before: Mutex::new(before),
            asking: AtomicBool::new(false),
            forgets: AtomicU32::new(0),
            since: Instant::now(),
            position: Position::default(),
            trace: Mutex::default(),
        })
    }

    /// The share of the caller that the flight is made for.
    pub(super) fn first(self: &Arc<Self>, deposit: Arc<dyn Deposit>) -> Share {
        let place = lock(&self.seats).places.insert(Some(deposit));
        Share::new(self, place, false)
    }

    /// Takes a share, or says why there is none.
    pub(super) fn enter(self: &Arc<Self>, deposit: Arc<dyn Deposit>) -> Entered {
        let mut seats = lock(&self.seats);
        if seats.closed {
            return Entered::Closed(deposit);
        }
        // One of those who are there is no follower.
        if let Err(full) = self.table.followers.admit(seats.places.len().saturating_sub(1)) {
            drop(seats);
            return Entered::Full(full);
        }
        let place = seats.places.insert(Some(deposit));
        Entered::In(Share::new(self, place, true))
    }

    pub(crate) fn name(&self) -> &Arc<Name> {
        &self.name
    }

    pub(crate) fn key(&self) -> KeyDigest {
        *self.name.digest()
    }

    /// Whether its run is one of this process.
    pub(crate) fn runs_here(&self) -> bool {
        matches!(self.position.get().0, FlightPhase::Owning | FlightPhase::Local)
    }

    /// Whether this process has the key for it.
    pub(crate) fn owns(&self) -> bool {
        self.position.get().0 == FlightPhase::Owning && !self.is_settled()
    }

    /// What can be told of it.
    pub(crate) fn info(&self) -> FlightInfo {
        let (phase, token) = self.position.get();
        let callers = lock(&self.seats).places.len();
        FlightInfo { key: self.key(), phase, token, age: self.since.elapsed(), callers }
    }

    /// Since its first caller here.
    #[cfg(feature = "metrics")]
    pub(crate) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// The token of the running owner, where one is known.
    pub(crate) fn token(&self) -> Option<u64> {
        self.position.get().1
    }

    /// Where who runs is in its trace, if that is known.
    pub(crate) fn trace(&self) -> Option<TraceParent> {
        *lock(&self.trace)
    }

    /// Says where who runs is in its trace.
    pub(crate) fn set_trace(&self, trace: Option<TraceParent>) {
        *lock(&self.trace) = trace;
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

    /// The store has forgotten its key: what was asked of it before is of no use for those
    /// who come from now on.
    pub(crate) fn forget(&self) {
        self.forgets.fetch_add(1, Ordering::AcqRel);
    }

    /// How often its key was forgotten.
    pub(crate) fn forgets(&self) -> u32 {
        self.forgets.load(Ordering::Acquire)
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
        let mut shard = self.table.shard(&self.name);
        let mut seats = lock(&self.seats);
        if !seats.places.is_empty() {
            return false;
        }
        seats.closed = true;
        Flights::remove(&mut shard, self);
        true
    }

    /// Closes the flight if no request is held here any more, as [`close`](Self::close)
    /// does: whoever came at the last moment has left one.
    pub(crate) fn close_if_spent(&self) -> bool {
        let mut seats = lock(&self.seats);
        let spent = seats.places.iter().all(|(_, place)| place.is_none());
        seats.closed |= spent;
        spent
    }

    /// Lets nobody in any more; the flight stays on the table, so that who comes
    /// next waits for [`settle`](Self::settle).
    pub(crate) fn close(&self) {
        lock(&self.seats).closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.seats).closed
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
            let mut shard = self.table.shard(&self.name);
            lock(&self.seats).closed = true;
            Flights::remove(&mut shard, self);
        }
        self.settled.store(true, Ordering::Release);
        self.settling.notify_waiters();
        self.table.moved.notify_waiters();
    }

    /// Whether the key is another flight's by now.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Whether there is a flight of the key before this one, that has not settled.
    pub(crate) fn has_predecessor(&self) -> bool {
        lock(&self.before).is_some()
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

    pub(super) fn leave(&self, place: usize, followed: bool) {
        if followed {
            self.table.followers.dismiss();
        }
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
        f.debug_struct("Flight").field("key", &self.name).finish_non_exhaustive()
    }
}
