//! Where the records lie: a map in pieces, each under a lock of its own.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hash::{BuildHasher, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;

use super::{listener::Listener, record::Record};
use crate::{id::KeyDigest, key::Name, store::Pushed};

const SHARDS: usize = 64;
/// Due records that one use of a shard clears. It adds one at most.
const SWEEP: usize = 8;
/// One grant in so many clears another shard too, so that none is forgotten.
const TURN: u64 = 8;
/// Due records that are cleared there.
const TURN_SWEEP: usize = 128;
/// Below this a map's room is not given back.
const KEEP_ROOM: usize = 64;

/// All records.
pub(super) struct Shards {
    shards: Box<[Padded]>,
    tokens: AtomicU64,
    /// Some key has had a record.
    used: AtomicBool,
}

/// Keeps neighbours off each other's cache lines.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

pub(super) struct Shard {
    entries: HashMap<KeyDigest, Entry, Folded>,
    /// At most one place for each entry, at or before its time.
    due: BinaryHeap<Reverse<(Instant, KeyDigest)>>,
}

/// One key: what is stored, and who listens in this process.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) record: Record,
    listeners: Vec<Arc<Listener>>,
    /// Has a place in `due`.
    queued: bool,
}

impl Default for Shards {
    fn default() -> Self {
        let hasher = Folded(rand::random());
        let shard = || Shard { entries: HashMap::with_hasher(hasher), due: BinaryHeap::new() };
        // As a server's tokens: past those of every earlier run of this program.
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        Self {
            shards: (0..SHARDS).map(|_| Padded(Mutex::new(shard()))).collect(),
            tokens: AtomicU64::new(u64::try_from(micros).unwrap_or(0)),
            used: AtomicBool::new(false),
        }
    }
}

impl Shards {
    pub(super) fn lock(&self, key: &KeyDigest) -> MutexGuard<'_, Shard> {
        let place = usize::from(key.as_bytes()[31]) % SHARDS;
        self.shards[place].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token above `floor` and above all that were given out.
    pub(super) fn next_token(&self, floor: u64) -> u64 {
        let mut last = self.tokens.load(Ordering::Relaxed);
        loop {
            let token = last.max(floor).saturating_add(1);
            match self.tokens.compare_exchange_weak(
                last,
                token,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return token,
                Err(other) => last = other,
            }
        }
    }

    /// A token, where nothing is known of the key.
    pub(super) fn grant(&self, name: &Name) -> Option<u64> {
        if self.used.load(Ordering::Acquire) {
            let key = name.digest();
            if !self.lock(key).is_blank(key, Instant::now()) {
                return None;
            }
        }
        Some(self.next_token(0))
    }

    /// Records are made from now on.
    pub(super) fn use_records(&self) {
        self.used.store(true, Ordering::Release);
    }

    /// The share of clearing that a grant owes to the shards that are not in use.
    pub(super) fn take_turn(&self, token: u64, now: Instant) {
        if !token.is_multiple_of(TURN) {
            return;
        }
        let place = usize::try_from(token / TURN % SHARDS as u64).unwrap_or(0);
        match self.shards[place].0.try_lock() {
            Ok(mut shard) => shard.sweep(now, TURN_SWEEP),
            Err(TryLockError::Poisoned(shard)) => shard.into_inner().sweep(now, TURN_SWEEP),
            // In use: it clears itself.
            Err(TryLockError::WouldBlock) => {}
        }
    }

    pub(super) fn len(&self) -> usize {
        let now = Instant::now();
        self.each(|shard| {
            shard.sweep(now, usize::MAX);
            // An entry's place in `due` may lie after its time: counted by its own.
            shard.entries.values().filter(|entry| entry.record.expires() > Some(now)).count()
        })
        .sum()
    }

    /// The keys of one shard; none after the last.
    pub(super) fn keys(&self, shard: usize) -> Option<Vec<KeyDigest>> {
        let shard = self.shards.get(shard)?.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(shard.entries.keys().copied().collect())
    }

    pub(super) fn clear(&self) {
        self.each(|shard| {
            shard.due.clear();
            shard.entries.retain(|_, entry| {
                entry.record = Record::default();
                entry.queued = false;
                entry.listeners.iter().for_each(|listener| listener.gap());
                !entry.listeners.is_empty()
            });
            shard.shrink();
        })
        .for_each(drop);
    }

    fn each<T>(&self, mut step: impl FnMut(&mut Shard) -> T) -> impl Iterator<Item = T> {
        self.shards
            .iter()
            .map(move |shard| step(&mut shard.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Shard {
    fn is_blank(&mut self, key: &KeyDigest, now: Instant) -> bool {
        self.sweep(now, SWEEP);
        !self.entries.contains_key(key)
    }

    /// Runs a step on the key's entry, where there is one.
    pub(super) fn existing<T>(
        &mut self,
        key: &KeyDigest,
        now: Instant,
        step: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        self.sweep(now, SWEEP);
        let entry = self.entries.get_mut(key)?;
        let answer = step(entry);
        entry.queue(&mut self.due, key);
        Some(answer)
    }

    /// Runs a step on the key's entry, which is made where there is none.
    pub(super) fn entry<T>(
        &mut self,
        key: &KeyDigest,
        now: Instant,
        step: impl FnOnce(&mut Entry) -> T,
    ) -> T {
        self.sweep(now, SWEEP);
        let entry = self.entries.entry(*key).or_default();
        let answer = step(entry);
        entry.queue(&mut self.due, key);
        answer
    }

    pub(super) fn unsubscribe(&mut self, key: &KeyDigest, listener: &Arc<Listener>) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.listeners.retain(|known| !Arc::ptr_eq(known, listener));
        // Without a place in `due` nothing else would ever remove it.
        if entry.listeners.is_empty() && !entry.queued {
            self.entries.remove(key);
        }
    }

    /// Removes up to `limit` entries whose time is over.
    fn sweep(&mut self, now: Instant, limit: usize) {
        for _ in 0..limit {
            match self.due.peek() {
                Some(Reverse((at, _))) if *at <= now => {}
                _ => return,
            }
            let Some(Reverse((_, key))) = self.due.pop() else { return };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.queued = false;
            entry.record.purge(now);
            entry.queue(&mut self.due, &key);
            if !entry.queued && entry.listeners.is_empty() {
                self.entries.remove(&key);
                self.shrink();
            }
        }
    }

    /// Gives room back once most of it is unused.
    fn shrink(&mut self) {
        let len = self.entries.len();
        if self.entries.capacity() > KEEP_ROOM.max(len * 4) {
            self.entries.shrink_to(len * 2);
            self.due.shrink_to(len * 2);
        }
    }
}

impl Entry {
    /// Subscribes a session in the step that told it to, so that no push falls
    /// between the two.
    pub(super) fn subscribe(&mut self, place: &mut Option<Arc<Listener>>) {
        if place.is_none() {
            self.listeners.push(Arc::clone(place.insert(Arc::default())));
        }
    }

    /// Tells all who listen. Under the shard's lock, so that all hear of the steps
    /// in the order in which they were taken.
    pub(super) fn publish(&self, pushed: Option<Pushed>) {
        if let Some(pushed) = pushed {
            self.listeners.iter().for_each(|listener| listener.push(pushed.clone()));
        }
    }

    fn queue(&mut self, due: &mut BinaryHeap<Reverse<(Instant, KeyDigest)>>, key: &KeyDigest) {
        if let Some(at) = self.record.expires()
            && !self.queued
        {
            due.push(Reverse((at, *key)));
            self.queued = true;
        }
    }
}

/// Hashes what is a digest already: a seed that nobody outside knows, and one
/// multiplication a word, so that keys chosen to collide do not.
#[derive(Clone, Copy)]
struct Folded([u64; 2]);

struct Fold {
    state: u64,
    factor: u64,
}

impl BuildHasher for Folded {
    type Hasher = Fold;

    fn build_hasher(&self) -> Fold {
        let [state, factor] = self.0;
        Fold { state, factor: factor | 1 }
    }
}

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = self.state ^ u64::from_le_bytes(word);
            let product = u128::from(mixed) * u128::from(self.factor);
            self.state = (product as u64) ^ ((product >> 64) as u64);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.state
    }
}
