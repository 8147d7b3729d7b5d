//! The answers of flights that are over, as this process holds them: a caller gets one
//! without a word to the store, for as long as the store is known to have nothing else to
//! say of it.
//!
//! What is held is bounded in bytes, and goes by second chance: the oldest first, but for
//! those that were asked for since they were last looked at.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use self::shelf::Shelf;
use crate::{
    flights::Hashed,
    key::Name,
    log::SharedRun,
    store::{Held, Vigil},
    sync::{Mutex, MutexGuard, PoisonError},
};

mod shelf;
#[cfg(test)]
mod tests;

const SHELVES: usize = 8;
/// No answer takes more than this part of its shelf.
const PART: usize = 2;
/// An answer counts as this many bytes at least, which bounds how many there are.
const LEAST: usize = 1024;

/// All answers that one layer holds.
pub(crate) struct Holdings {
    shelves: [Mutex<Shelf>; SHELVES],
    /// Of each shelf.
    most: usize,
}

/// An answer, and for how long it is one.
pub(crate) struct Holding {
    run: SharedRun,
    /// Of its flight.
    token: u64,
    ended: Instant,
    until: Instant,
    vigil: Box<dyn Vigil>,
    bytes: usize,
}

/// How often a shelf's keys had been forgotten here, before the store was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since(u64);

impl Holdings {
    /// Holds no more than `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { shelves: std::array::from_fn(|_| Mutex::default()), most: most / SHELVES }
    }

    fn shelf(&self, name: &Name) -> MutexGuard<'_, Shelf> {
        // A map goes by other bits of the hash.
        let shelf = &self.shelves[(name.hash() >> 32) as usize % SHELVES];
        // Nothing panics while the lock is held, so what is behind it is whole.
        shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to this key, and how long ago its flight ended.
    pub(crate) fn get(&self, name: &Name) -> Option<(SharedRun, Duration)> {
        let found = self.shelf(name).get(name, Instant::now());
        // What is of no more use is dropped when the lock is not held.
        found?.ok()
    }

    /// Whether an answer of so many bytes finds room.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        bytes <= (self.most / PART) as u64
    }

    /// To be called before the store is asked for what is then [`put`](Self::put).
    pub(crate) fn since(&self, name: &Name) -> Since {
        Since(self.shelf(name).forgets)
    }

    /// Holds a flight's answer, for the reuse time at most; not where the key was forgotten
    /// here since, nor where there is a newer flight's.
    pub(crate) fn put(
        &self,
        name: &Arc<Name>,
        since: Since,
        (token, run): (u64, &SharedRun),
        held: Held,
        reuse: Duration,
    ) {
        let Held { age, fresh, vigil } = held;
        let now = Instant::now();
        let left = reuse.min(fresh).saturating_sub(age);
        let (Some(ended), Some(until)) = (now.checked_sub(age), now.checked_add(left)) else {
            return;
        };
        let Some((run, bytes)) = run.copied(self.most / PART) else { return };
        let bytes = bytes.saturating_add(name.size()).max(LEAST);
        if left.is_zero() || bytes > self.most / PART {
            return;
        }
        let holding = Holding { run, token, ended, until, vigil, bytes };
        let gone = self.shelf(name).put(name, since, holding, self.most, now);
        // Not under the lock.
        drop(gone);
    }

    /// The key's answer is none any more, nor is one that is on its way here.
    pub(crate) fn forget(&self, name: &Name) {
        let gone = self.shelf(name).forget(name);
        drop(gone);
    }
}

impl Holding {
    fn stands(&self, now: Instant) -> bool {
        now < self.until && self.vigil.stands()
    }
}
