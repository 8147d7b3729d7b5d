use std::{collections::HashMap, hash::BuildHasherDefault, sync::Arc, time::Duration};

use slab::Slab;
use tokio::time::Instant;

use super::{Hashed, Holding, Since};
use crate::{key::Name, log::SharedRun};

/// Answers under one lock. What is taken off is given back, to be dropped without it.
#[derive(Default)]
pub(super) struct Shelf {
    places: HashMap<Arc<Name>, usize, BuildHasherDefault<Hashed>>,
    answers: Slab<Place>,
    /// Past all places that were ever in use.
    end: usize,
    /// Whose turn it is to go.
    hand: usize,
    bytes: usize,
    /// How often a key was forgotten.
    pub(super) forgets: u64,
}

struct Place {
    name: Arc<Name>,
    holding: Holding,
    /// It was asked for since the hand was here.
    used: bool,
}

/// Places that are looked at for each answer that comes, for what is of no more use.
const TIDY: usize = 2;

impl Shelf {
    pub(super) fn get(
        &mut self,
        name: &Name,
        now: Instant,
    ) -> Option<Result<(SharedRun, Duration), Holding>> {
        let at = *self.places.get(name)?;
        let place = self.answers.get_mut(at)?;
        if !place.holding.stands(now) {
            return self.take(at).map(Err);
        }
        place.used = true;
        let Holding { run, ended, .. } = &place.holding;
        Some(Ok((run.clone(), now.saturating_duration_since(*ended))))
    }

    pub(super) fn put(
        &mut self,
        name: &Arc<Name>,
        since: Since,
        holding: Holding,
        most: usize,
        now: Instant,
    ) -> Vec<Holding> {
        let before = self.places.get(name).and_then(|at| Some((*at, self.answers.get(*at)?)));
        let is_newer =
            before.as_ref().is_none_or(|(_, place)| place.holding.token <= holding.token);
        if self.forgets != since.0 || !is_newer {
            return vec![holding];
        }
        let before = before.map(|(at, _)| at);
        let mut gone: Vec<_> = before.and_then(|at| self.take(at)).into_iter().collect();
        for step in 0.. {
            let is_full = self.bytes.saturating_add(holding.bytes) > most;
            if self.answers.is_empty() || !is_full && step >= TIDY {
                break;
            }
            gone.extend(self.turn(is_full, now));
        }
        self.bytes += holding.bytes;
        let name = Arc::clone(name);
        let at = self.answers.insert(Place { name: Arc::clone(&name), holding, used: false });
        self.places.insert(name, at);
        self.end = self.end.max(at + 1);
        gone
    }

    pub(super) fn forget(&mut self, name: &Name) -> Option<Holding> {
        self.forgets += 1;
        let at = *self.places.get(name)?;
        self.take(at)
    }

    /// Moves the hand by one place, and takes what is there if it is of no more use; where
    /// there `is_full`, also if nobody has asked for it.
    fn turn(&mut self, is_full: bool, now: Instant) -> Option<Holding> {
        let at = self.hand;
        self.hand = (at + 1) % self.end.max(1);
        let place = self.answers.get_mut(at)?;
        let goes = !place.holding.stands(now) || is_full && !std::mem::take(&mut place.used);
        if goes { self.take(at) } else { None }
    }

    fn take(&mut self, at: usize) -> Option<Holding> {
        let Place { name, holding, .. } = self.answers.try_remove(at)?;
        self.places.remove(&name);
        self.bytes -= holding.bytes;
        Some(holding)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        (self.answers.len(), self.bytes)
    }
}
