//! A look at the whole fleet, through the store that it meets on.

use std::{collections::HashSet, fmt, sync::Arc};

use crate::{
    core::Core,
    id::KeyDigest,
    store::{KeyView, Scan, Store, StoreError},
};

/// What is in the air in the whole fleet, by the digests of keys.
///
/// Keys are not in the store; [`SingleFlightLayer::digest`](crate::SingleFlightLayer::digest)
/// says which digest a request has, and so do the layer's spans. A layer's own
/// [`fleet`](crate::SingleFlightLayer::fleet) acts in its own process at once; one that is
/// made of a store alone, as a tool does it, is heard of by push or within a heartbeat.
///
/// Layers that have no store but their own meet nobody: what they have in the air is in
/// [`flights`](crate::SingleFlightLayer::flights) alone.
///
/// ```
/// use tower_singleflight::{Fleet, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_singleflight::store::StoreError> {
/// let fleet = Fleet::new(MemoryStore::new());
/// for flight in fleet.flights(1000).await? {
///     println!("{} {} by {}: {:?}", flight.key, flight.status, flight.owner, flight.age);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Fleet {
    store: Arc<dyn Store>,
    core: Option<Arc<Core>>,
}

impl Fleet {
    /// The fleet that meets on this store.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self { store: Arc::new(store), core: None }
    }

    pub(crate) fn of(core: &Arc<Core>) -> Self {
        Self { store: Arc::clone(&core.store), core: Some(Arc::clone(core)) }
    }

    /// What the store has of a key; none where it has nothing that this release can read.
    /// Changes nothing. Cancel-safe.
    ///
    /// # Errors
    ///
    /// The store did not answer.
    pub async fn inspect(&self, key: KeyDigest) -> Result<Option<KeyView>, StoreError> {
        self.store.inspect(key).await
    }

    /// Up to `most` flights that are in the air, in no order. Looks through the whole store,
    /// or until it has found so many; [`scan`](Self::scan) does it page by page.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// The store, or a server of it, did not answer; or its user may not look through all
    /// keys: `RedisStore` needs the right to `SCAN` for it.
    pub async fn flights(&self, most: usize) -> Result<Vec<KeyView>, StoreError> {
        let (mut scan, mut seen, mut found) = (self.scan(), HashSet::new(), Vec::new());
        while found.len() < most {
            let Some(page) = scan.next().await? else { break };
            let in_air = page.keys.into_iter().filter(KeyView::is_in_air);
            found.extend(in_air.filter(|view| seen.insert(view.key)));
        }
        found.truncate(most);
        Ok(found)
    }

    /// Looks through all keys of the store, also those whose flights have ended, page by
    /// page. Does nothing before the first page is asked for.
    #[must_use]
    pub fn scan(&self) -> Box<dyn Scan> {
        self.store.scan()
    }

    /// As [`SingleFlightLayer::forget`](crate::SingleFlightLayer::forget), by digest.
    ///
    /// # Errors
    ///
    /// The store did not hear of it.
    pub async fn forget(&self, key: KeyDigest) -> Result<(), StoreError> {
        match &self.core {
            Some(core) => core.forget_digest(key, || core.flights.find(key)).await,
            None => self.store.session(key).forget().await,
        }
    }

    /// As [`SingleFlightLayer::stop`](crate::SingleFlightLayer::stop), by digest.
    ///
    /// # Errors
    ///
    /// The store did not hear of it.
    pub async fn stop(&self, key: KeyDigest) -> Result<(), StoreError> {
        match &self.core {
            Some(core) => core.stop_digest(key, core.flights.find(key)).await,
            None => self.store.session(key).stop().await,
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("store", &self.store).finish_non_exhaustive()
    }
}
