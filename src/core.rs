//! What all clones of one layer share.

use std::{fmt, sync::Arc};

use crate::{
    config::Config,
    counts::Counts,
    drain::Drain,
    flights::{Flights, Limits},
    id::KeyDigest,
    key::Digester,
    lease::{KeeperHandle, Terms},
    store::{Store, StoreError},
    switch::Switch,
    turns::Turns,
};

/// The state behind a layer: its flights, its store, its keeper.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) digester: Digester,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) keeper: Arc<KeeperHandle>,
    pub(crate) counts: Counts,
    pub(crate) drain: Drain,
    pub(crate) switch: Switch,
    /// Where those who are let go together enter inner in turn.
    pub(crate) turns: Option<Arc<Turns>>,
}

impl Core {
    pub(crate) fn new(config: Config, digester: Digester, store: Arc<dyn Store>) -> Self {
        Self {
            keeper: Arc::new(KeeperHandle::new(Terms::new(&config), Arc::clone(&store))),
            flights: Arc::new(Flights::new(Limits {
                per_key: config.followers_per_key,
                in_all: config.followers,
            })),
            counts: Counts::default(),
            drain: Drain::default(),
            switch: Switch::default(),
            turns: config.release_rate.map(|rate| Arc::new(Turns::new(rate))),
            config,
            digester,
            store,
        }
    }
}

impl Core {
    /// Lets who comes after this begin a new flight of the key, in the whole fleet.
    pub(crate) async fn forget(&self, key: KeyDigest) -> Result<(), StoreError> {
        let told = self.store.session(key).forget().await;
        // The store first: a new flight here must not find the old one there.
        if let Some(flight) = self.flights.get(&key) {
            if flight.runs_here() {
                flight.settle();
            } else if told.is_ok() {
                // Its driver is yet to hear of it, and then moves on.
                flight.hold_back(true);
            }
        }
        told
    }

    /// Stops what runs for the key, in the whole fleet.
    pub(crate) async fn stop(&self, key: KeyDigest) -> Result<(), StoreError> {
        // Taken first: who comes after the store has heard of it has begun anew.
        let flight = self.flights.get(&key);
        let told = self.store.session(key).stop().await;
        if let Some(flight) = flight {
            flight.stop();
        }
        told
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("config", &self.config)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// What the services of a layer share.
pub(crate) struct Parts<K, C> {
    pub(crate) key: K,
    pub(crate) codec: C,
    core: Arc<Core>,
}

impl<K, C> Parts<K, C> {
    pub(crate) fn new(key: K, codec: C, core: Arc<Core>) -> Self {
        Self { key, codec, core }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}
