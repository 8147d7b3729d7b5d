//! Streams over a way to the server that loses things.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures_util::FutureExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower_singleflight::{
    RedisStore, Store,
    store::{Appended, Beat, BeatReply, Join, Pieces, Pushed},
};

use super::{
    LEASE, append, appended, ask_and_go, end, finished, follow, fresh, gap, is_streamed, key, name,
    own, pushed, renew, sealed,
    support::{eventually, redis_server::RedisServer},
};

#[tokio::test]
async fn i2_dropped_futures_mix_no_pieces_up() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).pool_size(1).connect().await.unwrap();
    let mut flights = Vec::new();
    for n in 0..8 {
        let mut session = store.session(key(n));
        let flight = own(&mut *session, &fresh()).await;
        appended(&mut *session, append(flight, 0, &[&[n; 64]])).await;
        flights.push((session, flight));
    }
    // All connections are there.
    store.session(key(0)).fetch().await.unwrap();
    let before = [server.calls("xrange"), server.scripts()];
    for round in 0..500 {
        let (dropped, read) = (round % 8, round * 3 % 8);
        let (session, flight) = &mut flights[dropped];
        ask_and_go(session.read(*flight, 0)).await;
        let again = append(*flight, 0, &[&[dropped as u8; 64]]);
        ask_and_go(session.append(again)).await;
        let (session, flight) = &mut flights[read];
        let pieces = session.read(*flight, 0).await.unwrap().pieces;
        assert_eq!(pieces, [vec![read as u8; 64]], "{round}");
        let again = append(*flight, 0, &[&[read as u8; 64]]);
        assert_eq!(session.append(again).await.unwrap(), Appended::Accepted { next: 1 });
    }
    // What was dropped was sent, and answered to nobody.
    let sent = [server.calls("xrange") - before[0], server.scripts() - before[1]];
    assert_eq!(sent, [1000, 1000]);
    assert_eq!(store.errors(), []);
}

/// A way to the server on which, when told to, the next answer is lost and the
/// connection with it.
async fn lossy(server: u16) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let lose = Arc::new(AtomicBool::new(false));
    let losing = Arc::clone(&lose);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let losing = Arc::clone(&losing);
            tokio::spawn(async move {
                let forth = tokio::io::copy(&mut from_client, &mut to_server);
                let back = async {
                    let mut bytes = vec![0; 64 << 10];
                    while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
                        let lost = losing.swap(false, Ordering::SeqCst);
                        if lost || to_client.write_all(&bytes[..read]).await.is_err() {
                            return;
                        }
                    }
                };
                tokio::select! {
                    _ = forth => {}
                    () = back => {}
                }
            });
        }
    });
    (url, lose)
}

/// An answer that is lost after the server did its work costs nothing: the same is
/// sent again, and is there once.
#[tokio::test]
async fn lost_answers_leave_no_piece_twice() {
    let server = RedisServer::start();
    let (url, lose) = lossy(server.port()).await;
    let store = RedisStore::builder(url).pool_size(1).connect().await.unwrap();
    let mut owner = store.session(key(1));
    let flight = own(&mut *owner, &fresh()).await;
    // All connections are there before one is lost.
    assert_eq!(owner.read(flight, 0).await.unwrap(), Pieces::default());
    appended(&mut *owner, append(flight, 0, &[])).await;
    for index in 0..20 {
        lose.store(true, Ordering::SeqCst);
        let size = if index % 2 == 0 { 10 } else { 20_000 };
        appended(&mut *owner, append(flight, index, &[&vec![index as u8; size]])).await;
        assert!(!lose.load(Ordering::SeqCst), "one answer was lost");
        lose.store(true, Ordering::SeqCst);
        assert_eq!(owner.read(flight, 0).await.unwrap().pieces.len() as u64, index + 1);
    }
    lose.store(true, Ordering::SeqCst);
    finished(&mut *owner, sealed(flight, 20)).await;
    let read = owner.read(flight, 0).await.unwrap();
    assert_eq!((read.pieces.len(), read.end), (20, end(20)));
    assert_eq!(server.lines(&["XLEN", &name("stream", 1)]), [":21"]);
    assert_eq!(store.errors(), []);
}

#[tokio::test]
async fn i7_listening_outlives_the_push_connection() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    assert!(matches!(owner.listen(flight, LEASE).await, Ok(BeatReply::Renewed { waiters: 0 })));
    for _ in 0..3 {
        eventually("somebody is subscribed", async || {
            server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]) != ":0\r\n"
        })
        .await;
        gap(&mut *owner).await;
        let wait = fresh();
        follow(&mut *other, &wait).await;
        assert!(matches!(pushed(&mut *owner).await, Pushed::Watched { flight: f } if f == flight));
        let leave = Beat::Leave { key: key(1), waiter: wait.waiter };
        store.heartbeat().beat(&[leave]).await.remove(0).unwrap();
    }
    assert_eq!(store.errors(), []);
}

/// O4: the end is in the stream, whatever became of the word of it.
#[tokio::test]
async fn o4_the_end_is_read_where_its_push_is_lost() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    follow(&mut *other, &fresh()).await;
    appended(&mut *owner, append(flight, 0, &[b"a"])).await;
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    finished(&mut *owner, sealed(flight, 1)).await;
    assert_eq!(other.read(flight, 1).await.unwrap().end, end(1));
    gap(&mut *other).await;
    assert!(is_streamed(&mut *other, flight).await);
}

#[tokio::test]
async fn without_resp3_streams_are_read_all_the_same() {
    let server = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    assert!(matches!(owner.listen(flight, LEASE).await, Ok(BeatReply::Renewed { waiters: 0 })));
    follow(&mut *other, &fresh()).await;
    // Nobody is told: it is the beat that counts them.
    assert!(owner.pushed().now_or_never().is_none());
    assert!(matches!(renew(&store, 1, flight).await, BeatReply::Renewed { waiters: 1 }));
    assert!(matches!(owner.listen(flight, LEASE).await, Ok(BeatReply::Renewed { waiters: 1 })));
    appended(&mut *owner, append(flight, 0, &[b"a", b"b"])).await;
    assert_eq!(follow(&mut *other, &Join { known: flight.token, ..fresh() }).await, 2);
    finished(&mut *owner, sealed(flight, 2)).await;
    let read = other.read(flight, 0).await.unwrap();
    assert_eq!(read, Pieces { first: 0, pieces: vec!["a".into(), "b".into()], end: end(2) });
    assert!(is_streamed(&mut *other, flight).await);
    assert_eq!(store.errors(), []);
}
