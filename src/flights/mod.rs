//! The table of local flights: every caller of a process meets here.
//!
//! Free of services, requests and bodies: a caller leaves a [`Deposit`], which
//! knows how to run itself, and takes a [`Share`].

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use self::{limits::Followers, share::Entered};
use crate::{
    id::KeyDigest,
    key::Name,
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

type Shard = HashMap<Arc<Name>, Arc<Flight>, BuildHasherDefault<Hashed>>;

impl Flights {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            moved: Notify::new(),
            followers: Followers::new(limits),
        }
    }

    fn shard(&self, name: &Name) -> MutexGuard<'_, Shard> {
        // A map goes by other bits of the hash.
        let shard = &self.shards[(name.hash() >> 32) as usize % SHARDS];
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
        name: Name,
        deposit: Arc<dyn Deposit>,
    ) -> Result<(Share, Option<Arc<Flight>>), Full> {
        let mut shard = self.shard(&name);
        let (deposit, before) = match shard.get(&name) {
            None => (deposit, None),
            Some(flight) => match flight.enter(deposit) {
                Entered::In(share) => return Ok((share, None)),
                Entered::Full(full) => return Err(full),
                // It has its outcome and is still telling the store. The new one
                // waits for that, so that it cannot follow its own past.
                Entered::Closed(deposit) => (deposit, Some(Arc::clone(flight))),
            },
        };
        let name = Arc::new(name);
        let flight = Flight::new(Arc::clone(&name), Arc::clone(self), before);
        shard.insert(name, Arc::clone(&flight));
        Ok((flight.first(deposit), Some(flight)))
    }

    /// The key's flight, if one is in the air.
    pub(crate) fn get(&self, name: &Name) -> Option<Arc<Flight>> {
        self.shard(name).get(name).cloned()
    }

    /// The flight of a key of this digest: looks at all of them.
    pub(crate) fn find(&self, key: KeyDigest) -> Option<Arc<Flight>> {
        self.list().into_iter().find(|flight| flight.key() == key)
    }

    /// Removes this flight, and no other of its key.
    #[expect(clippy::mutable_key_type, reason = "a name's digest is no part of its hash")]
    fn remove(shard: &mut Shard, flight: &Flight) {
        if shard.get(flight.name()).is_some_and(|known| std::ptr::eq(&**known, flight)) {
            shard.remove(flight.name());
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

/// Names bring their hash along.
#[derive(Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
