//! The Redis store, held to the store protocol on real servers, of each kind and by
//! each way.

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tower_singleflight::{
    FlightId, FlightRef, KeyDigest, RedisStore, Store, conformance_tests,
    store::RedisStoreBuilder,
    testing::conformance::{self, Engine},
};

use self::support::{
    cluster::Cluster, eventually, redis_server::RedisServer, rights, sentinels::Fleet,
};

/// A server of this test, and each node with connections of its own.
struct Redis {
    _server: RedisServer,
    url: String,
}

impl Engine for Redis {
    async fn node(&self) -> Arc<dyn Store> {
        Arc::new(RedisStore::connect(&self.url).await.expect("the server of this test"))
    }
}

// The server's clock is real: what is tested here is that time passes.
conformance_tests! {
    #[tokio::test]
    {
        let server = RedisServer::start();
        Redis { url: server.unix_url(), _server: server }
    }
}

/// Stores that nodes share: to connect costs time, and the rules stand by theirs.
struct Stores {
    stores: Vec<RedisStore>,
    pushes: bool,
    next: AtomicUsize,
}

impl Engine for Stores {
    async fn node(&self) -> Arc<dyn Store> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        Arc::new(self.stores[next % self.stores.len()].clone())
    }

    fn pushes(&self) -> bool {
        self.pushes
    }
}

/// Holds the store to all rules, by this way to its server.
async fn hold(builder: RedisStoreBuilder, pushes: bool, at_a_time: usize) {
    let mut stores = Vec::new();
    for _ in 0..4 {
        let store = builder.clone().connect().await.expect("the server of this test");
        // Its connections are there from here on.
        let key = KeyDigest::from_bytes([0; 32]);
        eventually("a connection", async || {
            let (mut session, nobody) = (store.session(key), FlightId::random());
            let there = session.abandon(FlightRef { token: 1, id: nobody }).await.is_ok();
            there && session.fetch().await.is_ok()
        })
        .await;
        stores.push(store);
    }
    let engine = Stores { stores, pushes, next: AtomicUsize::new(0) };
    conformance::run_at_a_time(engine, at_a_time).await;
}

async fn hold_at(url: String) {
    let pushes = !url.contains("resp2");
    hold(RedisStore::builder(url), pushes, 8).await;
}

#[tokio::test]
async fn over_tcp_in_another_database() {
    let server = RedisServer::start();
    hold_at(format!("{}5", server.url())).await;
    let keys = server.lines(&["INFO", "keyspace"]);
    assert!(keys.iter().any(|line| line.starts_with("db5:")), "{keys:?}");
    assert!(!keys.iter().any(|line| line.starts_with("db0:")), "{keys:?}");
}

#[tokio::test]
async fn with_a_password() {
    let server = RedisServer::start_with(&["--requirepass", "a/b c"]);
    hold_at(server.url_for("", "a%2Fb%20c", 0)).await;
}

/// The rights that the README asks for are enough for everything: the server's log
/// of what it refused is empty.
#[tokio::test]
async fn with_few_rights() {
    let server = RedisServer::start();
    server.set_user("flight", &[rights::of_the_guide(), rights::to_hold()].concat());
    // For those rules that look through all keys.
    server.set_user("flight", &["+scan".to_owned()]);
    hold_at(server.url_for("flight", rights::PASSWORD, 0)).await;
    let refused = server.lines(&["ACL", "LOG"]);
    assert!(refused.is_empty(), "{refused:?}");
}

/// No push comes, and none is waited for.
#[tokio::test]
async fn without_push() {
    let server = RedisServer::start();
    hold_at(format!("{}?protocol=resp2", server.url())).await;
    let stats = server.lines(&["INFO", "commandstats"]);
    assert!(!stats.iter().any(|line| line.starts_with("cmdstat_subscribe")), "{stats:?}");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn over_tls() {
    let certificates = support::certificates::Certificates::new();
    let args = certificates.server_args("yes");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let server = RedisServer::start_with(&args);
    let builder = RedisStore::builder(server.tls_url())
        .pool_size(1)
        .root_certificate(certificates.pem("root.pem"))
        .client_certificate(certificates.pem("client.pem"), certificates.pem("client.key"));
    // Each node's heartbeats have a connection, which takes long to open in this build.
    hold(builder, true, 3).await;
}

#[tokio::test]
async fn behind_sentinels() {
    let fleet = Fleet::start();
    hold_at(fleet.url("")).await;
}

#[tokio::test]
async fn in_a_cluster() {
    let cluster = Cluster::start();
    hold_at(cluster.url("")).await;
    for node in &cluster.nodes {
        let stats = node.lines(&["INFO", "commandstats"]);
        assert!(!stats.iter().any(|line| line.starts_with("cmdstat_publish")), "{stats:?}");
    }
}

#[tokio::test]
async fn in_a_cluster_without_push() {
    let cluster = Cluster::start();
    hold_at(format!("{}?protocol=resp2", cluster.url(""))).await;
    for node in &cluster.nodes {
        let stats = node.lines(&["INFO", "commandstats"]);
        assert!(!stats.iter().any(|line| line.starts_with("cmdstat_ssubscribe")), "{stats:?}");
    }
}

/// The rights that the README asks for are enough in a cluster too.
#[tokio::test]
async fn in_a_cluster_with_few_rights() {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        node.set_user("flight", &[rights::in_a_cluster(), rights::to_hold()].concat());
        node.set_user("flight", &["+scan".to_owned()]);
    }
    hold_at(cluster.url(&format!("flight:{}@", rights::PASSWORD))).await;
    for node in &cluster.nodes {
        let refused = node.lines(&["ACL", "LOG"]);
        assert!(refused.is_empty(), "{refused:?}");
    }
}

/// Other servers, and other versions: `REDIS_SERVER_BINARIES=/path/one:/path/two`.
#[tokio::test]
async fn on_other_servers() {
    let binaries = std::env::var("REDIS_SERVER_BINARIES").unwrap_or_default();
    for binary in binaries.split(':').filter(|binary| !binary.is_empty()) {
        println!("on {binary}");
        let server = RedisServer::start_binary(binary, &[]);
        server.set_user("flight", &[rights::of_the_guide(), rights::to_hold()].concat());
        server.set_user("flight", &["+scan".to_owned()]);
        let url = server.url_for("flight", rights::PASSWORD, 0);
        hold_at(format!("{url}?protocol=resp2")).await;
        hold_at(url).await;
    }
}
