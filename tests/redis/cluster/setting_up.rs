//! What is wrong with a cluster, its address or its users shows at the start.

use tower_singleflight::{RedisStore, store::StoreErrorKind};

use super::{
    rig::{Node, random_key},
    support::{
        cluster::Cluster,
        redis_server::{RedisServer, closed_port},
        rights,
    },
};

#[tokio::test]
async fn the_wrong_kind_of_address_is_told() {
    let cluster = Cluster::start();
    for node in [0, 3] {
        let url = cluster.nodes[node].url();
        let error = RedisStore::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Cluster, "{error}");
        assert!(error.to_string().contains("use redis-cluster://"), "{error}");
        let store = RedisStore::builder(&url).connect_lazy().unwrap();
        let joined = Node::new(&store, random_key()).session.join(super::rig::ask()).await;
        let error = joined.unwrap_err();
        assert!(error.to_string().contains("use redis-cluster://"), "{error}");
    }
    let alone = RedisServer::start();
    let url = format!("redis-cluster://user:hunter2@127.0.0.1:{}", alone.port());
    let url = url.replace("user:hunter2@", "");
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("use redis://"), "{error}");
}

/// Whoever asks hears why, also between two looks and where another node says nothing.
#[tokio::test]
async fn a_server_that_is_no_cluster_is_named_each_time() {
    let alone = RedisServer::start();
    let (silent, _) = crate::support::redis_server::silent_server();
    let silent = silent.local_addr().expect("its address");
    let url = format!("redis-cluster://127.0.0.1:{}", alone.port());
    for url in [format!("{url},{silent}"), url] {
        let named = |error: tower_singleflight::store::StoreError| {
            assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("is not in cluster mode"), "{error}");
        };
        let limit = std::time::Duration::from_millis(400);
        let builder = || RedisStore::builder(&url).connect_limit(limit);
        named(builder().connect().await.unwrap_err());
        let store = builder().connect_lazy().unwrap();
        for _ in 0..3 {
            let joined = Node::new(&store, random_key()).session.join(super::rig::ask()).await;
            named(joined.unwrap_err());
        }
        let joined = Node::new(&store, random_key()).session.join(super::rig::ask()).await;
        assert_eq!(joined.unwrap_err().kind(), StoreErrorKind::Open);
    }
}

/// A cluster of one node, where no key is ever elsewhere.
#[tokio::test]
async fn the_wrong_kind_of_address_is_told_by_a_lonely_node() {
    let node = RedisServer::start_node(&[]);
    let url = format!("redis-cluster://127.0.0.1:{}", node.port());
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Cluster, "{error}");
    assert_eq!(node.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), "+OK\r\n");
    let ok = || node.lines(&["CLUSTER", "INFO"]).iter().any(|l| l.contains("cluster_state:ok"));
    crate::support::eventually("it is in order", async || ok()).await;
    let error = RedisStore::connect(&node.url()).await.unwrap_err();
    assert!(error.to_string().contains("use redis-cluster://"), "{error}");
    let store = RedisStore::connect(&url).await.expect("a cluster of one");
    Node::new(&store, random_key()).own().await;
}

#[tokio::test]
async fn nobody_there_is_an_error_in_time() {
    let closed = closed_port().replace("redis://", "redis-cluster://").replace("/", "");
    let url = closed.replace("redis-cluster:", "redis-cluster://");
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Connect, "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let store = RedisStore::builder(&url).connect_lazy().unwrap();
    assert!(!format!("{store:?}").contains("hunter2"), "{store:?}");
    let mut last = None;
    for _ in 0..6 {
        let began = std::time::Instant::now();
        let joined = Node::new(&store, random_key()).session.join(super::rig::ask()).await;
        last = Some((joined.unwrap_err().kind(), began.elapsed()));
    }
    let (kind, took) = last.unwrap();
    assert_eq!(kind, StoreErrorKind::Open);
    assert!(took < std::time::Duration::from_millis(5), "{took:?}");
}

/// Each right that the README asks for in a cluster is missed, on whichever node.
#[tokio::test]
async fn every_right_that_is_missing_is_named() {
    let cluster = Cluster::start();
    let all = rights::in_a_cluster();
    let url = cluster.url(&format!("flight:{}@", rights::PASSWORD));
    for (n, right) in all.iter().enumerate() {
        // What a single server needs for pushes, a cluster does not.
        let name = match right.strip_prefix('+') {
            Some("subscribe" | "publish") => continue,
            Some(command) => command.to_uppercase(),
            None if right.starts_with('~') => "keys ai:flight:".to_owned(),
            None if right.starts_with('&') => "channels ai:flight:push:0:{*}".to_owned(),
            None => continue,
        };
        let without: Vec<_> = all.iter().filter(|other| *other != right).cloned().collect();
        for (at, node) in cluster.nodes.iter().enumerate() {
            node.set_user("flight", &["reset".to_owned()]);
            // Whom a survey asks is not told beforehand.
            let lacks = at == n % 3 || right.contains("cluster");
            node.set_user("flight", if lacks { &without } else { &all });
        }
        let error = RedisStore::connect(&url).await.expect_err(right);
        assert_eq!(error.kind(), StoreErrorKind::Denied, "{right}: {error}");
        let text = error.to_string();
        let named = text.split([' ', ',']).any(|word| word == name) || text.contains(&name);
        assert!(named && text.contains("127.0.0.1:"), "{right}: {text}");
        assert!(!text.contains(rights::PASSWORD), "{text}");
    }
    for node in &cluster.nodes {
        node.set_user("flight", &all);
    }
    RedisStore::connect(&url).await.expect("nothing is missing");
}

/// A node that is away keeps nobody from starting; the others are made sure of.
#[tokio::test]
async fn a_node_that_is_away_keeps_nobody_from_starting() {
    let mut cluster = Cluster::start_with(&["--cluster-replica-no-failover", "yes"]);
    cluster.nodes[0].kill();
    let store = RedisStore::connect(&cluster.url("")).await.expect("two of three are there");
    let key = super::rig::key_where(|slot| slot > 6000);
    Node::new(&store, key).own().await;
    let key = super::rig::key_where(|slot| slot < 5000);
    let joined = Node::new(&store, key).session.join(super::rig::ask()).await;
    assert!(joined.is_err(), "{joined:?}");
}

#[tokio::test]
async fn silence_is_an_error_in_time() {
    let (_listener, url) = crate::support::redis_server::silent_server();
    let url = url.replace("redis://", "redis-cluster://");
    let limit = std::time::Duration::from_millis(300);
    let error = RedisStore::builder(&url).connect_limit(limit).connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::TimedOut, "{error}");
    assert!(error.to_string().contains("127.0.0.1:") && !error.to_string().contains("hunter2"));
}

/// Nodes that speak TLS alone, to each other too.
#[cfg(feature = "tls")]
#[tokio::test]
async fn over_tls() {
    let certificates = crate::support::certificates::Certificates::new();
    let args = certificates.server_args("yes");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let args = [&args[..], &["--tls-cluster", "yes", "--tls-replication", "yes"]].concat();
    let cluster = Cluster::start_with(&args);
    let url = cluster.url("").replace("redis-cluster", "rediss-cluster");
    let connect = async || {
        let builder = RedisStore::builder(&url)
            .root_certificate(certificates.pem("root.pem"))
            .client_certificate(certificates.pem("client.pem"), certificates.pem("client.key"));
        builder.connect().await.expect("a cluster over TLS")
    };
    let stores = [connect().await, connect().await];
    // Connections take long to open in this build.
    crate::support::eventually("all connections", async || {
        let keys = (0..3).map(|n| super::rig::key_where(move |slot| slot / 5462 == n));
        let joins = keys.flat_map(|key| stores.iter().map(move |store| (store, key)));
        let mut there = true;
        for (store, key) in joins {
            let mut node = Node::new(store, key);
            there &= node.session.join(super::rig::ask()).await.is_ok();
            there &= node.session.fetch().await.is_ok();
        }
        there
    })
    .await;
    for n in 0..3 {
        let key = super::rig::key_where(|slot| slot / 5462 == n);
        super::rig::one_flight(&stores, key, &bytes::Bytes::from(vec![7; 20_000])).await;
    }
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Connect, "{error}");
}
