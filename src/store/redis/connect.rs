//! Addresses and connections.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bb8_redis::redis::{
    self, AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, PushInfo, RedisError, aio::MultiplexedConnection, io::tcp::TcpSettings,
};

use super::error;
use crate::store::{StoreError, StoreErrorKind};

/// What to do with whatever the server sends unasked.
pub(super) type OnPush = Box<dyn Fn(PushInfo) + Send + Sync>;

/// Makes connections to one server.
#[derive(Clone)]
pub(super) struct Connector {
    info: ConnectionInfo,
    limit: Duration,
    /// False once the server refused to speak RESP3.
    resp3: Arc<AtomicBool>,
}

impl Connector {
    pub(super) fn new(info: ConnectionInfo, limit: Duration) -> Self {
        let tcp = TcpSettings::default().set_nodelay(true);
        let info = info.set_tcp_settings(tcp);
        Self { info, limit, resp3: Arc::new(AtomicBool::new(true)) }
    }

    pub(super) fn database(&self) -> i64 {
        self.info.redis_settings().db()
    }

    /// Whether the server may push: false once it refused to.
    pub(super) fn pushes(&self) -> bool {
        self.resp3.load(Ordering::Relaxed)
    }

    /// Opens a connection; `on_push` hears pushes and the disconnection where the
    /// server speaks RESP3, and nothing where it does not.
    pub(super) async fn open(&self, on_push: OnPush) -> Result<MultiplexedConnection, RedisError> {
        let on_push = Arc::new(on_push);
        if self.pushes() {
            match self.try_open(ProtocolVersion::RESP3, Some(on_push)).await {
                Err(error) if refuses_resp3(&error) => {
                    self.resp3.store(false, Ordering::Relaxed);
                    tracing::warn!(address = %self, "no RESP3: followers learn of ends by looking");
                }
                result => return result,
            }
        }
        self.try_open(ProtocolVersion::RESP2, None).await
    }

    async fn try_open(
        &self,
        protocol: ProtocolVersion,
        on_push: Option<Arc<OnPush>>,
    ) -> Result<MultiplexedConnection, RedisError> {
        let settings = self.info.redis_settings().clone().set_protocol(protocol);
        let client = Client::open(self.info.clone().set_redis_settings(settings))?;
        // Answers are timed by whoever waits for them.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.limit))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        if let Some(on_push) = on_push {
            config = config.set_push_sender(move |info: PushInfo| {
                on_push(info);
                Ok::<(), std::convert::Infallible>(())
            });
        }
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Connects once and makes sure that the server has what is needed.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        let check = async {
            let connection = self.open(Box::new(|_| ())).await;
            let mut connection = connection.map_err(|error| self.unreachable(&error))?;
            let mut pipe = redis::pipe();
            pipe.cmd("PING").cmd("INFO").arg("server").cmd("EVAL").arg("return 1").arg(0);
            let answers = connection.send_packed_commands(&pipe, 0, 3).await;
            let answers = answers.map_err(|error| self.unreachable(&error))?;
            self.judge(&answers)
        };
        tokio::time::timeout(self.limit, check).await.unwrap_or_else(|_| {
            let text = format!("{self} did not answer within {:?}", self.limit);
            Err(StoreError::new(StoreErrorKind::TimedOut, text))
        })
    }

    fn judge(&self, answers: &[redis::Value]) -> Result<(), StoreError> {
        let [ping, info, eval] = answers else {
            return Err(error::bad_reply());
        };
        if let redis::Value::ServerError(error) = ping {
            let inner = error::from_server(error);
            return Err(StoreError::new(inner.kind(), format!("{self}: {inner}")));
        }
        // A user may lack the right to ask; then the scripts themselves will tell.
        let text = match info {
            redis::Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            redis::Value::VerbatimString { text, .. } => text.clone(),
            _ => String::new(),
        };
        let version = text.lines().find_map(|line| line.strip_prefix("redis_version:"));
        if let Some(version) = version.filter(|version| is_too_old(version)) {
            let text = format!("{self} is version {version}: 6.2 or newer is needed");
            return Err(StoreError::new(StoreErrorKind::Unsupported, text));
        }
        if let redis::Value::ServerError(error) = eval {
            let kind = match error.code() {
                "NOPERM" => StoreErrorKind::Denied,
                "ERR" => StoreErrorKind::Unsupported,
                _ => StoreErrorKind::Server,
            };
            let text = format!("{self}: scripting (EVAL) is not available: {}", error.code());
            return Err(StoreError::new(kind, text));
        }
        Ok(())
    }

    /// Why no connection could be made, with the address and without the password.
    pub(super) fn unreachable(&self, cause: &RedisError) -> StoreError {
        let inner = error::from_redis(cause);
        match inner.kind() {
            StoreErrorKind::Denied => {
                let text = format!("{self}: user name or password were refused");
                StoreError::new(StoreErrorKind::Denied, text)
            }
            StoreErrorKind::Server => {
                StoreError::new(StoreErrorKind::Server, format!("{self}: {inner}"))
            }
            StoreErrorKind::TimedOut => {
                let text = format!("{self} did not answer within {:?}", self.limit);
                StoreError::new(StoreErrorKind::TimedOut, text)
            }
            _ => {
                let text = format!("could not connect to {self}: {}", cause.category());
                StoreError::new(StoreErrorKind::Connect, text)
            }
        }
    }
}

/// The address, without user and password.
impl fmt::Display for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info.addr().fmt(f)
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

fn is_too_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < (6, 2),
        _ => false,
    }
}

/// Reads an address. The error never repeats it: it may hold a password.
pub(super) fn address(url: &str) -> Result<ConnectionInfo, StoreError> {
    let refuse = |text: String| Err(StoreError::new(StoreErrorKind::Address, text));
    let Some((scheme, _)) = url.split_once("://") else {
        return refuse("the store's address is not a URL such as redis://127.0.0.1/".to_owned());
    };
    match scheme {
        "redis" | "valkey" | "redis+unix" | "valkey+unix" | "unix" => {}
        "rediss" | "valkeys" => return refuse(format!("{scheme}: TLS is not supported")),
        "redis-cluster" => return refuse(format!("{scheme}: Redis Cluster is not supported")),
        "redis-sentinel" => return refuse(format!("{scheme}: Sentinel is not supported")),
        _ => return refuse("the store's address has an unknown scheme: use redis://".to_owned()),
    }
    url.into_connection_info().or_else(|_| {
        refuse(format!("the store's {scheme} address cannot be read: wrong host, port or database"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_refused_without_being_repeated() {
        for url in [
            "rediss://user:hunter2@host/",
            "redis-cluster://user:hunter2@host/",
            "redis-sentinel://user:hunter2@host/",
            "ftp://user:hunter2@host/",
            "user:hunter2@host",
            "redis://user:hunter2@host:port/",
            "redis://user:hunter2@host/database",
            "",
        ] {
            let error = address(url).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Address, "{url}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let connector =
            Connector::new(address("redis://user:hunter2@host/3").unwrap(), Duration::ZERO);
        assert_eq!(format!("{connector:?} {connector}"), "Connector(host:6379) host:6379");
        assert_eq!(connector.database(), 3);
    }

    #[test]
    fn versions() {
        for (version, old) in
            [("6.0.16", true), ("6.2.0", false), ("7.0.15", false), ("5.9", true), ("x", false)]
        {
            assert_eq!(is_too_old(version), old, "{version}");
        }
    }
}
