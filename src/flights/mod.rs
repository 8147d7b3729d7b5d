//! The table of local flights: every caller of a process meets here.
//!
//! Free of services, requests and bodies: a caller leaves a [`Deposit`], which
//! knows how to run itself, and takes a [`Share`].

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use self::{limits::Followers, share::Entered};
use crate::{
    id::KeyDigest,
    sync::{Mutex, MutexGuard, Notified, Notify, PoisonError},
};

mod ends;
mod flight;
mod halt;
mod info;
mod limits;
#[cfg(all(test, shuttle))]
mod races;
mod run;
mod share;
mod told;
mod verdict;

pub use self::info::{FlightInfo, FlightPhase};
pub(crate) use self::{
    flight::Flight,
    halt::Halt,
    limits::{Full, Limits},
    run::{Brief, Deposit, RunEnd, Stage},
    share::Share,
    verdict::{Origin, Verdict},
};

const SHARDS: usize = 16;

/// All flights of one layer in this process.
pub(crate) struct Flights {
    shards: [Mutex<Shard>; SHARDS],
    moved: Notify,
    followers: Followers,
}

type Shard = HashMap<KeyDigest, Arc<Flight>, BuildHasherDefault<DigestHasher>>;

impl Flights {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            moved: Notify::new(),
            followers: Followers::new(limits),
        }
    }

    fn shard(&self, key: &KeyDigest) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[usize::from(key.as_bytes()[31]) % SHARDS];
        // Nothing panics while the lock is held, so what is behind it is whole.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the key's flight, or starts one: then the flight is returned too, and
    /// the caller must see that it is driven.
    ///
    /// # Errors
    ///
    /// The flight, or all of them, have as many followers as they may; what was deposited
    /// is dropped.
    pub(crate) fn enter(
        self: &Arc<Self>,
        key: KeyDigest,
        deposit: Arc<dyn Deposit>,
    ) -> Result<(Share, Option<Arc<Flight>>), Full> {
        let mut shard = self.shard(&key);
        match shard.entry(key) {
            Entry::Occupied(mut entry) => {
                let deposit = match entry.get().enter(deposit) {
                    Entered::In(share) => return Ok((share, None)),
                    Entered::Full(full) => return Err(full),
                    Entered::Closed(deposit) => deposit,
                };
                // It has its outcome and is still telling the store. The new one
                // waits for that, so that it cannot follow its own past.
                let before = Arc::clone(entry.get());
                let flight = Flight::new(key, Arc::clone(self), Some(before));
                entry.insert(Arc::clone(&flight));
                Ok((flight.first(deposit), Some(flight)))
            }
            Entry::Vacant(entry) => {
                let flight = Flight::new(key, Arc::clone(self), None);
                entry.insert(Arc::clone(&flight));
                Ok((flight.first(deposit), Some(flight)))
            }
        }
    }

    /// The key's flight, if one is in the air.
    pub(crate) fn get(&self, key: &KeyDigest) -> Option<Arc<Flight>> {
        self.shard(key).get(key).cloned()
    }

    /// Removes this flight, and no other of its key.
    fn remove(shard: &mut Shard, flight: &Flight) {
        if let Entry::Occupied(entry) = shard.entry(flight.key())
            && std::ptr::eq(Arc::as_ptr(entry.get()), flight)
        {
            entry.remove();
        }
    }

    /// Ready when a flight has come to another phase, or to its end.
    pub(crate) fn moved(&self) -> Notified<'_> {
        self.moved.notified()
    }

    /// The flights in the air.
    pub(crate) fn list(&self) -> Vec<Arc<Flight>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(shard.values().cloned());
        }
        all
    }
}

/// Digests are random already: their first bytes are the hash.
#[derive(Default)]
pub(crate) struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(head) = bytes.first_chunk::<8>() {
            self.0 = u64::from_ne_bytes(*head);
        }
    }

    // The length that the standard library puts before a slice says nothing.
    fn write_usize(&mut self, _: usize) {}
}
