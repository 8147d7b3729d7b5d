use std::{fmt, io, sync::Arc};

use tokio::time::Instant;

use super::{Keeper, Terms};
use crate::{
    id::{FlightId, KeyDigest, WaiterId},
    store::{Heartbeat, Store},
    sync::{
        Mutex, MutexGuard, Notify, PoisonError,
        atomic::{AtomicBool, Ordering},
        sleep_until,
    },
};

/// Drives a [`Keeper`], from its first lease on.
pub(crate) struct KeeperHandle {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
}

struct Shared {
    desk: Mutex<Desk>,
    terms: Terms,
    wake: Notify,
    quiet: Notify,
    running: AtomicBool,
    closed: AtomicBool,
}

struct Desk {
    keeper: Keeper,
    rest: Rest,
}

/// What the keeper's loop is at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// It will poll before it sleeps.
    Awake,
    /// It sleeps until then.
    Until(Instant),
    /// It sleeps until it is woken.
    Asleep,
}

impl KeeperHandle {
    pub(crate) fn new(terms: Terms, store: Arc<dyn Store>) -> Self {
        Self {
            shared: Arc::new(Shared {
                desk: Mutex::new(Desk { keeper: Keeper::new(terms), rest: Rest::Awake }),
                terms,
                wake: Notify::new(),
                quiet: Notify::new(),
                running: AtomicBool::new(false),
                closed: AtomicBool::new(false),
            }),
            store,
        }
    }

    pub(crate) fn terms(&self) -> Terms {
        self.shared.terms
    }

    /// Sees to it that the keeper runs. No lease is asked for without.
    ///
    /// # Errors
    ///
    /// The system gives no thread, or the store is in memory and this is not
    /// called in a runtime.
    pub(crate) fn ensure_running(&self) -> io::Result<()> {
        if self.shared.running.load(Ordering::Acquire)
            || self.shared.running.swap(true, Ordering::AcqRel)
        {
            return Ok(());
        }
        let running = Running(Arc::clone(&self.shared));
        let line = self.store.heartbeat();
        if self.store.is_remote() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            std::thread::Builder::new()
                .name("single-flight-keeper".into())
                .spawn(move || runtime.block_on(keep(running, line)))?;
        } else {
            tokio::runtime::Handle::try_current()
                .map_err(io::Error::other)?
                .spawn(keep(running, line));
        }
        Ok(())
    }

    /// Waits until the store has heard all that it was to be told.
    pub(crate) async fn quiet(&self) {
        loop {
            let quiet = self.shared.quiet.notified();
            if !self.shared.desk().keeper.has_errands() {
                return;
            }
            quiet.await;
        }
    }

    /// Undoes a `join` whose answer never came, whatever it was.
    pub(crate) fn forget(&self, key: KeyDigest, flight: FlightId, waiter: WaiterId) {
        self.with(|state, now| {
            state.release(key, flight, None, now);
            state.leave(key, waiter, now);
        });
    }

    /// Takes a waiter's mark away that nobody watches.
    pub(crate) fn leave(&self, key: KeyDigest, waiter: WaiterId) {
        self.with(|state, now| state.leave(key, waiter, now));
    }

    /// Changes what the keeper does, and wakes it where it is needed sooner.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Keeper, Instant) -> T) -> T {
        let mut desk = self.shared.desk();
        let result = change(&mut desk.keeper, Instant::now());
        let due = desk.keeper.take_posted();
        let sooner = match desk.rest {
            Rest::Awake => false,
            Rest::Until(rest) => due.is_some_and(|due| due < rest),
            Rest::Asleep => due.is_some(),
        };
        if sooner {
            desk.rest = Rest::Awake;
        }
        drop(desk);
        if sooner {
            self.shared.wake.notify_one();
        }
        result
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Nothing panics while the lock is held, so what is behind it is whole.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeeperHandle {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.wake.notify_one();
    }
}

impl fmt::Debug for KeeperHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeeperHandle").field("terms", &self.shared.terms).finish_non_exhaustive()
    }
}

/// Says that the keeper runs; when its runtime goes away, whoever relies on it
/// starts another.
struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
        self.0.desk().keeper.desert(Instant::now());
    }
}

async fn keep(running: Running, mut line: Box<dyn Heartbeat>) {
    let shared = &running.0;
    loop {
        let sent = Instant::now();
        let (next, places, batch) = {
            let mut desk = shared.desk();
            let (places, batch) = desk.keeper.poll(sent);
            let next = desk.keeper.next();
            desk.rest = match next {
                _ if !batch.is_empty() => Rest::Awake,
                Some(next) => Rest::Until(next),
                None => Rest::Asleep,
            };
            (next, places, batch)
        };
        if batch.is_empty() {
            if shared.closed.load(Ordering::Acquire) && !shared.desk().keeper.has_errands() {
                return;
            }
            tokio::select! {
                () = until(next) => {}
                () = shared.wake.notified() => {}
            }
            continue;
        }
        let mut beat = line.beat(&batch);
        let replies = loop {
            // Leases end on time also while the store is slow to answer.
            let expiry = shared.desk().keeper.next_expiry();
            tokio::select! {
                replies = &mut beat => break replies,
                () = until(expiry) => shared.desk().keeper.expire(Instant::now()),
            }
        };
        let now = Instant::now();
        let mut desk = shared.desk();
        for (place, reply) in places.into_iter().zip(replies) {
            desk.keeper.answer(place, sent, now, reply);
        }
        drop(desk);
        shared.quiet.notify_waiters();
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(all(test, shuttle))]
#[path = "handle_races.rs"]
mod races;
