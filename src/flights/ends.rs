//! How a flight ends, but by its run.

use super::{Flight, Halt, Verdict, flight::lock};
use crate::{
    error::{Failure, FailureKind},
    lease::Probe,
};

impl Flight {
    /// Ends the flight for all its callers here; its driver drops the run and settles it.
    /// One that has its outcome keeps it.
    pub(crate) fn stop(&self) {
        if self.verdict.get().is_none() {
            self.decide(Verdict::Failed(Failure::new(FailureKind::Stopped, None)));
            self.halt.set();
        }
    }

    /// What says that it was stopped.
    pub(crate) fn halt(&self) -> &Halt {
        &self.halt
    }

    /// Leaves a probe for the first caller that takes it.
    pub(crate) fn leave_probe(&self, probe: Box<Probe>) {
        *lock(&self.probe) = Some(probe);
    }

    pub(crate) fn take_probe(&self) -> Option<Box<Probe>> {
        lock(&self.probe).take()
    }
}
