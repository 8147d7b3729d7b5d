//! What all clones of one layer share.

use std::{fmt, sync::Arc};

use crate::{
    config::Config,
    counts::Counts,
    drain::Drain,
    flights::{Flights, Limits},
    key::{Digester, Key, Name},
    lease::{KeeperHandle, Terms},
    store::{MemoryStore, Store, StoreError},
    switch::Switch,
    turns::Turns,
};

/// The state behind a layer: its flights, its store, its keeper.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) digester: Arc<Digester>,
    pub(crate) store: Arc<dyn Store>,
    /// The store, where no other layer can come to it and answers are not used again: the
    /// table of flights alone says then who runs.
    pub(crate) embedded: Option<MemoryStore>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) keeper: Arc<KeeperHandle>,
    pub(crate) counts: Counts,
    pub(crate) drain: Drain,
    pub(crate) switch: Switch,
    /// Where those who are let go together enter inner in turn.
    pub(crate) turns: Option<Arc<Turns>>,
}

impl Core {
    /// `store` is where processes meet; none: there is this one.
    pub(crate) fn new(config: Config, digester: Digester, store: Option<Arc<dyn Store>>) -> Self {
        let own = MemoryStore::new();
        let embedded = (store.is_none() && config.reuse.is_zero()).then(|| own.clone());
        let store = store.unwrap_or_else(|| Arc::new(own));
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
            digester: Arc::new(digester),
            store,
            embedded,
        }
    }
}

impl Core {
    /// Lets who comes after this begin a new flight of the key, in the whole fleet.
    pub(crate) async fn forget(&self, key: Key) -> Result<(), StoreError> {
        let name = Name::new(key, &self.digester);
        let told = self.store.session(*name.digest()).forget().await;
        // The store first: a new flight here must not find the old one there.
        if let Some(flight) = self.flights.get(&name) {
            if flight.runs_here() {
                flight.settle();
            } else if told.is_ok() {
                // Its driver is yet to hear of it, and then moves on.
                flight.hold_back(true);
            }
        }
        told
    }
}

impl Core {
    /// Stops what runs for the key, in the whole fleet.
    pub(crate) async fn stop(&self, key: Key) -> Result<(), StoreError> {
        let name = Name::new(key, &self.digester);
        // Taken first: who comes after the store has heard of it has begun anew.
        let flight = self.flights.get(&name);
        let told = self.store.session(*name.digest()).stop().await;
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
