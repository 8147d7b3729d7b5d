//! Addresses of servers.

use std::{fmt, sync::Arc, time::Duration};

use bb8_redis::redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};

use super::sentinel::Sentinels;
use crate::store::{StoreError, StoreErrorKind};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// How long a connection says nothing. What is between here and the server forgets those
/// that are silent for longer than it cares, and tells nobody: hardly any after less than a
/// minute, and load balancers of clouds after four to six.
const IDLE: Duration = Duration::from_secs(30);
/// Between attempts to hear something of a server that is gone without a word.
const AGAIN: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 3;

/// A server's host and port.
pub(super) type Place = (String, u16);

/// Where the server is, and who is asked where it is.
#[derive(Clone)]
pub(super) struct Address {
    /// Where others are asked, all but the place itself.
    pub(super) info: ConnectionInfo,
    pub(super) sentinels: Option<Arc<Sentinels>>,
    /// Some nodes of a cluster, who know the others.
    pub(super) nodes: Option<Arc<[ConnectionInfo]>>,
    /// Whether pushes are wanted.
    pub(super) pushes: bool,
}

impl Address {
    /// Reads an address. The error never repeats it: it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            let text = "the store's address is not a URL such as redis://127.0.0.1/";
            return Err(refused(text));
        };
        let pushes = !asks_for_resp2(rest);
        match scheme {
            "redis" | "valkey" | "redis+unix" | "valkey+unix" | "unix" => {
                Ok(Self { pushes, ..Self::at(read(scheme, url)?) })
            }
            "rediss" | "valkeys" => {
                has_tls(scheme, rest)?;
                Ok(Self { pushes, ..Self::at(read(scheme, url)?) })
            }
            "redis-sentinel" => Self::behind_sentinels(scheme, "redis", rest, pushes),
            "rediss-sentinel" => {
                has_tls(scheme, rest)?;
                Self::behind_sentinels(scheme, "rediss", rest, pushes)
            }
            "redis-cluster" => Self::of_cluster(scheme, "redis", rest, pushes),
            "rediss-cluster" => {
                has_tls(scheme, rest)?;
                Self::of_cluster(scheme, "rediss", rest, pushes)
            }
            _ => Err(refused("the store's address has an unknown scheme: use redis://")),
        }
    }

    /// A server that needs no looking for.
    pub(super) fn at(info: ConnectionInfo) -> Self {
        let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive());
        let info = info.set_tcp_settings(settings);
        Self { info, sentinels: None, nodes: None, pushes: true }
    }

    /// `[user:password@]host[:port],host[:port]/master-name[/db][?query]`
    fn behind_sentinels(
        scheme: &str,
        plain: &str,
        rest: &str,
        pushes: bool,
    ) -> Result<Self, StoreError> {
        let wrong = || {
            refused(format!(
                "the store's {scheme} address cannot be read: it is \
                 {scheme}://host:port,host:port/master-name"
            ))
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = place.split_once('/').ok_or_else(wrong)?;
        let (login, hosts) = login_of(hosts);
        let (master, database) = path.split_once('/').unwrap_or((path, ""));
        if master.is_empty() || !master.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong());
        }
        let sentinels = hosts.split(',').map(|host| {
            let port = port_of(host, SENTINEL_PORT);
            let info = format!("{plain}://{host}{port}/").into_connection_info();
            info.map(|info| Self::at(info).info).map_err(|_| wrong())
        });
        let sentinels = sentinels.collect::<Result<_, _>>()?;
        let url = format!("{plain}://{login}sentinels/{database}?{query}");
        let info = url.into_connection_info().map_err(|_| wrong())?;
        let sentinels = Some(Arc::new(Sentinels::new(sentinels, master)));
        Ok(Self { sentinels, pushes, ..Self::at(info) })
    }

    /// `[user:password@]host[:port],host[:port][?query]`
    fn of_cluster(scheme: &str, plain: &str, rest: &str, pushes: bool) -> Result<Self, StoreError> {
        let wrong = || {
            refused(format!(
                "the store's {scheme} address cannot be read: it is \
                 {scheme}://host:port,host:port, and there is no database but 0"
            ))
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
        if !matches!(path, "" | "0") {
            return Err(wrong());
        }
        let (login, hosts) = login_of(hosts);
        let nodes = hosts.split(',').map(|host| {
            let port = port_of(host, PORT);
            let info = format!("{plain}://{login}{host}{port}/?{query}").into_connection_info();
            info.map(|info| Self::at(info).info).map_err(|_| wrong())
        });
        let nodes: Arc<[ConnectionInfo]> = nodes.collect::<Result<_, _>>()?;
        let info = nodes.first().cloned().ok_or_else(wrong)?;
        Ok(Self { nodes: Some(nodes), pushes, ..Self::at(info) })
    }

    /// One node of a cluster.
    pub(super) fn of_node(&self, place: Place) -> Self {
        let (host, port) = place;
        Self { nodes: None, info: moved(&self.info, host, port), ..self.clone() }
    }

    /// The same, whose sentinels ask for this user and password.
    pub(super) fn with_sentinel_login(
        self,
        user: &str,
        password: &str,
    ) -> Result<Self, StoreError> {
        let Some(sentinels) = self.sentinels else {
            let text = "sentinel_login needs an address that begins with redis-sentinel://";
            return Err(StoreError::new(StoreErrorKind::Setting, text));
        };
        let sentinels = Arc::unwrap_or_clone(sentinels).with_login(user, password);
        Ok(Self { sentinels: Some(Arc::new(sentinels)), ..self })
    }

    pub(super) fn database(&self) -> i64 {
        self.info.redis_settings().db()
    }

    #[cfg(feature = "tls")]
    pub(super) fn uses_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }
}

/// Without user and password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.sentinels, &self.nodes) {
            (Some(sentinels), _) => sentinels.fmt(f),
            (None, Some(nodes)) => {
                f.write_str("the cluster of ")?;
                nodes.iter().enumerate().try_for_each(|(n, node)| {
                    write!(f, "{}{}", if n == 0 { "" } else { ", " }, node.addr())
                })
            }
            (None, None) => self.info.addr().fmt(f),
        }
    }
}

/// Most connections stand by: without it one would be found dead by whoever needs it.
fn keepalive() -> TcpKeepalive {
    let probes = TcpKeepalive::new().with_time(IDLE);
    // Elsewhere the system says.
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    let probes = probes.with_interval(AGAIN).with_retries(ATTEMPTS);
    probes
}

/// The same way to another place.
pub(super) fn moved(info: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let place = match info.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(place)
}

fn read(scheme: &str, url: &str) -> Result<ConnectionInfo, StoreError> {
    url.into_connection_info().map_err(|_| {
        refused(format!(
            "the store's {scheme} address cannot be read: wrong host, port or database"
        ))
    })
}

/// `user:password@`, or nothing, and what comes after it.
fn login_of(hosts: &str) -> (String, &str) {
    match hosts.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), hosts),
    }
}

/// What a host without a port lacks.
fn port_of(host: &str, default: u16) -> String {
    if has_port(host) { String::new() } else { format!(":{default}") }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && !port.ends_with(']'))
}

fn asks_for_resp2(rest: &str) -> bool {
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    query.split(['&', '#']).any(|pair| matches!(pair, "protocol=2" | "protocol=resp2"))
}

fn has_tls(scheme: &str, rest: &str) -> Result<(), StoreError> {
    if cfg!(not(feature = "tls")) {
        return Err(refused(format!("{scheme}: TLS needs the feature `tls` of this crate")));
    }
    if rest.contains('#') {
        let text = "the server's certificate is always looked at: give its root instead";
        return Err(refused(format!("{scheme}: {text}")));
    }
    Ok(())
}

fn refused(text: impl Into<std::borrow::Cow<'static, str>>) -> StoreError {
    StoreError::new(StoreErrorKind::Address, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_refused_without_being_repeated() {
        for url in [
            "redis-cluster://user:hunter2@host/1",
            "redis-cluster://user:hunter2@host:port",
            "redis-cluster://user:hunter2@",
            "redis-cluster://user:hunter2@one,,two",
            "redis-cluster://user:hunter2@one,two/name",
            "redis-cluster://user:hunter2@one?protocol=hunter2",
            "redis-cluster://",
            "rediss://user:hunter2@host:port/",
            "rediss://user:hunter2@host/#insecure",
            "redis-sentinel://user:hunter2@host",
            "redis-sentinel://user:hunter2@host/",
            "redis-sentinel://user:hunter2@host:port/name",
            "redis-sentinel://user:hunter2@/name",
            "redis-sentinel://user:hunter2@one,,two/name",
            "redis-sentinel://user:hunter2@one/name/hunter2",
            "redis-sentinel://user:hunter2@one/name?protocol=hunter2",
            "ftp://user:hunter2@host/",
            "user:hunter2@host",
            "redis://user:hunter2@host:port/",
            "redis://user:hunter2@host/database",
            "redis://",
            "",
        ] {
            let error = Address::parse(url).err().expect(url);
            assert_eq!(error.kind(), StoreErrorKind::Address, "{url}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn tls_takes_its_feature() {
        for (url, place) in [
            ("rediss://host/", "host:6379"),
            ("rediss-sentinel://host/main", "main at host:26379"),
            ("rediss-cluster://host", "the cluster of host:6379"),
        ] {
            let shown = match Address::parse(url) {
                Ok(address) => address.to_string(),
                Err(error) => error.to_string(),
            };
            let expected = if cfg!(feature = "tls") {
                place
            } else {
                "TLS needs the feature `tls` of this crate"
            };
            assert!(shown.ends_with(expected), "{shown}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let address = Address::parse("redis://user:hunter2@host/3").unwrap();
        assert_eq!(address.to_string(), "host:6379");
        assert_eq!(address.database(), 3);
    }

    #[test]
    fn pushes_can_be_done_without() {
        for (url, pushes) in [
            ("redis://h/?protocol=resp2", false),
            ("redis://h/?protocol=2", false),
            ("unix:///s?db=1&protocol=resp2", false),
            ("redis-sentinel://h/name?protocol=resp2", false),
            ("redis-cluster://h?protocol=resp2", false),
            ("redis-cluster://h,i/?protocol=2", false),
            ("redis-cluster://h", true),
            ("redis://h/?protocol=resp3", true),
            ("redis://h/", true),
        ] {
            assert_eq!(Address::parse(url).unwrap().pushes, pushes, "{url}");
        }
    }

    #[test]
    fn sentinels_are_read() {
        let url = "redis-sentinel://user:hunter2@one,[::1]:7,three:26380/my-master/5";
        let address = Address::parse(url).unwrap();
        assert_eq!(address.to_string(), "my-master at one:26379, ::1:7, three:26380");
        assert_eq!(address.database(), 5);
        let settings = address.info.redis_settings();
        assert_eq!((settings.username(), settings.password()), (Some("user"), Some("hunter2")));
        let there = moved(&address.info, "10.0.0.1".to_owned(), 6380);
        assert_eq!(there.addr().to_string(), "10.0.0.1:6380");
        assert_eq!(there.redis_settings().db(), 5);
    }

    #[test]
    fn nodes_are_read() {
        for url in [
            "redis-cluster://user:hunter2@one,[::1]:7,three:7000",
            "redis-cluster://user:hunter2@one,[::1]:7,three:7000/",
            "redis-cluster://user:hunter2@one,[::1]:7,three:7000/0?protocol=resp3",
        ] {
            let address = Address::parse(url).unwrap();
            let shown = "the cluster of one:6379, ::1:7, three:7000";
            assert_eq!(address.to_string(), shown, "{url}");
            for node in address.nodes.as_deref().unwrap() {
                let settings = node.redis_settings();
                let login = (settings.username(), settings.password());
                assert_eq!((login, settings.db()), ((Some("user"), Some("hunter2")), 0));
            }
            let node = address.of_node(("::2".to_owned(), 8));
            assert_eq!(node.to_string(), "::2:8");
            assert_eq!(node.info.redis_settings().password(), Some("hunter2"));
        }
    }
}
