//! The store itself.

use std::{fmt, sync::Arc};

use bb8_redis::{
    RedisConnectionManager, bb8,
    redis::{self, Value},
};

use super::{
    budget::Budget,
    builder::{RedisStoreBuilder, Server},
    cluster::{Cluster, ClusterHeartbeat},
    counts::ErrorCounts,
    heartbeat::RedisHeartbeat,
    keys::Names,
    look::{self, RedisScan},
    question::Question,
    session::RedisSession,
    shard::Shard,
};
use crate::{
    id::KeyDigest,
    store::{
        BoxFuture, Heartbeat, KeyView, Scan, Session, Store, StoreError, StoreErrorKind, StoreState,
    },
};

/// A store on Redis or Valkey, 6.2 or newer: on one server, on one that sentinels watch,
/// or on a cluster (7.0 or newer), over TCP, TLS (feature `tls`) or a unix socket.
///
/// Clones share connections; the last one dropped ends them. See the
/// [module docs](crate::store).
///
/// # Rights
///
/// On a server with users, these are enough, for the default prefix:
///
/// ```text
/// ACL SETUSER flight on >PASSWORD resetkeys ~ai:flight:* resetchannels &ai:flight:push:* -@all
///   +eval +evalsha +subscribe +unsubscribe +publish +time +type +del +rename +pexpire
///   +pttl +get +set +strlen +exists +getrange +hset +hdel +hlen +hgetall +hmget +hincrby +zadd
///   +zrem +zcard +zscore +zrange +zremrangebyscore +xadd +xrange +xrevrange +xtrim
/// ```
///
/// A database other than 0 needs `+select`, sentinels need `+role`, each node of a cluster
/// `+ssubscribe +sunsubscribe +spublish +asking +cluster|slots`. Where answers are used again
/// and processes are to [hold](crate::ConfigBuilder::local_results) them,
/// `+client|tracking +client|caching +hmget`; without these each use asks the server.
///
/// Looking through all keys ([`Store::scan`]) needs `+scan` besides.
///
/// # Clusters
///
/// Each master is a server of its own: what happens to one does not concern the keys of
/// the others, and connections are counted for each. [`StoreState::Degraded`] says that
/// one of them, at least, does not answer. Where a key is now is found out when a node
/// sends a question elsewhere, refuses it or is away. While a slot is on its way from one
/// master to another, Redis refuses scripts with several keys of which some are absent:
/// leases of running flights are kept, but nobody new joins them until it is there, and
/// requests are answered without the store.
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<Shared>,
}

/// What all clones, sessions and heartbeats of a store share.
pub(super) struct Shared {
    pub(super) names: Names,
    pub(super) servers: Servers,
    pub(super) errors: Arc<ErrorCounts>,
    /// What of answers the servers have.
    pub(super) budget: Arc<Budget>,
}

/// Where the data is.
pub(super) enum Servers {
    /// All on one server.
    One(Arc<Shard>),
    /// On the nodes of a cluster.
    Many(Arc<Cluster>),
}

impl Shared {
    /// Asks the server that has the key.
    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Value, StoreError> {
        match &self.servers {
            Servers::One(shard) => shard.ask(question).await,
            // Apart, or each question to a single server would be as large.
            Servers::Many(cluster) => Box::pin(cluster.ask(question)).await,
        }
    }

    /// What the token of the next grant is to be no less than, as far as is known here.
    pub(super) fn prefetched(&self) -> u64 {
        match &self.servers {
            Servers::One(_) => 0,
            Servers::Many(cluster) => cluster.prefetched(),
        }
    }

    /// A token was given out.
    pub(super) fn granted(&self, token: u64) {
        if let Servers::Many(cluster) = &self.servers {
            cluster.granted(token);
        }
    }
}

impl RedisStore {
    /// Connects with default settings.
    ///
    /// # Errors
    ///
    /// Where the address is not one, where nothing answers there in time, where
    /// the credentials are refused, where the user lacks a right that is needed, and
    /// where the server is too old, runs no scripts or is a replica. The error names the
    /// address and what is missing, never the password. Of a cluster, one master at least
    /// must answer, and none that does may lack anything.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Begins with the server's address:
    ///
    /// - `redis://[user:password@]host[:port][/db]`
    /// - `rediss://…`, the same over TLS (feature `tls`)
    /// - `unix:///path/to/socket[?db=…&user=…&pass=…]`
    /// - `redis-sentinel://[user:password@]host[:port],host[:port]/master-name[/db]`: the
    ///   server that the sentinels name, looked for anew by every connection; user and
    ///   password are the server's. `rediss-sentinel://…`: all of them over TLS.
    ///
    /// - `redis-cluster://[user:password@]host[:port],host[:port]`: some nodes of a cluster,
    ///   who know the others; user and password are the same on all. `rediss-cluster://…`:
    ///   all of them over TLS, with certificates for the names by which they know each other.
    ///
    /// `?protocol=resp2` makes do without pushes; a cluster older than 7.0 needs it.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Server::Url(url.into()))
    }

    /// Begins with a pool that the application has already, for scripts. Pushes,
    /// large records and the keeper connect by the client, to the same server.
    pub fn with_pool(
        pool: bb8::Pool<RedisConnectionManager>,
        client: redis::Client,
    ) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Server::Pool(pool, Box::new(client)))
    }

    /// How many bytes of answers this store and its clones have in the server, of at most
    /// [`max_stored_bytes`](RedisStoreBuilder::max_stored_bytes).
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.shared.budget.bytes()
    }

    pub(super) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// Makes sure that the servers have what is needed, and opens their push connections
    /// ahead of the first flight.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        match &self.shared.servers {
            Servers::One(shard) => {
                shard.connector.check().await?;
                shard.hub.keep();
                Ok(())
            }
            Servers::Many(cluster) => cluster.check().await,
        }
    }
}

impl Store for RedisStore {
    fn session(&self, key: KeyDigest) -> Box<dyn Session> {
        Box::new(RedisSession::new(Arc::clone(&self.shared), key))
    }

    fn heartbeat(&self) -> Box<dyn Heartbeat> {
        let budget = Arc::clone(&self.shared.budget);
        match &self.shared.servers {
            Servers::One(shard) => Box::new(RedisHeartbeat::new(Arc::clone(shard), budget)),
            Servers::Many(cluster) => Box::new(ClusterHeartbeat::new(Arc::clone(cluster), budget)),
        }
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn state(&self) -> StoreState {
        let away = match &self.shared.servers {
            Servers::One(shard) => shard.gate.is_open(),
            Servers::Many(cluster) => cluster.is_open(),
        };
        if away { StoreState::Degraded } else { StoreState::Ok }
    }

    fn errors(&self) -> Vec<(StoreErrorKind, u64)> {
        self.shared.errors.snapshot()
    }

    fn inspect(&self, key: KeyDigest) -> BoxFuture<'_, Result<Option<KeyView>, StoreError>> {
        Box::pin(look::inspect(&self.shared, key))
    }

    fn scan(&self) -> Box<dyn Scan> {
        Box::new(RedisScan::new(Arc::clone(&self.shared)))
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = match &self.shared.servers {
            Servers::One(shard) => shard.connector.to_string(),
            Servers::Many(cluster) => cluster.to_string(),
        };
        f.debug_struct("RedisStore")
            .field("address", &format_args!("{address}"))
            .field("state", &self.state())
            .field("errors", &self.errors())
            .field("stored_bytes", &self.stored_bytes())
            .finish_non_exhaustive()
    }
}
