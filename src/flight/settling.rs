use std::sync::Arc;

use crate::{
    error::{Failure, FailureKind},
    flights::{Flight, Verdict},
};

/// Settles the flight when its driver ends; one that is not over by then is left
/// for a caller to drive on.
pub(super) struct Settling(pub(super) Arc<Flight>);

impl std::ops::Deref for Settling {
    type Target = Arc<Flight>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        if self.0.verdict().is_none() {
            // Who reads a body drives no flight on.
            if !self.0.is_closed() && !self.0.is_live() {
                return self.0.orphan();
            }
            // Forgotten and then dropped, or over with nobody left to hear of it.
            let failure = Failure::new(FailureKind::OwnerVanished, None);
            self.0.decide(Verdict::Failed(failure));
        }
        self.0.settle();
    }
}
