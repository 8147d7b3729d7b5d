//! What a store needs to begin: an address, rights, a pool, and time.

use std::time::{Duration, Instant};

use bb8_redis::{RedisConnectionManager, bb8, redis};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower_singleflight::{
    RedisStore, Store,
    store::{Beat, BeatReply, Join, Joined, StoreErrorKind},
};

use super::{LEASE, beat, done, follow, fresh, key, own, pushed_end, renew};
use crate::support::redis_server::{RedisServer, closed_port, silent_server};

#[tokio::test]
async fn wrong_addresses_say_so_in_time() {
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    let limit = Duration::from_millis(300);
    let (listener, silent) = silent_server();
    let wrong = format!("redis://:hunter2@127.0.0.1:{}/", server.port());
    let none = format!("redis://127.0.0.1:{}/", server.port());
    let right = format!("redis://:right@127.0.0.1:{}/", server.port());
    for (url, kind) in [
        ("rediss://u:hunter2@h/#insecure", StoreErrorKind::Address),
        ("nonsense", StoreErrorKind::Address),
        (&closed_port(), StoreErrorKind::Connect),
        (&silent, StoreErrorKind::TimedOut),
        (&wrong, StoreErrorKind::Denied),
        (&none, StoreErrorKind::Denied),
    ] {
        let began = Instant::now();
        let error = RedisStore::builder(url).connect_limit(limit).connect().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(began.elapsed() < limit * 3, "{url}: {:?}", began.elapsed());
        assert!(!error.to_string().contains("hunter2"), "{error}");
        if kind != StoreErrorKind::Address {
            assert!(error.to_string().contains("127.0.0.1:"), "{error}");
        }
    }
    drop(listener);
    let store = RedisStore::connect(&right).await.unwrap();
    assert!(!format!("{store:?} {:?}", RedisStore::builder(right)).contains("right"));
    for prefix in ["", "a{b", "a}b", "a b", "ä", &"p".repeat(65)] {
        let refused = RedisStore::builder(server.url()).prefix(prefix).connect_lazy();
        assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Setting);
    }
    let refused = RedisStore::builder(server.url()).pool_size(0).connect_lazy().unwrap_err();
    assert_eq!(refused.to_string(), "pool_size (0) must be at least 1");
}

/// A server of web pages, on whose port a store is looked for by mistake.
async fn web_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(1..) = client.read(&mut bytes).await {
                    let page = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\n\r\nhunter2";
                    if client.write_all(page).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    place
}

#[tokio::test]
async fn what_is_at_an_address_in_place_of_redis_is_named() {
    let (server, node) = (RedisServer::start(), RedisServer::start_node(&[]));
    let (web, [plain, node]) =
        (web_server().await, [&server, &node].map(|server| format!("127.0.0.1:{}", server.port())));
    let other = "answers, but not as Redis does";
    let connect = StoreErrorKind::Connect;
    for (url, kind, text) in [
        (format!("redis://{web}/"), connect, format!("{web} {other}")),
        (format!("redis://u:hunter2@{web}/3"), connect, format!("{web} {other}")),
        (
            format!("redis-sentinel://{web}/main"),
            connect,
            format!("main at {web}: the sentinel at {web} {other}"),
        ),
        (format!("redis-cluster://{web}"), connect, format!("{web} {other}")),
        (
            format!("redis-sentinel://{plain}/main"),
            connect,
            format!("main at {plain}: {plain} is no sentinel"),
        ),
        (
            format!("redis://{plain}/99"),
            StoreErrorKind::Server,
            format!("{plain} has no database 99"),
        ),
        (
            format!("redis://{plain}/99?protocol=resp2"),
            StoreErrorKind::Server,
            format!("{plain} has no database 99"),
        ),
        (format!("redis://{node}/3"), StoreErrorKind::Server, format!("{node} has no database 3")),
    ] {
        let error = RedisStore::connect(&url).await.unwrap_err();
        assert_eq!((error.to_string(), error.kind()), (text, kind), "{url}");
    }
}

#[tokio::test]
async fn scripting_is_checked() {
    let server = RedisServer::start_with(&["--rename-command", "EVAL", ""]);
    let error = RedisStore::connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unsupported);
    assert!(error.to_string().contains("scripting"), "{error}");
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "default", "-eval"]);
    let error = RedisStore::connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Denied);
    assert!(error.to_string().contains("scripting"), "{error}");
}

#[tokio::test]
async fn without_resp3_a_look_finds_the_end() {
    let server = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    let wait = fresh();
    follow(&mut *other, &wait).await;
    assert!(matches!(beat(&store, renew(1, flight)).await, BeatReply::Renewed { waiters: 1 }));
    owner.finish(done(flight, Some(b"answer"))).await.unwrap();
    let join = Join { known: flight.token, ..wait };
    let watch = Beat::Watch { key: key(1), join, mark: LEASE };
    assert!(matches!(beat(&store, watch).await, BeatReply::Watched(Joined::Done { .. })));
    assert_eq!(store.errors(), []);
}

#[tokio::test]
async fn a_pool_of_the_application_is_used() {
    let server = RedisServer::start();
    let manager = RedisConnectionManager::new(server.url()).unwrap();
    let pool = bb8::Pool::builder().max_size(2).build(manager).await.unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let store = RedisStore::with_pool(pool.clone(), client).prefix("mine").connect().await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    follow(&mut *other, &fresh()).await;
    let gets = || pool.state().statistics.completed_gets();
    let before = gets();
    owner.finish(done(flight, Some(b"answer"))).await.unwrap();
    assert_eq!(gets(), before + 1);
    assert_eq!(pushed_end(&mut *other).await.0, flight);
    assert!(server.lines(&["KEYS", "*"]).iter().all(|key| key.starts_with("mine:")));
}

/// A way to the server on which each answer takes this long.
async fn far_away(server: u16, answers_take: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
                    tokio::time::sleep(answers_take).await;
                    if to_client.write_all(&bytes[..read]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

/// To connect takes several answers, and with the first renewal longer than one
/// operation may: it is gone on with, not begun anew.
#[tokio::test]
async fn the_keepers_line_comes_up_also_where_that_takes_long() {
    let server = RedisServer::start();
    let near = RedisStore::connect(&server.unix_url()).await.unwrap();
    let flight = own(&mut *near.session(key(1)), &fresh()).await;
    let far = far_away(server.port(), Duration::from_millis(150)).await;
    let far = RedisStore::builder(far).connect_lazy().unwrap();
    let mut line = far.heartbeat();
    let mut replies = Vec::new();
    for _ in 0..3 {
        replies.extend(line.beat(&[renew(1, flight)]).await);
    }
    assert!(matches!(replies[1..], [Ok(_), Ok(_)]), "{replies:?}");
}
