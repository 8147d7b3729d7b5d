//! What others write under our names harms no flight.

use bytes::Bytes;
use tower_singleflight::{
    FlightId, FlightRef, RedisStore, Store,
    store::{Appended, BeatReply, Finished, Join, Joined, Loss, Pieces, Pushed, Session},
};

use super::{
    append, appended, end, finished, follow, fresh, is_streamed, key, look, name, own, pushed,
    renew, sealed, support::redis_server::RedisServer,
};

async fn read_all(session: &mut dyn Session, flight: FlightRef) -> Pieces {
    session.read(flight, 0).await.expect("read")
}

fn abc(count: usize) -> Vec<Bytes> {
    ["a", "b", "c"].map(Bytes::from).into_iter().take(count).collect()
}

/// Whatever lies among the pieces ends what is read of them; it is never a panic or an
/// error, and what was read before it stands.
#[tokio::test]
async fn k8_foreign_entries_are_not_read() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let other = FlightId::random().to_string();
    let mut session = store.session(key(1));
    let stream = name("stream", 1);
    for n in 0..10 {
        let flight = own(&mut *session, &fresh()).await;
        appended(&mut *session, append(flight, 0, &[b"a", b"b"])).await;
        let (id, token) = (flight.id.to_string(), flight.token);
        let next = format!("{token}-3");
        let entry: &[&str] = match n {
            0 => &[&next, "q", "c"],
            1 => &[&next, "p", "c", "p", "c"],
            2 => &[&next, "end", "done"],
            3 => &[&next, "end", "done", "flight", &other],
            4 => &[&next, "end", "running", "flight", &id],
            5 => &[&next, "end", "done", "flight", &id, "pieces", "nan", "proof", "x"],
            6 => &[&next, "flight", &id, "end", "done"],
            // A hole, with what looks like a piece after it.
            7 => &[&format!("{token}-4"), "p", "d"],
            8 => &[&format!("{}-3", token + 1), "p", "c"],
            _ => &[&format!("{token}-18446744073709551615"), "end", "done", "flight", &id],
        };
        let answer = server.command(&[&["XADD", &stream], entry].concat());
        assert!(!answer.starts_with('-'), "{n}: {answer}");
        let read = read_all(&mut *session, flight).await;
        assert_eq!(read, Pieces { first: 0, pieces: abc(2), end: None }, "{n}");
        let read = session.read(flight, 2).await.unwrap();
        assert!(read.pieces.is_empty() || read.first > 2, "{n}: {read:?}");
        // Its owner begins the stream anew, and its pieces are whole again.
        let refused = session.append(append(flight, 2, &[b"c"])).await.unwrap();
        assert_eq!(refused, Appended::Gap { next: 0 }, "{n}");
        appended(&mut *session, append(flight, 0, &[b"a", b"b", b"c"])).await;
        finished(&mut *session, sealed(flight, 3)).await;
        let read = read_all(&mut *session, flight).await;
        assert_eq!(read, Pieces { first: 0, pieces: abc(3), end: end(3) }, "{n}");
    }
    assert_eq!(store.errors(), []);
}

#[tokio::test]
async fn k8_damage_before_the_end_is_a_gap() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut session = store.session(key(1));
    let flight = own(&mut *session, &fresh()).await;
    appended(&mut *session, append(flight, 0, &[b"a", b"b"])).await;
    server.command(&["XADD", &name("stream", 1), &format!("{}-7", flight.token), "p", "x"]);
    assert_eq!(session.finish(sealed(flight, 2)).await.unwrap(), Finished::Gap { next: 0 });
    // Nothing has happened, but that the pieces are gone.
    assert!(matches!(renew(&store, 1, flight).await, BeatReply::Renewed { waiters: 0 }));
    assert_eq!(read_all(&mut *session, flight).await, Pieces::default());
    assert_eq!(session.finish(sealed(flight, 2)).await.unwrap(), Finished::Gap { next: 0 });
    appended(&mut *session, append(flight, 0, &[b"a", b"b"])).await;
    finished(&mut *session, sealed(flight, 2)).await;
    assert!(is_streamed(&mut *session, flight).await);
    // Where there are no pieces, there is nothing to send again.
    let flight = own(&mut *session, &fresh()).await;
    server.command(&["XADD", &name("stream", 1), &format!("{}-7", flight.token), "p", "x"]);
    finished(&mut *session, sealed(flight, 0)).await;
    assert_eq!(read_all(&mut *session, flight).await.end, end(0));
    assert!(is_streamed(&mut *session, flight).await);
}

/// A stream that lost data left behind may be ahead of every token to come.
#[tokio::test]
async fn f8_a_stream_that_was_left_over_makes_way() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let stream = name("stream", 1);
    let mut session = store.session(key(1));
    let greatest = format!("{0}-{0}", u64::MAX);
    for id in ["8999999999999999-5", &greatest] {
        for after_grant in [false, true] {
            server.command(&["FLUSHALL"]);
            if !after_grant {
                server.command(&["XADD", &stream, id, "p", "old"]);
            }
            let flight = own(&mut *session, &fresh()).await;
            if after_grant {
                server.command(&["XADD", &stream, id, "p", "old"]);
            }
            appended(&mut *session, append(flight, 0, &[b"a", b"b"])).await;
            finished(&mut *session, sealed(flight, 2)).await;
            let read = read_all(&mut *session, flight).await;
            assert_eq!(read, Pieces { first: 0, pieces: abc(2), end: end(2) }, "{id}");
            assert_eq!(server.lines(&["XLEN", &stream]), [":3"], "{id}");
        }
    }
    // Entries under the very token that comes next: none passes for the new flight's.
    server.command(&["FLUSHALL"]);
    server.command(&["SET", "ai:flight:owner-seq", "8000000000000000"]);
    server.command(&["XADD", &stream, "8000000000000001-1", "p", "old"]);
    let flight = own(&mut *session, &fresh()).await;
    assert_eq!(flight.token, 8_000_000_000_000_001);
    assert_eq!(read_all(&mut *session, flight).await, Pieces::default());
    appended(&mut *session, append(flight, 0, &[b"a"])).await;
    assert_eq!(read_all(&mut *session, flight).await.pieces, abc(1));
    assert_eq!(store.errors(), []);
}

#[tokio::test]
async fn k8_a_foreign_type_under_the_streams_name_makes_way() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let stream = name("stream", 1);
    let mut session = store.session(key(1));
    let foreign = || {
        server.command(&["DEL", &stream]);
        assert_eq!(server.command(&["SET", &stream, "text"]), "+OK\r\n");
    };
    foreign();
    let flight = own(&mut *session, &fresh()).await;
    assert_eq!(read_all(&mut *session, flight).await, Pieces::default());
    appended(&mut *session, append(flight, 0, &[b"a"])).await;
    foreign();
    assert!(matches!(renew(&store, 1, flight).await, BeatReply::Renewed { waiters: 0 }));
    assert_eq!(follow(&mut *store.session(key(1)), &fresh()).await, 0);
    foreign();
    let refused = session.append(append(flight, 1, &[b"b"])).await.unwrap();
    assert_eq!(refused, Appended::Gap { next: 0 });
    foreign();
    assert_eq!(session.finish(sealed(flight, 1)).await.unwrap(), Finished::Gap { next: 0 });
    foreign();
    appended(&mut *session, append(flight, 0, &[b"a", b"b"])).await;
    finished(&mut *session, sealed(flight, 2)).await;
    assert!(is_streamed(&mut *session, flight).await);
    // Where its stream is gone, the answer is as if it were missing.
    foreign();
    assert!(!is_streamed(&mut *session, flight).await);
    let next = own(&mut *session, &Join { known: flight.token, ..fresh() }).await;
    let known = Join { known: flight.token, ..fresh() };
    assert_eq!(follow(&mut *store.session(key(1)), &known).await, 0);
    finished(&mut *session, sealed(next, 0)).await;
    assert_eq!(store.errors(), []);
}

/// A stream that holds another flight's end is not this one's answer.
#[tokio::test]
async fn k8_an_answer_without_its_own_end_is_missing() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let stream = name("stream", 1);
    let mut session = store.session(key(1));
    let id = FlightId::random().to_string();
    for fields in [
        &["p", "x"][..],
        &["end", "done", "flight", &id, "pieces", "1", "proof", ""],
        &["end", "done"],
        &[],
    ] {
        let flight = own(&mut *session, &fresh()).await;
        appended(&mut *session, append(flight, 0, &[b"a"])).await;
        finished(&mut *session, sealed(flight, 1)).await;
        server.command(&["DEL", &stream]);
        if !fields.is_empty() {
            let at = format!("{}-2", flight.token);
            let answer = server.command(&[&["XADD", &stream, &at], fields].concat());
            assert!(!answer.starts_with('-'), "{answer}");
        }
        let found = session.join(look(flight)).await;
        assert!(matches!(found, Ok(Joined::Lapsed)), "{fields:?}: {found:?}");
    }
    assert_eq!(store.errors(), []);
}

/// Records of a version that knew no streams, and records that are damaged.
#[tokio::test]
async fn k8_records_of_all_kinds() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let meta = name("meta", 1);
    let mut session = store.session(key(1));
    let flight = own(&mut *session, &fresh()).await;
    server.command(&["HDEL", &meta, "next", "trimmed", "sealed", "prevSealed"]);
    assert_eq!(follow(&mut *store.session(key(1)), &fresh()).await, 0);
    assert!(matches!(renew(&store, 1, flight).await, BeatReply::Renewed { waiters: 1 }));
    appended(&mut *session, append(flight, 0, &[b"a"])).await;
    finished(&mut *session, sealed(flight, 1)).await;
    assert!(is_streamed(&mut *session, flight).await);
    server.command(&["HDEL", &meta, "sealed"]);
    assert!(!is_streamed(&mut *session, flight).await);
    for (field, value) in [
        ("next", "nan"),
        ("next", "-1"),
        ("next", "9999999999999999"),
        ("next", ""),
        ("trimmed", "1e9"),
        ("trimmed", " 1"),
    ] {
        let flight = own(&mut *session, &fresh()).await;
        server.command(&["HSET", &meta, field, value]);
        let refused = session.append(append(flight, 0, &[b"a"])).await.unwrap();
        assert_eq!(refused, Appended::Lost(Loss::Missing), "{field} {value:?}");
        let refused = session.finish(sealed(flight, 0)).await.unwrap();
        assert_eq!(refused, Finished::Lost(Loss::Missing), "{field} {value:?}");
    }
    for sealed in ["", "2", "\u{0}"] {
        let flight = own(&mut *session, &fresh()).await;
        server.command(&["HSET", &meta, "status", "done", "sealed", sealed]);
        assert!(!is_streamed(&mut *session, flight).await);
    }
    assert_eq!(store.errors(), []);
}

#[tokio::test]
async fn hostile_pushes_are_no_pieces() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    follow(&mut *other, &fresh()).await;
    let head = format!("{}{:020}", flight.id, flight.token);
    let channel = format!("ai:flight:push:0:{{{}}}", key(1));
    for payload in [
        format!("1Pr{head}"),
        format!("1Pd{head}{:020}x", 0),
        format!("1Pr{head}-{:019}x", 1),
        format!("1Nr{head}{:020}x", 0),
        format!("1Sd{head}7"),
        format!("1Sr{head}{:020}", 0),
        format!("1Wd{head}"),
        // Nobody here owns it, so that nobody wants to know who waits.
        format!("1Wr{head}"),
    ] {
        assert_eq!(server.command(&["PUBLISH", &channel, &payload]), ":1\r\n");
    }
    appended(&mut *owner, append(flight, 0, &[b"a"])).await;
    match pushed(&mut *other).await {
        Pushed::Piece { index: 0, piece: Some(piece), .. } => assert_eq!(piece, "a"),
        other => panic!("{other:?}"),
    }
}

/// O5: whoever falls behind by more pushes than there is room for is told to look.
#[tokio::test]
async fn o5_pushes_that_nobody_reads_become_a_word_to_look() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    follow(&mut *other, &fresh()).await;
    for index in 0..300 {
        appended(&mut *owner, append(flight, index, &[b"x"])).await;
    }
    finished(&mut *owner, sealed(flight, 300)).await;
    let (mut expected, mut gaps) = (None, 0);
    loop {
        match other.pushed().await {
            Pushed::Gap => (expected, gaps) = (None, gaps + 1),
            Pushed::Piece { index, .. } => {
                assert!(expected.is_none_or(|expected| expected == index), "a silent hole");
                expected = Some(index + 1);
            }
            Pushed::Ended { seal: Some(seal), .. } => break assert_eq!(seal.pieces, 300),
            other => panic!("{other:?}"),
        }
    }
    assert!(gaps > 0);
}
