//! Beats of owners that are none any more, and beats of many at once.

use tower_singleflight::{
    FlightRef, RedisStore, Store,
    store::{Beat, BeatReply, Finished, Loss, StoreError, StoreErrorKind},
};

use super::{beat, done, follow, fresh, key, key_text, own, renew};
use crate::support::{redis_server::RedisServer, rights};

/// Another's flight has come and gone before the beat: it changes nothing, and where
/// nothing is left it makes nothing.
#[tokio::test]
async fn e6_a_late_beat_makes_nothing() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut first, mut second) = (store.session(key(1)), store.session(key(1)));
    let meta = format!("ai:flight:meta:{{{}}}", key_text(1));
    let late = own(&mut *first, &fresh()).await;
    assert_eq!(server.command(&["DEL", &meta]), ":1\r\n");
    let flight = own(&mut *second, &fresh()).await;
    assert_eq!(second.finish(done(flight, Some(b"b"))).await.unwrap(), Finished::Accepted);

    let record = || server.lines(&["HGETALL", &meta]);
    let before = record();
    assert!(!before.is_empty());
    let reply = beat(&store, renew(1, late)).await;
    let by = flight.token;
    assert!(matches!(reply, BeatReply::Lost(Loss::Superseded { by: b }) if b == by), "{reply:?}");
    assert_eq!(record(), before);

    assert_eq!(server.command(&["DEL", &meta]), ":1\r\n");
    let keys = || {
        let mut keys = server.lines(&["KEYS", "*"]);
        keys.sort_unstable();
        keys
    };
    let before = keys();
    let reply = beat(&store, renew(1, late)).await;
    assert!(matches!(reply, BeatReply::Lost(Loss::Missing)), "{reply:?}");
    assert_eq!(keys(), before);
    assert_eq!(store.errors(), []);
}

/// A hundred leases are renewed in one batch; one is another's by then, and of one the
/// server says no: each hears of its own, and no other is the worse for it.
#[tokio::test]
async fn e11_each_of_a_hundred_renewals_has_its_own_answer() {
    const LEASES: u8 = 100;
    const TAKEN: u8 = 17;
    const REFUSED: u8 = 0x60;
    let server = RedisServer::start();
    server.set_user("flight", &rights::of_the_guide());
    let url = server.url_for("flight", rights::PASSWORD, 0);
    let store = RedisStore::connect(&url).await.unwrap();
    let meta = |n: u8| format!("ai:flight:meta:{{{}}}", key_text(n));
    let mut flights = Vec::new();
    for n in 0..LEASES {
        let mut session = store.session(key(n));
        flights.push(own(&mut *session, &fresh()).await);
        // By the number of those who wait it is known whose answer it is.
        for _ in 0..n % 5 {
            follow(&mut *session, &fresh()).await;
        }
    }
    assert_eq!(server.command(&["DEL", &meta(TAKEN)]), ":1\r\n");
    let taken = own(&mut *store.session(key(TAKEN)), &fresh()).await;
    // All but that one.
    let rights = ["resetkeys", "~ai:flight:*:{[0-5]*", "~ai:flight:*:{6[1-9]*"];
    server.set_user("flight", &rights.map(str::to_owned));

    let beaten = |n: u8| server.lines(&["HGET", &meta(n), "heartbeatAt"]);
    let before: Vec<_> = (0..LEASES).map(beaten).collect();
    let batch: Vec<Beat> = (0..).zip(&flights).map(|(n, flight)| renew(n, *flight)).collect();
    let mut heartbeat = store.heartbeat();
    let replies = heartbeat.beat(&batch).await;
    assert_eq!(replies.len(), flights.len());
    for ((n, reply), before) in (0..).zip(&replies).zip(before) {
        is_its_own(n, reply, taken, n == REFUSED);
        assert_eq!(beaten(n) != before, n != TAKEN && n != REFUSED, "{n}");
    }
    assert_eq!(store.errors(), [(StoreErrorKind::Denied, 1)]);

    // It is asked for again, and had.
    server.set_user("flight", &["~ai:flight:*".to_owned()]);
    for (n, reply) in (0..).zip(&heartbeat.beat(&batch).await) {
        is_its_own(n, reply, taken, false);
    }

    #[track_caller]
    fn is_its_own(
        n: u8,
        reply: &Result<BeatReply, StoreError>,
        taken: FlightRef,
        is_refused: bool,
    ) {
        match reply {
            Err(error) => {
                assert!(is_refused && error.kind() == StoreErrorKind::Denied, "{n}: {error}");
            }
            Ok(BeatReply::Lost(Loss::Superseded { by })) => {
                assert_eq!((n, *by), (TAKEN, taken.token));
            }
            Ok(BeatReply::Renewed { waiters }) => {
                assert!(!is_refused && n != TAKEN, "{n}");
                assert_eq!(*waiters, u32::from(n % 5), "{n}");
            }
            other => panic!("{n}: {other:?}"),
        }
    }
}
