//! What all clones of one layer share.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    config::Config,
    drain::Drain,
    flights::Flights,
    id::KeyDigest,
    key::Digester,
    lease::{KeeperHandle, Terms},
    store::{Store, StoreError},
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
    /// Where those who are let go together enter inner in turn.
    pub(crate) turns: Option<Arc<Turns>>,
}

impl Core {
    pub(crate) fn new(config: Config, digester: Digester, store: Arc<dyn Store>) -> Self {
        Self {
            keeper: Arc::new(KeeperHandle::new(Terms::new(&config), Arc::clone(&store))),
            flights: Arc::new(Flights::new()),
            counts: Counts::default(),
            drain: Drain::default(),
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

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters that only grow.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $($name: AtomicU64,)*
        }

        impl Counts {
            $(
                pub(crate) fn $name(&self) {
                    self.$name.fetch_add(1, Ordering::Relaxed);
                }
            )*

            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        /// What a layer has done since it was made, over all its clones.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }
    };
}

counts! {
    /// Callers whose own request was run for a flight.
    owner,
    /// Callers answered by a run of this process that was not their own.
    follower_local,
    /// Callers answered by a run of another process.
    follower_remote,
    /// Callers answered by a flight that had ended before they came.
    reused,
    /// Callers whose request was run alone: bypasses, and followers of an answer
    /// that may not be shared.
    bypass,
    /// Callers that got a failure of the layer's own.
    failed,
    /// Leases taken after another process had lost or let go its own.
    takeovers,
    /// Leases that ended before their run did.
    leases_lost,
    /// Runs that ended in an error, a panic, a broken body or a time limit.
    failed_runs,
    /// Leases given up since the process was leaving.
    hand_overs,
    /// Outcomes that the store refused, since the lease was another's.
    fenced,
    /// Keys found in quarantine.
    quarantined,
    /// Shared answers that could not be read, and counted as a miss.
    bad_records,
}
