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
