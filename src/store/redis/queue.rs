//! The pushes that one session has not read yet.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::store::Pushed;

/// So many wait, and so many bytes with them; what comes on top costs a look.
const LIMIT: usize = 128;
const BYTES: usize = 1 << 20;

/// Marks a line that has not confirmed yet. No process opens so many.
const ASKED: u64 = 1 << 63;

/// A bounded queue with one reader.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
    /// The line on which the server confirmed the subscription, or with a mark, on which
    /// it is to; 0: none.
    line: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    pushes: VecDeque<Pushed>,
    bytes: usize,
}

impl Queue {
    /// Whether the server confirmed the subscription on this line.
    pub(super) fn is_on(&self, line: u64) -> bool {
        self.line.load(Ordering::Relaxed) == line
    }

    /// It is asked for on this line.
    pub(super) fn ask_on(&self, line: u64) {
        self.line.store(line | ASKED, Ordering::Relaxed);
    }

    /// The server confirmed what was asked for on this line. It may have ended it since,
    /// before whoever asked could see the answer.
    pub(super) fn confirm(&self, line: u64) {
        let order = Ordering::Relaxed;
        let _ = self.line.compare_exchange(line | ASKED, line, order, order);
    }

    /// The subscription is over.
    pub(super) fn end(&self) {
        self.line.store(0, Ordering::Relaxed);
    }

    /// Adds a push; where there is no room, all become one word to look.
    pub(super) fn push(&self, pushed: Pushed) {
        {
            let mut waiting = self.lock();
            let bytes = waiting.bytes.saturating_add(weight(&pushed));
            if waiting.pushes.len() < LIMIT && bytes <= BYTES {
                waiting.bytes = bytes;
                waiting.pushes.push_back(pushed);
            } else {
                *waiting = Waiting { pushes: [Pushed::Gap].into(), bytes: 0 };
            }
        }
        self.arrived.notify_one();
    }

    /// The next push. Nothing is lost where the future is dropped.
    pub(super) async fn next(&self) -> Pushed {
        loop {
            if let Some(pushed) = self.take() {
                return pushed;
            }
            self.arrived.notified().await;
        }
    }

    fn take(&self) -> Option<Pushed> {
        let mut waiting = self.lock();
        let pushed = waiting.pushes.pop_front()?;
        waiting.bytes = waiting.bytes.saturating_sub(weight(&pushed));
        Some(pushed)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn weight(pushed: &Pushed) -> usize {
    match pushed {
        Pushed::Piece { piece, .. } => piece.as_ref().map_or(0, Bytes::len),
        Pushed::Ended { record, seal, .. } => {
            let proof = seal.as_ref().map_or(0, |seal| seal.proof.len());
            proof + record.as_ref().map_or(0, Bytes::len)
        }
        _ => 0,
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

    #[tokio::test]
    async fn large_pieces_overflow_sooner() {
        let queue = Queue::default();
        let flight = FlightRef { token: 1, id: FlightId::from_u128(1) };
        let push = |index| {
            let piece = Some(Bytes::from_static(&[0; BYTES / 4]));
            queue.push(Pushed::Piece { flight, index, piece });
        };
        (0..4).for_each(push);
        // What was read makes room.
        assert!(matches!(queue.next().await, Pushed::Piece { index: 0, .. }));
        (4..6).for_each(push);
        assert!(matches!(queue.next().await, Pushed::Gap));
        push(6);
        assert!(matches!(queue.next().await, Pushed::Piece { index: 6, .. }));
    }
}
