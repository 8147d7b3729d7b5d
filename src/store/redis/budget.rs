//! What this process has in the server, up to a bound: records and pieces, until they
//! expire.
//!
//! What may have been written counts as written, and what others may have removed counts
//! until its time is over: the server holds no more than is counted here.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{error, gate::TRANSFER, step};
use crate::{
    id::{FlightRef, KeyDigest},
    store::{Append, Appended, StoreError, StoreErrorKind},
};

/// The bound, and what is held within it.
#[derive(Debug)]
pub(super) struct Budget {
    most: u64,
    /// How long a write may still be on its way that was given up.
    late: Duration,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: u64,
    records: HashMap<KeyDigest, Kept<u64>>,
    streams: HashMap<KeyDigest, Kept<Vec<Run>>>,
    /// When what is next to go may go, each once.
    due: BinaryHeap<Reverse<(Instant, Due)>>,
}

/// Something that is there until then.
#[derive(Debug)]
struct Kept<T> {
    what: T,
    until: Instant,
    /// When it is looked at next: not after it goes.
    looked_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Record(KeyDigest),
    Stream(KeyDigest),
    /// So many bytes of which it is not known whether they were written.
    Loose(u64),
}

/// The pieces of one flight.
#[derive(Debug)]
struct Run {
    flight: FlightRef,
    /// The number of the first that is there.
    first: u64,
    sizes: VecDeque<u32>,
    bytes: u64,
    /// Room for what is known to follow.
    reserved: u64,
    ended: bool,
}

impl Run {
    fn weight(&self) -> u64 {
        self.bytes + self.reserved
    }

    fn next(&self) -> u64 {
        self.first + self.sizes.len() as u64
    }

    fn truncate(&mut self, next: u64) -> u64 {
        let mut gone = 0;
        while self.next() > next
            && let Some(size) = self.sizes.pop_back()
        {
            gone += u64::from(size);
        }
        self.bytes -= gone;
        gone
    }

    fn trim(&mut self, from: u64) -> u64 {
        let mut gone = 0;
        while self.first < from
            && let Some(size) = self.sizes.pop_front()
        {
            self.first += 1;
            gone += u64::from(size);
        }
        self.bytes -= gone;
        gone
    }
}

impl Budget {
    pub(super) fn new(most: u64, limit: Duration) -> Self {
        Self { most, late: limit * TRANSFER, held: Mutex::default() }
    }

    /// How many bytes are held.
    pub(super) fn bytes(&self) -> u64 {
        self.swept().bytes
    }

    /// Room for a record that stays for so long.
    pub(super) fn record(
        self: &Arc<Self>,
        record: &Bytes,
        keep: Duration,
    ) -> Result<Hold, StoreError> {
        let mut held = self.swept();
        self.hold(&mut held, record.len() as u64, 0, keep)
    }

    /// Room for those of these pieces that are not there yet, and for what is known to
    /// follow them: a body that has no room to its end is refused at its beginning.
    pub(super) fn pieces(
        self: &Arc<Self>,
        key: KeyDigest,
        append: &Append,
    ) -> Result<Hold, StoreError> {
        let mut held = self.swept();
        let runs = held.streams.get(&key).map(|kept| &kept.what);
        let run = runs.and_then(|runs| runs.iter().find(|run| run.flight == append.flight));
        let (next, reserved) = run.map_or((0, 0), |run| (run.next(), run.reserved));
        let bytes: u64 = fresh(append, next).map(|piece| piece.len() as u64).sum();
        // What it frees of its room makes room.
        let bytes = bytes.saturating_sub(reserved.saturating_sub(append.to_come));
        let room = append.to_come.saturating_sub(reserved);
        self.hold(&mut held, bytes, room, append.keep)
    }

    fn hold(
        self: &Arc<Self>,
        held: &mut Held,
        bytes: u64,
        room: u64,
        keep: Duration,
    ) -> Result<Hold, StoreError> {
        let sum = bytes.checked_add(room).and_then(|more| held.bytes.checked_add(more));
        held.bytes = sum.filter(|sum| *sum <= self.most).ok_or_else(error::over_the_bound)?;
        Ok(Hold { budget: Arc::clone(self), bytes, room, keep })
    }

    /// A lease of this process's was renewed, and with it the stream of its flight.
    pub(super) fn renewed(&self, key: KeyDigest, lease: Duration) {
        let until = gone(lease * 2);
        if let Some(kept) = self.held().streams.get_mut(&key) {
            kept.until = kept.until.max(until);
        }
    }

    /// A flight of this process's begins: the store has dropped the streams of those before
    /// the last one that ended.
    pub(super) fn granted(&self, key: KeyDigest) {
        let mut held = self.held();
        let Held { bytes, streams, .. } = &mut *held;
        let Some(kept) = streams.get_mut(&key) else { return };
        let ended = kept.what.iter().filter(|run| run.ended).map(|run| run.flight.token).max();
        kept.what.retain(|run| {
            let stays = ended.is_none_or(|ended| run.flight.token >= ended);
            *bytes -= if stays { 0 } else { run.weight() };
            stays
        });
    }

    /// A flight of this process's has ended; its stream stays for so long.
    pub(super) fn ended(&self, key: KeyDigest, flight: FlightRef, keep: Duration) {
        let until = gone(keep);
        let mut held = self.held();
        let Held { bytes, streams, .. } = &mut *held;
        let Some(kept) = streams.get_mut(&key) else { return };
        kept.until = kept.until.max(until);
        if let Some(run) = kept.what.iter_mut().find(|run| run.flight == flight) {
            run.ended = true;
            *bytes -= std::mem::take(&mut run.reserved);
            // Nothing is added to it or taken from it any more.
            run.sizes = VecDeque::new();
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Nothing panics while the lock is held, so what is behind it is whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Without what has expired. Each thing that is held is looked at once for each time
    /// that it stays.
    fn swept(&self) -> MutexGuard<'_, Held> {
        let mut held = self.held();
        let now = Instant::now();
        while let Some(Reverse((at, due))) = held.due.peek().copied()
            && at <= now
        {
            held.due.pop();
            let kept = match due {
                Due::Loose(bytes) => {
                    held.bytes -= bytes;
                    continue;
                }
                Due::Record(key) => held.records.get_mut(&key).map(Kept::times),
                Due::Stream(key) => held.streams.get_mut(&key).map(Kept::times),
            };
            match kept {
                Some((until, looked_at)) if *looked_at == at => {
                    if *until > now {
                        *looked_at = *until;
                        let later = Reverse((*until, due));
                        held.due.push(later);
                        continue;
                    }
                }
                // It is looked at another time.
                _ => continue,
            }
            let gone = match due {
                Due::Record(key) => held.records.remove(&key).map(|kept| kept.what),
                Due::Stream(key) => {
                    let kept = held.streams.remove(&key);
                    kept.map(|kept| kept.what.iter().map(Run::weight).sum())
                }
                Due::Loose(_) => None,
            };
            held.bytes -= gone.unwrap_or(0);
        }
        held
    }
}

impl<T> Kept<T> {
    fn times(&mut self) -> (&Instant, &mut Instant) {
        (&self.until, &mut self.looked_at)
    }
}

/// When nothing is left of what the server was told, before now, to keep for so long. It
/// keeps time in whole milliseconds: it takes a part of one for a whole, and has what ends
/// in one until the next begins.
fn gone(keep: Duration) -> Instant {
    Instant::now() + Duration::from_millis(step::millis(keep) + 1)
}

/// Those of the pieces that come after `next`.
fn fresh(append: &Append, next: u64) -> impl Iterator<Item = &Bytes> {
    let known = usize::try_from(next.saturating_sub(append.first)).unwrap_or(usize::MAX);
    append.pieces.iter().skip(known)
}

/// Room for something that is being written. Dropped, it counts as written.
#[derive(Debug)]
#[must_use = "what is dropped counts as written"]
pub(super) struct Hold {
    budget: Arc<Budget>,
    bytes: u64,
    /// For what is to come: not written yet.
    room: u64,
    keep: Duration,
}

impl Hold {
    /// Nothing was written.
    pub(super) fn give_back(mut self) {
        let held = self.take();
        self.budget.held().bytes -= held;
    }

    fn take(&mut self) -> u64 {
        std::mem::take(&mut self.bytes) + std::mem::take(&mut self.room)
    }

    /// Nothing was written, unless the error leaves that open.
    pub(super) fn failed(self, error: &StoreError) {
        if !matches!(error.kind(), StoreErrorKind::TimedOut | StoreErrorKind::Disconnected) {
            self.give_back();
        }
    }

    /// The record is the key's by now, in the place of the one before it.
    pub(super) fn kept(mut self, key: KeyDigest) {
        let until = gone(self.keep);
        let mut held = self.budget.held();
        let Held { bytes, records, due, .. } = &mut *held;
        let mut kept = Kept { what: std::mem::take(&mut self.bytes), until, looked_at: until };
        if let Some(before) = records.get(&key) {
            *bytes -= before.what;
            kept.looked_at = before.looked_at.min(until);
        }
        let known = records.get(&key).is_some_and(|before| before.looked_at == kept.looked_at);
        if !known {
            due.push(Reverse((until, Due::Record(key))));
        }
        records.insert(key, kept);
    }

    /// The pieces were added, or the store said what is there.
    pub(super) fn appended(mut self, key: KeyDigest, append: &Append, appended: Appended) {
        let next = match appended {
            Appended::Accepted { next } | Appended::Gap { next } => next,
            _ => return self.give_back(),
        };
        let until = gone(self.keep);
        let held_back = self.take();
        let mut held = self.budget.held();
        let Held { bytes, streams, due, .. } = &mut *held;
        *bytes -= held_back;
        let kept = streams.entry(key).or_insert_with(|| {
            due.push(Reverse((until, Due::Stream(key))));
            Kept { what: Vec::new(), until, looked_at: until }
        });
        kept.until = kept.until.max(until);
        let at = kept.what.iter().position(|run| run.flight == append.flight);
        let at = at.unwrap_or_else(|| {
            let (sizes, flight) = (VecDeque::new(), append.flight);
            kept.what.push(Run { flight, first: 0, sizes, bytes: 0, reserved: 0, ended: false });
            kept.what.len() - 1
        });
        let run = &mut kept.what[at];
        *bytes -= run.truncate(next);
        if matches!(appended, Appended::Accepted { .. }) {
            let known = run.next();
            let room = usize::try_from(next.saturating_sub(known)).unwrap_or(usize::MAX);
            for piece in fresh(append, known).take(room) {
                let size = u32::try_from(piece.len()).unwrap_or(u32::MAX);
                run.sizes.push_back(size);
                run.bytes += u64::from(size);
                *bytes += u64::from(size);
            }
            *bytes -= run.trim(append.kept_from);
            *bytes -= std::mem::replace(&mut run.reserved, append.to_come);
            *bytes += append.to_come;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.bytes > 0 || self.room > 0 {
            let until = gone(self.keep) + self.budget.late;
            let mut held = self.budget.held();
            held.bytes -= self.room;
            held.due.push(Reverse((until, Due::Loose(self.bytes))));
        }
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
