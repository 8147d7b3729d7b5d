//! Slots that take their time to move.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// For so long nobody waits for a slot that somebody has waited for in vain.
const FOR: Duration = Duration::from_secs(1);

/// The slots that were waited for in vain.
#[derive(Debug, Default)]
pub(super) struct Moving {
    /// False while there are none, which is nearly always.
    any: AtomicBool,
    slots: Mutex<HashMap<u16, Instant>>,
}

impl Moving {
    /// Whether it is not worth to wait for this one.
    pub(super) fn is_known(&self, slot: u16) -> bool {
        self.any.load(Ordering::Relaxed)
            && self.slots().get(&slot).is_some_and(|since| since.elapsed() < FOR)
    }

    /// Somebody waited for this one in vain.
    pub(super) fn note(&self, slot: u16) {
        self.slots().insert(slot, Instant::now());
        self.any.store(true, Ordering::Relaxed);
    }

    /// It answers.
    pub(super) fn is_over(&self, slot: u16) {
        if self.any.load(Ordering::Relaxed) {
            let mut slots = self.slots();
            slots.remove(&slot);
            slots.retain(|_, since| since.elapsed() < FOR);
            self.any.store(!slots.is_empty(), Ordering::Relaxed);
        }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<u16, Instant>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_answers_is_waited_for_again() {
        let moving = Moving::default();
        assert!(!moving.is_known(7));
        moving.note(7);
        assert!(moving.is_known(7) && !moving.is_known(8));
        moving.is_over(8);
        assert!(moving.is_known(7));
        moving.is_over(7);
        assert!(!moving.is_known(7) && !moving.any.load(Ordering::Relaxed));
    }
}
