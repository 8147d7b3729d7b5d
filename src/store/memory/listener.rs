//! The queue between the steps that push and one waiting session.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::store::Pushed;

/// How many pushes wait for a session; what comes on top costs it a look.
const LIMIT: usize = 32;

/// One session's subscription.
#[derive(Default)]
pub(super) struct Listener {
    queue: Mutex<Queue>,
    ready: Notify,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Pushed>,
    /// Something was dropped from the front of `items`.
    gap: bool,
}

impl Listener {
    /// Adds a push; never waits.
    pub(super) fn push(&self, pushed: Pushed) {
        {
            let mut queue = self.lock();
            // The newest say most: rule 3 drops what is older than what is followed.
            if queue.items.len() == LIMIT {
                queue.items.pop_front();
                queue.gap = true;
            }
            queue.items.push_back(pushed);
        }
        self.ready.notify_one();
    }

    /// Says that pushes may have been missed.
    pub(super) fn gap(&self) {
        self.lock().gap = true;
        self.ready.notify_one();
    }

    /// The next push. A push stays in the queue until the future is ready.
    pub(super) async fn next(&self) -> Pushed {
        loop {
            if let Some(pushed) = self.take() {
                return pushed;
            }
            // A push in between left its permit: this returns at once.
            self.ready.notified().await;
        }
    }

    fn take(&self) -> Option<Pushed> {
        let mut queue = self.lock();
        if std::mem::take(&mut queue.gap) {
            return Some(Pushed::Gap);
        }
        queue.items.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
