//! What becomes of a flight.

use std::time::Duration;

use crate::{error::Failure, log::SharedRun};

/// Where a shared answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From a run of this process.
    Here,
    /// From the flight of another process.
    Elsewhere,
    /// From a flight that had ended so long before.
    Reused { age: Duration },
}

/// What became of a flight, for its callers.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// All get this answer.
    Replay { run: SharedRun, origin: Origin },
    /// Each runs its own request: at once, or in turn where they have waited for a run
    /// and are let go together.
    Alone { together: bool },
    /// All get this failure.
    Failed(Failure),
}

/// An answer on its way.
pub(super) struct Live {
    pub(super) run: SharedRun,
    pub(super) origin: Origin,
    /// Nobody may begin with it: its run may be over, and another one's come.
    pub(super) held_back: bool,
}
