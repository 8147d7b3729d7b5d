//! What is lost, damaged, forged, or finds no room.

use std::time::Duration;

use tower_singleflight::{
    RedisStore, Store, WaiterId,
    store::{
        Abandoned, Beat, BeatReply, EndStatus, Finish, Finished, Join, Joined, Loss, StoreErrorKind,
    },
};

use super::{beat, done, follow, fresh, key, key_text, own, pushed_end, renew};
use crate::support::{eventually, redis_server::RedisServer};

#[tokio::test]
async fn failures_and_losses_are_counted() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut session = store.session(key(1));
    let mut known = 0;
    for run in 1..=2 {
        let flight = own(&mut *session, &Join { known, ..fresh() }).await;
        let finish = Finish {
            status: EndStatus::Failed,
            report: format!("run {run}"),
            ..done(flight, None)
        };
        assert_eq!(session.finish(finish).await.unwrap(), Finished::Accepted);
        known = flight.token;
    }
    match session.join(Join { known, ..fresh() }).await.unwrap() {
        Joined::Failed { flight, status: EndStatus::Failed, report } => {
            assert_eq!((flight.token, report.as_str()), (known, "run 2"));
        }
        other => panic!("{other:?}"),
    }
    own(&mut *session, &fresh()).await;

    let mut session = store.session(key(2));
    // The record is there for as long again, to be found by a busy machine.
    let lease = Duration::from_millis(300);
    let mut known = 0;
    for _ in 0..3 {
        let flight = own(&mut *session, &Join { known, lease, ..fresh() }).await;
        known = flight.token;
        let look = Join { known, look_only: true, ..fresh() };
        eventually("the lease is over", async || {
            matches!(store.session(key(2)).join(look.clone()).await, Ok(Joined::Lapsed))
        })
        .await;
    }
    for known in [known, 0] {
        match session.join(Join { known, ..fresh() }).await.unwrap() {
            Joined::Quarantined { left } => {
                let most = Duration::from_secs(5);
                assert!(left <= most && left > most / 2, "{left:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn f8_tokens_grow_after_total_loss() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut session = store.session(key(1));
    let flight = own(&mut *session, &fresh()).await;
    server.command(&["FLUSHALL"]);
    // Whoever knows the flight is told; its owner may go on.
    let look = Join { look_only: true, ..fresh() };
    let follower = Join { known: flight.token, ..look.clone() };
    assert!(matches!(session.join(follower).await, Ok(Joined::Missing)));
    assert!(matches!(session.join(look).await, Ok(Joined::Missing)));
    let next = own(&mut *session, &fresh()).await;
    assert!(next.token > flight.token);
    let lost = Finished::Lost(Loss::Superseded { by: next.token });
    assert_eq!(session.finish(done(flight, Some(b"old"))).await.unwrap(), lost);
}

#[tokio::test]
async fn k8_damaged_meta_is_a_miss() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let k = key_text(1);
    let meta = format!("ai:flight:meta:{{{k}}}");
    let waiters = format!("ai:flight:waiters:{{{k}}}");
    let stream = format!("ai:flight:stream:{{{k}}}");
    let damages: &[&[&str]] = &[
        &["SET", &meta, "text"],
        &["RPUSH", &meta, "1"],
        &["HSET", &meta, "format", "1"],
        &["HSET", &meta, "format", "1.0", "status", "running"],
        &["HSET", &meta, "format", "v2"],
        &["PERSIST", &meta],
        &["HSET", &meta, "ownerToken", "99999999999999999999999999999"],
        &["HSET", &meta, "heartbeatAt", "-1"],
        &["HSET", &meta, "lease", "nan"],
        &["HSET", &meta, "status", "\u{0}\u{ff}"],
        &["HSET", &meta, "flight", ""],
        &["HSET", &meta, "prevFlight", "x"],
        &["SET", &waiters, "text"],
        &["SET", &stream, "text"],
        &["HSET", "ai:flight:owner-seq", "a", "b"],
        &["SET", "ai:flight:owner-seq", "not a number"],
    ];
    let mut last = 0;
    for (n, damage) in damages.iter().enumerate() {
        let mut session = store.session(key(1));
        let before = own(&mut *session, &fresh()).await;
        assert!(before.token > last, "{n}");
        if damage[1] != meta || ["SET", "RPUSH"].contains(&damage[0]) {
            server.command(&["DEL", damage[1]]);
        }
        if damage.len() == 4 && damage[3] == "1" {
            server.command(&["DEL", &meta]);
        }
        let answer = server.command(damage);
        assert!(!answer.starts_with('-'), "{n}: {answer}");
        if damage[1] == meta {
            let reply = beat(&store, renew(1, before)).await;
            assert!(matches!(reply, BeatReply::Lost(Loss::Missing)), "{n}: {reply:?}");
        }
        let again = Join { known: before.token, ..fresh() };
        let flight = if damage[1] == meta {
            own(&mut *session, &again).await
        } else {
            follow(&mut *session, &again).await;
            before
        };
        let finish = done(flight, Some(b"x"));
        assert_eq!(session.finish(finish).await.unwrap(), Finished::Accepted, "{n}");
        last = flight.token;
    }
    assert_eq!(store.errors(), []);
    server.command(&["RPUSH", &format!("ai:flight:result:{{{}}}", key_text(2)), "x"]);
    assert!(store.session(key(2)).fetch().await.unwrap().is_none(), "a foreign result is none");
}

/// What is used again, too, is of a flight that there can have been.
#[tokio::test]
async fn k8_damaged_answers_are_not_used_again() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let meta = format!("ai:flight:meta:{{{}}}", key_text(1));
    let again = || Join { reuse: Duration::from_secs(20), ..fresh() };
    let (letters, nines) = ("Z".repeat(32), "9".repeat(16));
    for damage in [["flight", letters.as_str()], ["ownerToken", nines.as_str()]] {
        let mut session = store.session(key(1));
        let flight = own(&mut *session, &fresh()).await;
        let finish = done(flight, Some(b"x"));
        assert_eq!(session.finish(finish).await.unwrap(), Finished::Accepted);
        let found = session.join(again()).await;
        assert!(matches!(found, Ok(Joined::Done { .. })), "{damage:?}: {found:?}");
        server.command(&["HSET", &meta, damage[0], damage[1]]);
        own(&mut *session, &again()).await;
        server.command(&["DEL", &meta]);
    }
    assert_eq!(store.errors(), []);
}

#[tokio::test]
async fn memory_full_lets_flights_end() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut sessions = Vec::new();
    for n in 0..4 {
        let mut session = store.session(key(n));
        let flight = own(&mut *session, &fresh()).await;
        sessions.push((n, session, flight));
    }
    follow(&mut *store.session(key(3)), &fresh()).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let (n, _, flight) = &sessions[0];
    assert!(matches!(beat(&store, renew(*n, *flight)).await, BeatReply::Renewed { .. }));
    let release = Beat::Release {
        key: key(*n),
        flight: flight.id,
        token: None,
        status: EndStatus::Abandoned,
    };
    beat(&store, release).await;
    let (_, session, flight) = &mut sessions[1];
    assert_eq!(session.abandon(*flight).await.unwrap(), Abandoned::Over);
    let (_, session, flight) = &mut sessions[2];
    let small = done(*flight, Some(b"small"));
    assert_eq!(session.finish(small).await.unwrap(), Finished::Accepted);
    let (n, session, flight) = &mut sessions[3];
    let large = done(*flight, Some(&[1; 9000]));
    assert_eq!(session.finish(large).await.unwrap(), Finished::Accepted);
    assert!(session.fetch().await.unwrap().is_none());
    beat(&store, Beat::Leave { key: key(*n), waiter: WaiterId::random() }).await;
    let refused = store.session(key(9)).join(fresh()).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::OutOfMemory);
    assert!(server.lines(&["KEYS", &format!("*{}*", key_text(9))]).is_empty());
}

#[tokio::test]
async fn hostile_pushes_are_ignored() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    follow(&mut *other, &fresh()).await;
    let channel = format!("ai:flight:push:0:{{{}}}", key_text(1));
    for payload in ["", "1", "1Bd", "\r\n", &"9".repeat(55), &"\u{0}".repeat(70_000)] {
        assert_eq!(server.command(&["PUBLISH", &channel, payload]), ":1\r\n");
    }
    owner.finish(done(flight, Some(b"answer"))).await.unwrap();
    assert_eq!(pushed_end(&mut *other).await.0, flight);
}

/// Numbers that a script cannot count on are none: written by hand, by another
/// program, or damaged.
#[tokio::test]
async fn numbers_beyond_counting_harm_no_key() {
    for number in ["9007199254740993", "9999999999999999"] {
        let server = RedisServer::start();
        server.command(&["SET", "ai:flight:owner-seq", number]);
        let store = RedisStore::connect(&server.unix_url()).await.unwrap();
        let (mut a, mut b) = (store.session(key(1)), store.session(key(1)));
        let flight = own(&mut *a, &fresh()).await;
        assert_eq!(follow(&mut *b, &fresh()).await, flight);
        assert_eq!(a.finish(done(flight, Some(b"a"))).await.unwrap(), Finished::Accepted);

        let meta = format!("ai:flight:meta:{{{}}}", key(1));
        server.command(&["HSET", &meta, "ownerToken", number]);
        let known = Join { known: flight.token, ..fresh() };
        let next = own(&mut *b, &known).await;
        assert!(next.token > flight.token, "{next:?} after {flight:?}");
        assert_eq!(follow(&mut *a, &fresh()).await, next);
    }
}
