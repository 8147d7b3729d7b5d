use std::{future::poll_fn, pin::pin, task::Poll};

use crate::sync::{
    Notify,
    atomic::{AtomicBool, Ordering},
};

/// Said once: the flight is stopped.
#[derive(Debug)]
pub(crate) struct Halt {
    said: AtomicBool,
    heard: Notify,
}

impl Default for Halt {
    fn default() -> Self {
        Self { said: AtomicBool::new(false), heard: Notify::new() }
    }
}

impl Halt {
    pub(super) fn set(&self) {
        self.said.store(true, Ordering::Release);
        self.heard.notify_waiters();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.said.load(Ordering::Acquire)
    }

    /// Drives a future for as long as it is not said.
    pub(crate) async fn unless_set<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| if self.is_set() { Poll::Pending } else { future.as_mut().poll(cx) }).await
    }

    /// Waits for it. Cancel-safe.
    pub(crate) async fn heard(&self) {
        loop {
            let heard = self.heard.notified();
            if self.is_set() {
                return;
            }
            heard.await;
        }
    }
}
