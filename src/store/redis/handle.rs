//! The store itself.

use std::{fmt, sync::Arc};

use bb8_redis::{
    RedisConnectionManager, bb8,
    redis::{self, Cmd},
};

use super::{
    breaker::Admission,
    budget::Budget,
    builder::{RedisStoreBuilder, Server},
    gate::Gate,
    heartbeat::RedisHeartbeat,
    hub::Hub,
    keys::Names,
    pool::{Pool, Request},
    session::RedisSession,
};
use crate::{
    id::KeyDigest,
    store::{Heartbeat, Session, Store, StoreError, StoreErrorKind, StoreState},
};

/// A store on Redis or Valkey, 6.2 or newer: on one server, or on one that sentinels
/// watch, over TCP, TLS (feature `tls`) or a unix socket.
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
///   +pttl +get +set +strlen +hset +hdel +hlen +hgetall +hincrby +zadd +zrem +zcard +zscore +zrange
///   +zremrangebyscore +xadd +xrange +xrevrange +xtrim
/// ```
///
/// A database other than 0 needs `+select`, sentinels need `+role`.
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<Shared>,
}

/// What all clones, sessions and heartbeats of a store share.
pub(super) struct Shared {
    pub(super) names: Names,
    pub(super) gate: Gate,
    /// Small scripts.
    pub(super) pool: Pool,
    /// Large records, which would hold up small ones behind them.
    pub(super) bodies: Pool,
    pub(super) hub: Arc<Hub>,
    /// What of answers the server has.
    pub(super) budget: Arc<Budget>,
}

impl Shared {
    /// Runs an operation within the limit, or refuses at once. No operation waits for
    /// a store that is known to be away: it is asked beside them whether it is back.
    pub(super) async fn run<T>(
        self: &Arc<Self>,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.admit()?;
        self.gate.run(false, operation).await
    }

    /// As [`run`](Self::run), for large records.
    pub(super) async fn transfer<T>(
        self: &Arc<Self>,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.admit()?;
        self.gate.transfer(operation).await
    }

    fn admit(self: &Arc<Self>) -> Result<(), StoreError> {
        match self.gate.admit() {
            Admission::Pass => return Ok(()),
            Admission::Probe => drop(tokio::spawn(Arc::clone(self).probe())),
            Admission::Refused => {}
        }
        Err(self.gate.refused())
    }

    // A write, since a server that only reads is of no use.
    async fn probe(self: Arc<Self>) {
        let mut set = Cmd::new();
        set.arg("SET").arg(self.names.probe()).arg(1).arg("PX").arg(1000);
        let sent = self.pool.send(Request::Command(&set), true);
        // The breaker has heard how it went.
        drop(self.gate.run(true, sent).await);
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
    /// address and what is missing, never the password.
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
    /// `?protocol=resp2` makes do without pushes.
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

    /// Opens the push connection ahead of the first flight.
    pub(super) fn warm(&self) {
        self.shared.hub.keep();
    }
}

impl Store for RedisStore {
    fn session(&self, key: KeyDigest) -> Box<dyn Session> {
        Box::new(RedisSession::new(Arc::clone(&self.shared), key))
    }

    fn heartbeat(&self) -> Box<dyn Heartbeat> {
        Box::new(RedisHeartbeat::new(Arc::clone(&self.shared)))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn state(&self) -> StoreState {
        self.shared.gate.state()
    }

    fn errors(&self) -> Vec<(StoreErrorKind, u64)> {
        self.shared.gate.errors()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("address", &format_args!("{}", self.shared.hub.connector))
            .field("state", &self.state())
            .field("errors", &self.errors())
            .field("stored_bytes", &self.stored_bytes())
            .finish_non_exhaustive()
    }
}
