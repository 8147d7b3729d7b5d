//! The sending of an answer to the store while it comes, as the driver sees it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::publisher::{Publisher, Stop};
use crate::{
    core::Core,
    lease::Lease,
    log::SharedRun,
    record::Encoder,
    store::{BoxFuture, Seal, Session},
};

/// The sending of one run's answer.
pub(super) struct Publication {
    work: Work,
    begun: Arc<AtomicBool>,
}

enum Work {
    /// Until the answer has ended, or nothing more can be sent.
    Going(BoxFuture<'static, (Box<Publisher>, Stop)>),
    Over(Box<Publisher>, Stop),
    Gone,
}

impl Publication {
    pub(super) fn new(
        encoder: Encoder,
        session: Box<dyn Session>,
        lease: Arc<Lease>,
        run: &SharedRun,
        core: &Arc<Core>,
    ) -> Self {
        let publisher = Box::new(Publisher::new(encoder, session, lease, run, core));
        let begun = publisher.begun();
        Self { work: Work::Going(Box::pin(publisher.go())), begun }
    }

    /// Whether the store was given something.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Sends what is to be sent, until others cannot have the answer any more.
    /// Cancel-safe; pends for ever where that never happens.
    pub(super) async fn outgrown(this: Option<&mut Self>) {
        if let Some(this) = this
            && this.stopped().await == Stop::GaveUp
        {
            return;
        }
        std::future::pending().await
    }

    /// Sends the rest; the seal of all of it, where it could be sent. Cancel-safe.
    pub(super) async fn seal(&mut self) -> Option<Seal> {
        if self.stopped().await == Stop::Ended
            && let Work::Over(publisher, _) = std::mem::replace(&mut self.work, Work::Gone)
        {
            self.work = Work::Going(Box::pin(publisher.go_to_end()));
            self.stopped().await;
        }
        match &self.work {
            Work::Over(publisher, Stop::Ended) => Some(publisher.seal()),
            _ => None,
        }
    }

    /// The store has lost pieces, from this one on.
    pub(super) fn rewind(&mut self, next: u64) {
        if let Work::Over(publisher, stop) = &mut self.work
            && !publisher.rewind(next)
        {
            *stop = Stop::GaveUp;
        }
    }

    async fn stopped(&mut self) -> Stop {
        if let Work::Going(going) = &mut self.work {
            let (publisher, stop) = going.await;
            self.work = Work::Over(publisher, stop);
        }
        match self.work {
            Work::Over(_, stop) => stop,
            _ => Stop::Lost,
        }
    }
}
