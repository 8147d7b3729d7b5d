//! What streams cost the server, and for how long anything lies there.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use tower_singleflight::{
    RedisStore, Store,
    store::{Append, Beat, BeatReply, Finish, Finished, Pushed},
};

use super::{
    LEASE, append, appended, finished, follow, fresh, is_streamed, key, own, pushed, renew, sealed,
    support::{eventually, redis_server::RedisServer},
    ttls,
};

/// How often the server ran each command, also out of scripts.
fn calls(server: &RedisServer) -> HashMap<String, u64> {
    let lines = server.lines(&["INFO", "commandstats"]);
    let count = |line: &String| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((command.to_owned(), rest.split_once(',')?.0.parse().ok()?))
    };
    lines.iter().filter_map(count).collect()
}

/// How often it ran one since then.
fn since(server: &RedisServer, before: HashMap<String, u64>) -> impl Fn(&str) -> u64 {
    let after = calls(server);
    move |command| after.get(command).unwrap_or(&0) - before.get(command).unwrap_or(&0)
}

#[tokio::test]
async fn e5_g6_every_key_has_ttl_and_scripts_may_be_flushed() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let after = |when: &str| {
        ttls(&server, when);
        server.command(&["SCRIPT", "FLUSH"]);
    };
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    after("own");
    assert!(matches!(owner.listen(flight, LEASE).await, Ok(BeatReply::Renewed { waiters: 0 })));
    after("listen");
    follow(&mut *other, &fresh()).await;
    after("follow");
    assert!(matches!(pushed(&mut *owner).await, Pushed::Watched { flight: f } if f == flight));
    appended(&mut *owner, append(flight, 0, &[b"a", b"b"])).await;
    after("append");
    appended(&mut *owner, append(flight, 2, &[&[7; 20_000]])).await;
    after("large append");
    appended(&mut *owner, Append { kept_from: 2, ..append(flight, 3, &[b"d"]) }).await;
    after("trim");
    assert!(matches!(renew(&store, 1, flight).await, BeatReply::Renewed { waiters: 1 }));
    after("renew");
    assert_eq!(owner.finish(sealed(flight, 9)).await.unwrap(), Finished::Gap { next: 4 });
    after("gap");
    finished(&mut *owner, sealed(flight, 4)).await;
    after("finish");
    assert!(is_streamed(&mut *other, flight).await);
    after("look");
    let next = own(&mut *owner, &fresh()).await;
    after("own again");
    assert_eq!(owner.read(flight, 0).await.unwrap().first, 2);
    appended(&mut *owner, append(next, 0, &[b"n"])).await;
    after("append again");
    assert_eq!(store.errors(), []);
}

#[tokio::test]
async fn e5_nothing_is_left_once_its_time_is_over() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    follow(&mut *other, &fresh()).await;
    let keep = Duration::from_millis(200);
    appended(&mut *owner, Append { keep, ..append(flight, 0, &[b"a"]) }).await;
    finished(&mut *owner, Finish { keep, ..sealed(flight, 1) }).await;
    eventually("only the token source is left", async || {
        server.lines(&["KEYS", "*"]) == ["ai:flight:owner-seq"]
    })
    .await;
}

#[tokio::test]
async fn pieces_of_every_size() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    follow(&mut *other, &fresh()).await;
    let sizes = [0, 1, 4096, 20_480, 20_481, 1_000_000, 3];
    for (index, size) in (0..).zip(sizes) {
        let piece: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        appended(&mut *owner, append(flight, index, &[&piece])).await;
        match pushed(&mut *other).await {
            Pushed::Piece { flight: f, index: i, piece: pushed } => {
                assert_eq!((f, i, pushed.is_some()), (flight, index, size <= 20_480), "{size}");
                assert!(pushed.is_none_or(|pushed| pushed == piece), "{size}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(other.read(flight, index).await.unwrap().pieces, [piece], "{size}");
    }
    let read = other.read(flight, 0).await.unwrap();
    assert_eq!(read.pieces.iter().map(Bytes::len).collect::<Vec<_>>(), sizes);
    // Many large ones in one go: 8 MiB.
    let pieces: Vec<Bytes> = (0..128).map(|n| Bytes::from(vec![n; 65_536])).collect();
    appended(&mut *owner, Append { pieces: pieces.clone(), ..append(flight, 7, &[]) }).await;
    let (mut all, mut next) = (Vec::new(), 7);
    while all.len() < pieces.len() {
        let read = other.read(flight, next).await.unwrap().pieces;
        assert!(!read.is_empty());
        next += read.len() as u64;
        all.extend(read);
    }
    assert!(all == pieces);
    assert_eq!(store.errors(), []);
}

/// I15: what one piece costs the server does not depend on who ever listened.
#[tokio::test]
async fn i15_a_piece_is_one_command_whoever_listened() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut owner = store.session(key(1));
    let flight = own(&mut *owner, &fresh()).await;
    // The server knows the script from here on.
    appended(&mut *owner, append(flight, 0, &[b"first"])).await;
    for leaves in [1, 200] {
        for _ in 0..leaves {
            let mut session = store.session(key(1));
            let wait = fresh();
            follow(&mut *session, &wait).await;
            let leave = Beat::Leave { key: key(1), waiter: wait.waiter };
            store.heartbeat().beat(&[leave]).await.remove(0).unwrap();
        }
        let mut reader = store.session(key(1));
        let first = follow(&mut *reader, &fresh()).await;
        let before = calls(&server);
        for index in first..first + 100 {
            appended(&mut *owner, append(flight, index, &[b"piece"])).await;
        }
        let run = since(&server, before);
        for command in ["evalsha", "xadd", "publish", "time", "hgetall", "hset"] {
            assert_eq!(run(command), 100, "{command} after {leaves} listeners");
        }
        for command in ["eval", "xtrim", "del", "xrange", "get", "set"] {
            assert_eq!(run(command), 0, "{command} after {leaves} listeners");
        }
        // A go of pieces is one command too, and so is one of a reader.
        let before = calls(&server);
        appended(&mut *owner, append(flight, first + 100, &[&b"p"[..]; 50])).await;
        reader.read(flight, 0).await.unwrap();
        let run = since(&server, before);
        assert_eq!(["evalsha", "publish", "xrange"].map(run), [1, 1, 1]);
    }
}

#[tokio::test]
async fn connections_do_not_grow_with_streams() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let count = || server.command(&["CLIENT", "LIST"]).matches(" laddr=").count();
    let mut sessions = Vec::new();
    for n in 0..100 {
        let mut session = store.session(key(n));
        let flight = own(&mut *session, &fresh()).await;
        session.listen(flight, LEASE).await.unwrap();
        appended(&mut *session, append(flight, 0, &[b"a", &[1; 30_000]])).await;
        session.read(flight, 0).await.unwrap();
        sessions.push(session);
    }
    // Four for scripts, one for bodies, one for pushes, and the one that asks.
    assert!(count() <= 7, "{}", count());
    let channels = || server.lines(&["PUBSUB", "CHANNELS", "*"]).len();
    assert_eq!(channels(), 100);
    sessions.iter_mut().take(50).for_each(|session| session.deafen());
    eventually("half of them are deaf", async || channels() == 50).await;
    drop(sessions);
    eventually("nobody listens", async || channels() == 0).await;
}
