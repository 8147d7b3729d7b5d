//! What the store's user may do, and what the server can do: found out at the start.

use std::time::{Duration, Instant};

use crate::log::Log;
use crate::steps::fresh;
use crate::support::{eventually, redis_server::RedisServer, rights};
use tower_singleflight::{
    FlightRef, KeyDigest, RedisStore, Store,
    store::{Beat, BeatReply, Joined, StoreError, StoreErrorKind, StoreState},
};

async fn refused(server: &RedisServer, rights: &[String]) -> StoreError {
    server.set_user("flight", &["reset".to_owned()]);
    server.set_user("flight", rights);
    let url = server.url_for("flight", rights::PASSWORD, 0);
    RedisStore::connect(&url).await.expect_err("a right is missing")
}

fn without(rights: &[String], right: &str, instead: &[&str]) -> Vec<String> {
    let others = rights.iter().filter(|&other| other != right).cloned();
    others.chain(instead.iter().map(|&right| right.to_owned())).collect()
}

#[tokio::test]
async fn every_right_that_is_missing_is_named() {
    let server = RedisServer::start();
    let all = rights::of_the_guide();
    for right in &all {
        let name = match right.strip_prefix('+') {
            Some(command) => command.to_uppercase(),
            None if right.starts_with('~') => "keys ai:flight:".to_owned(),
            None if right.starts_with('&') => "channels ai:flight:push:0:{*}".to_owned(),
            None => continue,
        };
        let error = refused(&server, &without(&all, right, &[])).await;
        assert_eq!(error.kind(), StoreErrorKind::Denied, "{right}: {error}");
        let text = error.to_string();
        let named = text.split([' ', ',']).any(|word| word == name) || text.contains(&name);
        assert!(named && text.contains("127.0.0.1:"), "{right}: {text}");
        if name.len() < 9 && name != "EVAL" {
            let (_, list) = text.split_once("the right to ").expect("a list");
            assert_eq!(list, name, "nothing else is missing");
        }
    }
    server.set_user("flight", &all);
    let url = server.url_for("flight", rights::PASSWORD, 0);
    RedisStore::connect(&url).await.expect("nothing is missing");
}

#[test]
fn the_docs_ask_for_the_same() {
    let docs = include_str!("../../src/store/redis/handle.rs");
    let (_, rule) = docs.split_once("ACL SETUSER flight ").expect("a rule");
    let (rule, _) = rule.split_once("```").expect("its end");
    let rule: Vec<&str> = rule.split_whitespace().filter(|word| *word != "///").collect();
    assert_eq!(rule, rights::of_the_guide());
}

#[tokio::test]
async fn every_kind_of_key_is_looked_at() {
    let server = RedisServer::start();
    let all = rights::of_the_guide();
    let kinds = ["meta:*", "waiters:*", "result:*", "stream:*", "owner-seq"];
    for (n, kind) in kinds.into_iter().enumerate() {
        let others: Vec<String> = (kinds.iter().enumerate())
            .filter(|(other, _)| *other != n)
            .map(|(_, kind)| format!("~ai:flight:{kind}"))
            .collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let error = refused(&server, &without(&all, "~ai:flight:*", &others)).await;
        assert_eq!(error.kind(), StoreErrorKind::Denied, "{kind}: {error}");
        let name = format!("keys ai:flight:{}", kind.trim_end_matches('*'));
        assert!(error.to_string().contains(&name), "{kind}: {error}");
    }
    // To read is not enough.
    let error = refused(&server, &without(&all, "~ai:flight:*", &["%R~ai:flight:*"])).await;
    assert!(error.to_string().contains("keys ai:flight:owner-seq"), "{error}");
}

#[tokio::test]
async fn a_prefix_is_a_right_of_its_own() {
    let server = RedisServer::start();
    server.set_user("flight", &rights::of_the_guide());
    let url = server.url_for("flight", rights::PASSWORD, 0);
    let error = RedisStore::builder(&url).prefix("mine").connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Denied);
    for name in ["keys mine:meta:{*}", "keys mine:owner-seq", "channels mine:push:0:{*}"] {
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[tokio::test]
async fn what_the_server_lacks_is_named() {
    for command in ["EVAL", "EVALSHA", "SUBSCRIBE", "XADD", "ZADD"] {
        let server = RedisServer::start_with(&["--rename-command", command, ""]);
        let error = RedisStore::connect(&server.url()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(&format!("does not know {command}")), "{error}");
    }
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let error = RedisStore::connect(&replica.url()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
}

#[tokio::test]
async fn nothing_is_left_of_the_check() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    assert!(server.lines(&["KEYS", "*"]).is_empty());
    assert_eq!(store.errors(), []);
    // A server that is full is there all the same.
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    RedisStore::connect(&server.url()).await.unwrap();
    assert!(server.lines(&["KEYS", "*"]).is_empty());
}

/// One write for all of it.
#[tokio::test]
async fn the_check_is_one_round_trip() {
    let server = RedisServer::start();
    let counted = || {
        let stats = server.lines(&["INFO", "stats"]);
        let reads = stats.iter().find_map(|line| line.strip_prefix("total_reads_processed:"));
        reads.and_then(|reads| reads.parse::<u64>().ok()).expect("a count")
    };
    // A look costs some itself.
    let first = counted();
    let looks = counted() - first;
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let reads = counted() - first - 2 * looks;
    // Its connection, the check, and the push connection; the ends of each are read too.
    assert!(reads <= 6, "{reads} reads");
    drop(store);
}

#[tokio::test]
async fn a_lazy_store_logs_what_is_missing() {
    let server = RedisServer::start();
    server.set_user("flight", &without(&rights::of_the_guide(), "+xadd", &[]));
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let store =
        RedisStore::builder(server.url_for("flight", rights::PASSWORD, 0)).connect_lazy().unwrap();
    assert_eq!(log.text(), "");
    let began = Instant::now();
    store.session(KeyDigest::from_bytes([1; 32])).join(fresh()).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    eventually("it is said", async || log.text().contains("the user lacks the right to XADD"))
        .await;
    assert!(!log.text().contains(rights::PASSWORD));
}

/// What is refused at run time is refused until it is not, whatever else works meanwhile.
#[tokio::test]
async fn a_store_that_lost_a_right_is_steadily_away() {
    let server = RedisServer::start();
    server.set_user("flight", &rights::of_the_guide());
    let url = server.url_for("flight", rights::PASSWORD, 0);
    let store = RedisStore::connect(&url).await.unwrap();
    let key = KeyDigest::from_bytes([1; 32]);
    let (mut owner, own) = (store.session(key), fresh());
    let Joined::Own { token } = owner.join(own.clone()).await.unwrap() else { panic!("own") };
    let flight = FlightRef { token, id: own.flight };
    server.set_user("flight", &["-zadd".to_owned()]);
    for _ in 0..3 {
        let error = store.session(key).join(fresh()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Denied, "{error}");
    }
    let mut keeper = store.heartbeat();
    let beats = [Beat::Renew { key, flight, lease: own.lease }];
    let began = Instant::now();
    // Three probes' time.
    while began.elapsed() < Duration::from_millis(1100) {
        let renewed = keeper.beat(&beats).await.remove(0);
        assert!(matches!(renewed, Ok(BeatReply::Renewed { .. })), "{renewed:?}");
        assert_eq!(store.state(), StoreState::Degraded, "after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.set_user("flight", &["+zadd".to_owned()]);
    eventually("it is of use again", async || {
        drop(store.session(key).join(fresh()).await);
        store.state() == StoreState::Ok
    })
    .await;
    store.session(key).join(fresh()).await.expect("nothing is missing");
}
