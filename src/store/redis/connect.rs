//! Connections.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bb8_redis::redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, ProtocolVersion, PushInfo,
    RedisError, aio::MultiplexedConnection,
};

use super::{
    address::{Address, moved},
    check::Asked,
    cluster::{Doubt, Territory},
    error,
    keys::Names,
    sentinel::{Sentinels, is_master},
    term::{Term, Terms},
};
use crate::store::{StoreError, StoreErrorKind};

/// What to do with whatever the server sends unasked.
pub(super) type OnPush = Box<dyn Fn(PushInfo) + Send + Sync>;

/// Makes connections to one server, wherever it is just now.
#[derive(Clone)]
pub(super) struct Connector {
    address: Address,
    names: Names,
    limit: Duration,
    /// False once the server refused to speak RESP3, or where it is not to.
    resp3: Arc<AtomicBool>,
    /// True until a first connection was opened.
    unchecked: Arc<AtomicBool>,
    terms: Arc<Terms>,
    /// Where the server is a node of a cluster.
    membership: Option<Membership>,
}

/// What a node has of its cluster, and who is told that it may have less by now.
#[derive(Clone)]
pub(super) struct Membership {
    pub(super) territory: Arc<Territory>,
    pub(super) doubt: Doubt,
}

/// One connection's pushes, among the attempts to open it.
struct Ear {
    on_push: OnPush,
    attempt: AtomicUsize,
}

impl Connector {
    pub(super) fn new(address: Address, names: Names, limit: Duration) -> Self {
        let resp3 = Arc::new(AtomicBool::new(address.pushes));
        let (unchecked, terms) = (Arc::new(AtomicBool::new(true)), Arc::default());
        Self { address, names, limit, resp3, unchecked, terms, membership: None }
    }

    /// The same, for a node of a cluster.
    pub(super) fn in_cluster(self, membership: Membership) -> Self {
        Self { membership: Some(membership), ..self }
    }

    /// What asks whether the server has what is needed.
    pub(super) fn asked(&self) -> Asked {
        let territory = self.membership.as_ref().map(|membership| &*membership.territory);
        Asked::new(&self.names, self.pushes(), territory)
    }

    /// The server may not be what it was in its cluster.
    pub(super) fn doubt(&self) {
        if let Some(membership) = &self.membership {
            membership.doubt.raise();
        }
    }

    /// Whether the server may push: false once it refused to.
    pub(super) fn pushes(&self) -> bool {
        self.resp3.load(Ordering::Relaxed)
    }

    /// Opens a connection; `on_push` hears pushes and the disconnection where the
    /// server speaks RESP3, and nothing where it does not. It is of use until the term
    /// is over.
    ///
    /// The first one is asked whether the server has what is needed; the log says what
    /// it has not.
    pub(super) async fn open(
        &self,
        on_push: OnPush,
    ) -> Result<(MultiplexedConnection, Term), StoreError> {
        let found = self.find(on_push).await;
        if found.is_err() {
            self.doubt();
        }
        let (connection, term) = found?;
        if self.unchecked.swap(false, Ordering::Relaxed) {
            let (connector, mut connection) = (self.clone(), connection.clone());
            tokio::spawn(async move {
                if let Err(error) = connector.ask(&mut connection).await {
                    tracing::warn!(%error, "the store cannot work as it is");
                }
            });
        }
        Ok((connection, term))
    }

    /// Connects once and makes sure that the server has what is needed.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        self.unchecked.store(false, Ordering::Relaxed);
        let check = async {
            let (mut connection, _) = self.find(Box::new(|_| ())).await?;
            self.ask(&mut connection).await
        };
        tokio::time::timeout(self.limit, check).await.unwrap_or_else(|_| Err(self.late()))
    }

    async fn ask(&self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        let asked = self.asked();
        let asked = if self.address.sentinels.is_some() { asked.with_role() } else { asked };
        let checked = asked.check(connection).await;
        checked.map_err(|error| StoreError::new(error.kind(), format!("{self}: {error}")))
    }

    async fn find(&self, on_push: OnPush) -> Result<(MultiplexedConnection, Term), StoreError> {
        let ear = Arc::new(Ear { on_push, attempt: AtomicUsize::new(0) });
        let found = async {
            if let Some(sentinels) = &self.address.sentinels {
                let found = self.find_master(sentinels, &ear).await;
                return found
                    .map_err(|error| StoreError::new(error.kind(), format!("{self}: {error}")));
            }
            match self.speak(&self.address.info, &ear).await {
                Ok(connection) => Ok((connection, self.terms.now())),
                Err(error) => Err(self.unreachable(&error)),
            }
        };
        tokio::time::timeout(self.limit, found).await.unwrap_or_else(|_| Err(self.late()))
    }

    /// Goes where most sentinels say, or on where there is no master.
    async fn find_master(
        &self,
        sentinels: &Sentinels,
        ear: &Arc<Ear>,
    ) -> Result<(MultiplexedConnection, Term), StoreError> {
        let mut failure = error::timed_out();
        for (host, port) in sentinels.masters(self.limit).await? {
            let info = moved(&self.address.info, host.clone(), port);
            // One that is frozen leaves time for what another sentinel says.
            let opened = tokio::time::timeout(self.limit / 2, self.master(&info, ear)).await;
            match opened.unwrap_or_else(|_| Err(error::timed_out())) {
                Ok(connection) => return Ok((connection, self.terms.of((host, port)))),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn master(
        &self,
        info: &ConnectionInfo,
        ear: &Arc<Ear>,
    ) -> Result<MultiplexedConnection, StoreError> {
        let opened = self.speak(info, ear).await;
        let mut connection = opened
            .map_err(|error| error::unreachable(info.addr(), self.address.database(), &error))?;
        is_master(&mut connection).await?;
        Ok(connection)
    }

    async fn speak(
        &self,
        info: &ConnectionInfo,
        ear: &Arc<Ear>,
    ) -> Result<MultiplexedConnection, RedisError> {
        if self.pushes() {
            match self.try_open(info, ProtocolVersion::RESP3, Some(ear)).await {
                Err(error) if refuses_resp3(&error) => {
                    self.resp3.store(false, Ordering::Relaxed);
                    tracing::warn!(address = %self, "no RESP3: followers learn of ends by looking");
                }
                result => return result,
            }
        }
        self.try_open(info, ProtocolVersion::RESP2, None).await
    }

    async fn try_open(
        &self,
        info: &ConnectionInfo,
        protocol: ProtocolVersion,
        ear: Option<&Arc<Ear>>,
    ) -> Result<MultiplexedConnection, RedisError> {
        // A name for the connection would need one right more.
        let settings = info.redis_settings().clone().set_protocol(protocol).set_skip_set_lib_name();
        let client = Client::open(info.clone().set_redis_settings(settings))?;
        // Answers are timed by whoever waits for them.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.limit))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        if let Some(ear) = ear {
            let attempt = ear.attempt.fetch_add(1, Ordering::Relaxed) + 1;
            let ear = Arc::clone(ear);
            config = config.set_push_sender(move |info: PushInfo| {
                // What an attempt that was given up still says is not heard.
                if ear.attempt.load(Ordering::Relaxed) == attempt {
                    (ear.on_push)(info);
                }
                Ok::<(), std::convert::Infallible>(())
            });
        }
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Why no connection could be made.
    pub(super) fn unreachable(&self, cause: &RedisError) -> StoreError {
        error::unreachable(self, self.address.database(), cause)
    }

    fn late(&self) -> StoreError {
        let text = format!("{self} did not answer within {:?}", self.limit);
        StoreError::new(StoreErrorKind::TimedOut, text)
    }
}

/// The address, without user and password.
impl fmt::Display for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connector({self})")
    }
}

fn refuses_resp3(error: &RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported
        || matches!(error.code(), Some("NOPROTO"))
        || (error.code() == Some("ERR")
            && error.detail().is_some_and(|detail| detail.contains("unknown command")))
        || (error.code() == Some("NOPERM")
            && error.detail().is_some_and(|detail| detail.contains("hello")))
}
