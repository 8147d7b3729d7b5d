use std::{fmt, sync::Arc};

use super::{Deposit, Flight, Full};

/// A caller's part in a flight. The flight goes on while one is held.
pub(crate) struct Share {
    flight: Arc<Flight>,
    place: usize,
    /// Whether it is counted among the followers.
    follows: bool,
}

impl Share {
    pub(super) fn new(flight: &Arc<Flight>, place: usize, follows: bool) -> Self {
        Self { flight: Arc::clone(flight), place, follows }
    }

    pub(crate) fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.flight.leave(self.place, self.follows);
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Share").field(&self.flight.key()).finish()
    }
}

/// What became of a caller at the door.
pub(super) enum Entered {
    In(Share),
    Full(Full),
    /// Nobody is let in any more.
    Closed(Arc<dyn Deposit>),
}
