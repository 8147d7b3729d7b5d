//! For how long a server is the one that all connections go to.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use super::address::Place;

/// The masters that there were, one after the other.
#[derive(Debug, Default)]
pub(super) struct Terms {
    master: Mutex<Option<Place>>,
    number: watch::Sender<u64>,
}

/// One master's time, as a connection to it knows it. Connections to two of them would
/// be two stores.
#[derive(Clone, Debug)]
pub(super) struct Term {
    number: u64,
    now: watch::Receiver<u64>,
}

impl Terms {
    /// The term that has begun, or goes on, with a connection to this master.
    pub(super) fn of(&self, place: Place) -> Term {
        let mut master = self.master.lock().unwrap_or_else(PoisonError::into_inner);
        if master.as_ref() != Some(&place) {
            *master = Some(place);
            self.number.send_modify(|number| *number += 1);
        }
        self.now()
    }

    /// The term of a server that stays.
    pub(super) fn now(&self) -> Term {
        let now = self.number.subscribe();
        let number = *now.borrow();
        Term { number, now }
    }
}

impl Term {
    /// Whether connections go to another server by now.
    pub(super) fn is_over(&self) -> bool {
        *self.now.borrow() != self.number
    }

    /// Waits until it is over. Cancel-safe.
    pub(super) async fn over(&mut self) {
        let number = self.number;
        if self.now.wait_for(|now| *now != number).await.is_err() {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_term_ends_with_the_next() {
        let terms = Terms::default();
        let place = |port| ("host".to_owned(), port);
        let mut first = terms.of(place(1));
        let same = terms.of(place(1));
        assert!(!first.is_over() && !same.is_over());
        let (second, ()) = tokio::join!(async { terms.of(place(2)) }, first.over());
        assert!(first.is_over() && same.is_over() && !second.is_over());
        // Back again is another term.
        let third = terms.of(place(1));
        assert!(first.is_over() && second.is_over() && !third.is_over());
        assert!(!terms.now().is_over());
    }
}
