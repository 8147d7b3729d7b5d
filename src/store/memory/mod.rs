use std::{fmt, sync::Arc};

use crate::{id::KeyDigest, key::Name};

use self::{
    look::MemoryScan,
    session::{MemoryHeartbeat, MemorySession},
    shards::Shards,
};
use super::{
    BoxFuture, Heartbeat, KeyView, Scan, Session, Store, StoreError, StoreErrorKind, StoreState,
};

mod kept;
mod listener;
mod look;
mod meta;
#[cfg(test)]
mod model;
mod record;
mod session;
mod shards;
#[cfg(all(test, feature = "test-util"))]
mod tests;

/// The store inside the process: what a layer uses until it is given another.
///
/// It keeps the whole store protocol, so that a layer behaves the same on it as on
/// a server. Clones share their data: layers that are given clones of one store
/// meet there as processes of a fleet meet on a server, which is how a fleet is
/// tested without one.
///
/// Time is tokio's, so that a test with a paused clock decides how fast leases
/// run out. Records vanish when their time is over; there is no task behind it:
/// each use of the store clears a few of those that are due.
///
/// ```
/// use tower_singleflight::MemoryStore;
///
/// let store = MemoryStore::new();
/// let node = store.clone();
/// assert!(node.is_empty());
/// ```
#[derive(Clone, Default)]
pub struct MemoryStore {
    shards: Arc<Shards>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Loses all data, as a server that restarts empty: leases, answers, marks.
    ///
    /// Waiting sessions stay subscribed and are told to look. Tokens go on growing.
    pub fn clear(&self) {
        self.shards.clear();
    }

    /// A token for a run that needs no record: where nobody else can come to this store,
    /// and it knows nothing of the key. The store hears of the run only if there is
    /// something to be kept of it.
    pub(crate) fn grant(&self, name: &Name) -> Option<u64> {
        self.shards.grant(name)
    }

    /// How many keys have a record whose time is not over.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// True where no key has a record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Store for MemoryStore {
    fn session(&self, key: KeyDigest) -> Box<dyn Session> {
        Box::new(MemorySession::new(Arc::clone(&self.shards), key))
    }

    fn heartbeat(&self) -> Box<dyn Heartbeat> {
        Box::new(MemoryHeartbeat::new(Arc::clone(&self.shards)))
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn state(&self) -> StoreState {
        StoreState::Memory
    }

    fn errors(&self) -> Vec<(StoreErrorKind, u64)> {
        Vec::new()
    }

    fn inspect(&self, key: KeyDigest) -> BoxFuture<'_, Result<Option<KeyView>, StoreError>> {
        Box::pin(std::future::ready(Ok(self.shards.view(&key))))
    }

    fn scan(&self) -> Box<dyn Scan> {
        Box::new(MemoryScan::new(Arc::clone(&self.shards)))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
