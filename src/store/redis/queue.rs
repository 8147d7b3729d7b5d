//! The pushes that one session has not read yet.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;

use crate::store::Pushed;

const LIMIT: usize = 32;

/// A bounded queue with one reader.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<VecDeque<Pushed>>,
    arrived: Notify,
}

impl Queue {
    /// Adds a push; where there is no room, all become one word to look.
    pub(super) fn push(&self, pushed: Pushed) {
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.len() < LIMIT {
                waiting.push_back(pushed);
            } else {
                waiting.clear();
                waiting.push_back(Pushed::Gap);
            }
        }
        self.arrived.notify_one();
    }

    /// The next push. Nothing is lost where the future is dropped.
    pub(super) async fn next(&self) -> Pushed {
        loop {
            let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(pushed) = next {
                return pushed;
            }
            self.arrived.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{FlightId, FlightRef};

    #[tokio::test]
    async fn overflow_is_a_gap() {
        let queue = Queue::default();
        for token in 0..=LIMIT as u64 {
            let flight = FlightRef { token, id: FlightId::from_u128(1) };
            queue.push(Pushed::Released { flight });
        }
        assert!(matches!(queue.next().await, Pushed::Gap));
        assert!(tokio::time::timeout(std::time::Duration::ZERO, queue.next()).await.is_err());
    }
}
