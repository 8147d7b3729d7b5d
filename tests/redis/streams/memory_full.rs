//! A server that has no memory left takes no pieces, and everything else goes on.

use tower_singleflight::{
    RedisStore, Store,
    store::{Append, Appended, BeatReply, Finished, Joined, StoreErrorKind, StoreState},
};

use super::{
    LEASE, append, appended, end, finished, follow, fresh, is_streamed, key, look, name, own,
    renew, sealed, support::redis_server::RedisServer, ttls,
};

#[tokio::test]
async fn refused_pieces_leave_the_count_right() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    follow(&mut *other, &fresh()).await;
    let full = |full: bool| {
        server.command(&["CONFIG", "SET", "maxmemory", if full { "1" } else { "0" }]);
    };
    let mut refusals = 0;
    for there in [0, 2] {
        full(true);
        for pieces in [&[&b"x"[..]][..], &[b"x", b"y"], &[&[1; 30_000]]] {
            let refused = owner.append(append(flight, there, pieces)).await;
            assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::OutOfMemory);
            refusals += 1;
        }
        // It is there, and says so: nothing is added, nothing is lost.
        assert_eq!(store.state(), StoreState::Ok);
        assert_eq!(store.errors(), [(StoreErrorKind::OutOfMemory, refusals)]);
        let read = other.read(flight, 0).await.unwrap();
        assert_eq!(read.pieces.len() as u64, there);
        assert!(matches!(owner.listen(flight, LEASE).await, Ok(BeatReply::Renewed { waiters: 1 })));
        assert!(matches!(renew(&store, 1, flight).await, BeatReply::Renewed { waiters: 1 }));
        // What is there already is accepted, and a gap is still one.
        if there > 0 {
            let again = owner.append(append(flight, 0, &[b"a", b"b"])).await.unwrap();
            assert_eq!(again, Appended::Accepted { next: 2 });
        }
        let past = owner.append(append(flight, 9, &[b"x"])).await.unwrap();
        assert_eq!(past, Appended::Gap { next: there });
        ttls(&server, "full");
        full(false);
        if there == 0 {
            appended(&mut *owner, append(flight, 0, &[b"a", b"b"])).await;
        }
    }
    full(true);
    let trim = Append { kept_from: 1, ..append(flight, 2, &[]) };
    assert_eq!(owner.append(trim).await.unwrap(), Appended::Accepted { next: 2 });
    assert_eq!(other.read(flight, 0).await.unwrap().first, 1);
    // Its end finds room.
    assert_eq!(owner.finish(sealed(flight, 3)).await.unwrap(), Finished::Gap { next: 2 });
    finished(&mut *owner, sealed(flight, 2)).await;
    assert!(is_streamed(&mut *other, flight).await);
    assert_eq!(other.read(flight, 1).await.unwrap().end, end(2));
    ttls(&server, "ended");
    full(false);
    let next = own(&mut *owner, &fresh()).await;
    appended(&mut *owner, append(next, 0, &[b"n"])).await;
}

/// What was in the way is gone before there is room for the pieces: no harm.
#[tokio::test]
async fn a_full_server_with_a_foreign_stream() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut owner = store.session(key(1));
    let flight = own(&mut *owner, &fresh()).await;
    server.command(&["SET", &name("stream", 1), "text"]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    match owner.append(append(flight, 0, &[b"a"])).await {
        Ok(appended) => assert_eq!(appended, Appended::Accepted { next: 1 }),
        Err(error) => assert_eq!(error.kind(), StoreErrorKind::OutOfMemory),
    }
    let there = owner.read(flight, 0).await.unwrap().pieces.len() as u64;
    finished(&mut *owner, sealed(flight, there)).await;
    let found = owner.join(look(flight)).await.unwrap();
    assert!(matches!(found, Joined::Done { streamed: true, .. }), "{found:?}");
    ttls(&server, "ended");
}
