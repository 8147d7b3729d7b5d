//! The number that tokens begin at. It lies in a slot of its own, so that no grant can
//! look at it: each tells it afterwards what was given out.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use tokio::time::{Instant, timeout};

use super::{
    members::Cluster,
    redirect::{Heard, hear},
    slot::slot_of,
};
use crate::store::redis::{pool::Request, reply, step};

/// What is on its way to the number, and what goes next.
#[derive(Debug, Default)]
pub(super) struct Counting {
    /// When it was sent.
    sent: Option<Instant>,
    next: Option<u64>,
}

impl Cluster {
    /// What the token of the next grant is to be no less than, as far as is known here.
    pub(in super::super) fn prefetched(&self) -> u64 {
        self.prefetched.load(Ordering::Relaxed)
    }

    /// A token was given out. Nobody waits for the number to hear of it, and where it
    /// does not, nothing is lost: it is a lower bound.
    pub(in super::super) fn granted(self: &Arc<Self>, token: u64) {
        {
            let mut counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
            // One at a time: the greatest of those that come meanwhile goes next. One
            // that its runtime took with it makes way.
            if counting.sent.is_some_and(|sent| sent.elapsed() < 4 * self.operation_limit()) {
                counting.next = counting.next.max(Some(token));
                return;
            }
            counting.sent = Some(Instant::now());
        }
        tokio::spawn(Arc::clone(self).count_on(token));
    }

    async fn count_on(self: Arc<Self>, mut token: u64) {
        loop {
            if let Ok(Some(number)) = timeout(self.operation_limit(), self.count_once(token)).await
            {
                self.prefetched.fetch_max(number, Ordering::Relaxed);
            }
            let mut counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(next) = counting.next.take() else {
                counting.sent = None;
                return;
            };
            counting.sent = Some(Instant::now());
            token = next;
        }
    }

    /// Beside the breaker: what becomes of it says nothing of the flights.
    async fn count_once(self: &Arc<Self>, token: u64) -> Option<u64> {
        let slot = slot_of(self.maker.plan.names.owner_seq().as_bytes());
        let call = step::count_on(&self.maker.plan.names, token);
        for _ in 0..2 {
            let node = self.node_now(slot).filter(|node| !node.shard.gate.is_open())?;
            let answer = node.shard.pool.send(Request::script(&call)).await.ok()?;
            match hear(answer, &node.place.0).ok()? {
                Heard::Answer(answer) => return reply::counted(answer).ok(),
                Heard::Moved(place) => self.moved(slot, &place),
                _ => return None,
            }
        }
        None
    }
}
