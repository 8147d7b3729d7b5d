//! Settings of the store.

use std::{fmt, sync::Arc, time::Duration};

use bb8_redis::{RedisConnectionManager, bb8, redis};

use super::{
    address::Address,
    budget::Budget,
    cluster::Cluster,
    handle::{RedisStore, Servers, Shared},
    keys::Names,
    shard::Plan,
};
use crate::store::{StoreError, StoreErrorKind};

const PREFIX_MAX: usize = 64;

/// Builds a [`RedisStore`]. Made by [`RedisStore::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct RedisStoreBuilder {
    server: Server,
    sentinel_login: Option<(String, String)>,
    #[cfg(feature = "tls")]
    tls: super::tls::Tls,
    prefix: String,
    operation_limit: Duration,
    connect_limit: Duration,
    pool_size: u32,
    max_stored_bytes: u64,
}

/// Where the server is.
#[derive(Clone)]
pub(super) enum Server {
    Url(String),
    Pool(bb8::Pool<RedisConnectionManager>, Box<redis::Client>),
}

impl RedisStoreBuilder {
    pub(super) fn new(server: Server) -> Self {
        Self {
            server,
            sentinel_login: None,
            #[cfg(feature = "tls")]
            tls: super::tls::Tls::default(),
            prefix: "ai:flight".to_owned(),
            operation_limit: Duration::from_millis(250),
            connect_limit: Duration::from_secs(2),
            pool_size: 4,
            max_stored_bytes: 256 * 1024 * 1024,
        }
    }

    /// What all keys and channels in the server begin with: ASCII, at most 64
    /// characters, without braces and blanks. Defaults to `ai:flight`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long one operation may take, with all waiting. What moves more may take
    /// eight times as long: a record of more than 4 KiB, pieces of a stream of more than
    /// 16 KiB in all, and whatever is read of one. Defaults to 250 ms.
    pub fn operation_limit(mut self, limit: Duration) -> Self {
        self.operation_limit = limit;
        self
    }

    /// How long connecting may take. Defaults to 2 s.
    pub fn connect_limit(mut self, limit: Duration) -> Self {
        self.connect_limit = limit;
        self
    }

    /// How many connections scripts share, where the pool is the store's own: one does
    /// the work, and the others stand by for when it breaks. Defaults to 4. Three more
    /// exist beside them: for pushes, for large records and streams, and for the keeper.
    /// A cluster has as many for each of its masters.
    pub fn pool_size(mut self, size: u32) -> Self {
        self.pool_size = size;
        self
    }

    /// The most bytes of answers that this store and its clones have in the server at a
    /// time: records and pieces of streams as they are written, until they expire.
    /// Defaults to 256 MiB.
    ///
    /// An answer for which there is no room is one that is too large for the others: its
    /// own process's callers get it, and who follows elsewhere runs its own request. For
    /// a body of known length room is kept from its beginning on; one whose length is not
    /// known may find no more, and who has begun with it gets a body error. Counted as
    /// [`StoreErrorKind::Limit`]; [`RedisStore::stored_bytes`] says how much is held.
    ///
    /// An answer counts for its `retention`, so that the bound is also one on how many bytes
    /// a second are shared with other processes: 256 MiB in 30 s are some 9 MiB a second.
    /// The server needs some more, for what it knows of each key.
    pub fn max_stored_bytes(mut self, bytes: u64) -> Self {
        self.max_stored_bytes = bytes;
        self
    }

    /// The user name and the password that the sentinels ask for; without a name, an
    /// empty one. Those in the address are the server's. Defaults to none.
    pub fn sentinel_login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.sentinel_login = Some((user.into(), password.into()));
        self
    }

    /// The certificate, in PEM, that the server's must lead to; there may be several.
    /// Defaults to those that the system trusts.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.set_root(pem.into());
        self
    }

    /// The certificate and the key, both in PEM, by which the server knows the client.
    /// Defaults to none.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.set_client(certificate.into(), key.into());
        self
    }

    /// Connects, and makes sure that server and user can do all that is needed.
    ///
    /// # Errors
    ///
    /// As [`RedisStore::connect`], and where a setting cannot work.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let store = self.build()?;
        store.check().await?;
        Ok(store)
    }

    /// Does no I/O: for processes that start while the server is away. Whatever is
    /// wrong with the server shows with the first operation, and in the log.
    ///
    /// # Errors
    ///
    /// Where the address is not one, and where a setting cannot work.
    pub fn connect_lazy(self) -> Result<RedisStore, StoreError> {
        self.build()
    }

    fn build(self) -> Result<RedisStore, StoreError> {
        let Self { server, prefix, operation_limit: limit, connect_limit, pool_size, .. } = self;
        let budget = Budget::new(self.max_stored_bytes, limit);
        let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if prefix.is_empty() || prefix.len() > PREFIX_MAX || !prefix.bytes().all(fits) {
            let rule = "must be 1 to 64 ASCII characters without braces and blanks";
            return Err(refused("prefix", prefix, rule));
        }
        for (setting, value) in [("operation_limit", limit), ("connect_limit", connect_limit)] {
            if value < Duration::from_millis(1) {
                return Err(refused(setting, value, "must be at least 1ms"));
            }
        }
        if pool_size == 0 {
            return Err(refused("pool_size", pool_size, "must be at least 1"));
        }
        if self.max_stored_bytes == 0 {
            return Err(refused("max_stored_bytes", 0, "must be at least 1"));
        }
        let (mut address, pool) = match server {
            Server::Url(url) => (Address::parse(&url)?, None),
            Server::Pool(pool, client) => {
                (Address::at(client.get_connection_info().clone()), Some(pool))
            }
        };
        if let Some((user, password)) = &self.sentinel_login {
            address = address.with_sentinel_login(user, password)?;
        }
        #[cfg(feature = "tls")]
        let address = self.tls.apply(address)?;
        let names = Names::new(&prefix, address.database());
        let names = if address.nodes.is_some() { names.sharded() } else { names };
        let errors = Arc::default();
        let plan = Plan {
            names: names.clone(),
            operation_limit: limit,
            connect_limit,
            pool_size,
            errors: Arc::clone(&errors),
        };
        let servers = match address.nodes.clone() {
            Some(nodes) => Servers::Many(Arc::new(Cluster::new(plan, address, nodes))),
            None => Servers::One(Arc::new(plan.server(address, pool))),
        };
        Ok(RedisStore::new(Shared { names, servers, errors, budget: Arc::new(budget) }))
    }
}

fn refused(setting: &str, value: impl fmt::Debug, rule: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Setting, format!("{setting} ({value:?}) {rule}"))
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("server", &"..")
            .field("prefix", &self.prefix)
            .field("operation_limit", &self.operation_limit)
            .field("connect_limit", &self.connect_limit)
            .field("pool_size", &self.pool_size)
            .field("max_stored_bytes", &self.max_stored_bytes)
            .finish_non_exhaustive()
    }
}
