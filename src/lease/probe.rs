use std::{fmt, sync::Arc};

use super::KeeperHandle;
use crate::{
    id::{FlightId, KeyDigest},
    store::EndStatus,
};

/// One caller's leave to find out whether a private mark is still right. Dropped, it
/// leaves that to another.
pub(crate) struct Probe {
    keeper: Arc<KeeperHandle>,
    key: KeyDigest,
    flight: FlightId,
    found: EndStatus,
}

impl Probe {
    pub(crate) fn new(keeper: &Arc<KeeperHandle>, key: KeyDigest, flight: FlightId) -> Self {
        Self { keeper: Arc::clone(keeper), key, flight, found: EndStatus::Abandoned }
    }

    /// The answer may be shared: the mark goes.
    pub(crate) fn clear(mut self) {
        self.found = EndStatus::Done;
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let Self { keeper, key, flight, found } = self;
        keeper.with(|state, now| state.release_as(*key, *flight, None, *found, now));
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("key", &self.key).finish_non_exhaustive()
    }
}
