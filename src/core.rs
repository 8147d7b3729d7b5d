//! What all clones of one layer share.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use http::HeaderName;

use crate::{
    codec::{Asked, Codec, Judgement},
    config::Config,
    counts::Counts,
    drain::Drain,
    flights::{Flight, Flights, Limits},
    holdings::Holdings,
    id::KeyDigest,
    key::{Digester, Key, KeyExtractor, Name},
    lease::{KeeperHandle, Terms},
    record::Sealer,
    selection::Fields,
    store::{MemoryStore, Store, StoreError},
    switch::Switch,
    telemetry::Telemetry,
    turns::Turns,
};

/// The state behind a layer: its flights, its store, its keeper.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) digester: Arc<Digester>,
    pub(crate) sealer: Sealer,
    pub(crate) store: Arc<dyn Store>,
    /// The store, where no other layer can come to it and answers are not used again: the
    /// table of flights alone says then who runs.
    pub(crate) embedded: Option<MemoryStore>,
    pub(crate) flights: Arc<Flights>,
    /// Answers that are used again without a word to the store.
    pub(crate) holdings: Option<Holdings>,
    pub(crate) keeper: Arc<KeeperHandle>,
    pub(crate) counts: Counts,
    pub(crate) drain: Drain,
    pub(crate) switch: Switch,
    pub(crate) telemetry: Telemetry,
    /// Where those who are let go together enter inner in turn.
    pub(crate) turns: Option<Arc<Turns>>,
    /// Where digests of answers meet, in shadow mode. Nothing else flies then.
    pub(crate) shadow: Option<Arc<Self>>,
    _unnamed: Option<Unnamed>,
}

impl Core {
    /// `store` is where processes meet; none: there is this one.
    pub(crate) fn new(
        config: Config,
        digester: Digester,
        sealer: Sealer,
        store: Option<Arc<dyn Store>>,
        telemetry: Telemetry,
    ) -> Self {
        let Some(store) = store else {
            let own = MemoryStore::new();
            return Self::at(config, digester, sealer, Arc::new(own.clone()), Some(own), telemetry);
        };
        Self::at(config, digester, sealer, store, None, telemetry)
    }

    /// The same, of a layer that was given no namespace.
    pub(crate) fn unnamed(self) -> Self {
        let _unnamed = self.store.is_remote().then(Unnamed::count);
        Self { _unnamed, ..self }
    }

    /// `own` is the store, where no other layer can come to it.
    fn at(
        config: Config,
        digester: Digester,
        sealer: Sealer,
        store: Arc<dyn Store>,
        own: Option<MemoryStore>,
        telemetry: Telemetry,
    ) -> Self {
        let shadow = config.for_shadow().map(|config| {
            let store = Arc::clone(&store);
            let (digester, telemetry) = (digester.for_shadow(), telemetry.unmetered());
            // In one store with this core, but under other keys.
            Arc::new(Self::at(config, digester, sealer, store, own.clone(), telemetry))
        });
        Self {
            shadow,
            _unnamed: None,
            keeper: Arc::new(KeeperHandle::new(Terms::new(&config), Arc::clone(&store))),
            flights: Arc::new(Flights::new(Limits {
                per_key: config.followers_per_key,
                in_all: config.followers,
            })),
            holdings: config.holds().then(|| Holdings::new(config.local_results)),
            counts: Counts::told_by(telemetry.meter()),
            drain: Drain::default(),
            switch: Switch::default(),
            telemetry,
            turns: config.release_rate.map(|rate| Arc::new(Turns::new(rate))),
            embedded: own.filter(|_| config.reuse.is_zero()),
            config,
            digester: Arc::new(digester),
            sealer,
            store,
        }
    }
}

impl Core {
    /// Lets who comes after this begin a new flight of the key, in the whole fleet.
    pub(crate) async fn forget(&self, key: Key) -> Result<(), StoreError> {
        let name = Name::new(key, &self.digester);
        let told = self.forget_digest(*name.digest(), || self.flights.get(&name)).await;
        if let Some(holdings) = &self.holdings {
            holdings.forget(&name);
        }
        told
    }

    /// As [`forget`](Self::forget); `flight` finds the one of this process.
    pub(crate) async fn forget_digest(
        &self,
        key: KeyDigest,
        flight: impl FnOnce() -> Option<Arc<Flight>> + Send,
    ) -> Result<(), StoreError> {
        let told = self.store.session(key).forget().await;
        // The store first: a new flight here must not find the old one there.
        if let Some(flight) = flight() {
            if flight.runs_here() {
                flight.settle();
            } else if told.is_ok() {
                // Its driver is yet to hear of it, and then moves on.
                flight.hold_back(true);
                flight.forget();
            }
        }
        told
    }

    /// Stops what runs for the key, in the whole fleet.
    pub(crate) async fn stop(&self, key: Key) -> Result<(), StoreError> {
        let name = Name::new(key, &self.digester);
        // Taken first: who comes after the store has heard of it has begun anew.
        self.stop_digest(*name.digest(), self.flights.get(&name)).await
    }

    /// As [`stop`](Self::stop), with the flight of this process.
    pub(crate) async fn stop_digest(
        &self,
        key: KeyDigest,
        flight: Option<Arc<Flight>>,
    ) -> Result<(), StoreError> {
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

/// A layer of this process that has the default namespace, where others can come to its
/// store. A second one may ask for other things under equal keys, and nobody would see it.
struct Unnamed(());

impl Unnamed {
    fn count() -> Self {
        // It is a hint: to be said once is enough, also where layers come and go.
        static TOLD: AtomicBool = AtomicBool::new(false);
        let is_second = ALIVE.fetch_add(1, Ordering::Relaxed) > 0;
        if is_second && !TOLD.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "two layers of this process have the default namespace: where their keys can be \
                 the same and their answers differ, each needs its own \
                 (`SingleFlightLayer::namespace`)"
            );
        }
        Self(())
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

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

    /// Where this layer's flights are.
    pub(crate) fn flying(&self) -> &Arc<Core> {
        self.core.shadow.as_ref().unwrap_or(&self.core)
    }

    /// Whether others may have this response.
    pub(crate) fn judge<Req, Res, E>(
        &self,
        response: &Res,
        identified: bool,
        reuse: bool,
    ) -> Judgement
    where
        K: KeyExtractor<Req>,
        C: Codec<Req, Res, E>,
    {
        let covers = |name: &HeaderName| self.key.covers_header(name);
        self.codec.judge(response, &Asked::new(&covers, identified, reuse))
    }

    /// A request's headers outside the key; none where the codec knows of no headers.
    pub(crate) fn outside<Req, Res, E>(&self, request: &Req) -> Option<Fields>
    where
        K: KeyExtractor<Req>,
        C: Codec<Req, Res, E>,
    {
        let headers = self.codec.headers(request)?;
        let outside = headers.iter().filter(|(name, _)| !self.key.covers_header(name));
        Some(outside.map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}
