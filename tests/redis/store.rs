//! The Redis store alone, against a real server.

use std::time::{Duration, Instant};

use crate::support::{
    eventually,
    redis_server::{RedisServer, closed_port, silent_server},
};
use bb8_redis::{RedisConnectionManager, bb8, redis};
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower_singleflight::{
    FlightId, FlightRef, KeyDigest, RedisStore, Store, WaiterId,
    store::{
        Abandoned, Beat, BeatReply, EndStatus, Finish, Finished, Join, Joined, Loss, Pushed,
        Session, StoreErrorKind, StoreState,
    },
};

const LEASE: Duration = Duration::from_secs(3);

fn key(n: u8) -> KeyDigest {
    KeyDigest::from_bytes([n; 32])
}

fn fresh() -> Join {
    Join {
        flight: FlightId::random(),
        waiter: WaiterId::random(),
        known: 0,
        lease: LEASE,
        reuse: Duration::ZERO,
        retention: Duration::from_secs(30),
        look_only: false,
    }
}

fn done(flight: FlightRef, record: Option<&[u8]>) -> Finish {
    Finish {
        flight,
        status: EndStatus::Done,
        record: record.map(Bytes::copy_from_slice),
        seal: None,
        fresh: Duration::MAX,
        keep: Duration::from_secs(30),
        report: String::new(),
    }
}

async fn own(session: &mut dyn Session, join: &Join) -> FlightRef {
    match session.join(join.clone()).await {
        Ok(Joined::Own { token }) => FlightRef { token, id: join.flight },
        other => panic!("not owned: {other:?}"),
    }
}

async fn follow(session: &mut dyn Session, join: &Join) -> FlightRef {
    match session.join(join.clone()).await {
        Ok(Joined::Follow { flight, .. }) => flight,
        other => panic!("not followed: {other:?}"),
    }
}

async fn pushed(session: &mut dyn Session) -> Pushed {
    tokio::time::timeout(Duration::from_secs(5), session.pushed()).await.expect("a push")
}

/// The next push that is not the word to look.
async fn pushed_end(session: &mut dyn Session) -> (FlightRef, EndStatus, Option<Bytes>) {
    loop {
        match pushed(session).await {
            Pushed::Ended { flight, status, record, .. } => return (flight, status, record),
            Pushed::Gap => {}
            other => panic!("another push: {other:?}"),
        }
    }
}

fn renew(n: u8, flight: FlightRef) -> Beat {
    Beat::Renew { key: key(n), flight, lease: LEASE }
}

async fn beat(store: &RedisStore, beat: Beat) -> BeatReply {
    let mut replies = store.heartbeat().beat(&[beat]).await;
    assert_eq!(replies.len(), 1);
    replies.remove(0).expect("a beat's answer")
}

#[tokio::test]
async fn the_life_of_a_flight() {
    let server = RedisServer::start();
    let a = RedisStore::connect(&server.url()).await.unwrap();
    let b = RedisStore::connect(&server.unix_url()).await.unwrap();
    assert_eq!((a.state(), a.errors(), a.is_remote()), (StoreState::Ok, vec![], true));
    let (mut owner, mut follower) = (a.session(key(1)), b.session(key(1)));

    let join = fresh();
    let flight = own(&mut *owner, &join).await;
    assert_eq!(own(&mut *owner, &join).await, flight, "asked again");
    let wait = fresh();
    match follower.join(wait.clone()).await {
        Ok(Joined::Follow { flight: f, left, rank: 0, pieces: 0, .. }) => {
            assert_eq!(f, flight);
            assert!(left <= LEASE && left > LEASE / 2, "{left:?}");
        }
        other => panic!("{other:?}"),
    }
    let mut third = b.session(key(1));
    let last = fresh();
    assert!(matches!(third.join(last.clone()).await, Ok(Joined::Follow { rank: 1, .. })));
    // A second look keeps the place in line.
    assert!(matches!(follower.join(wait.clone()).await, Ok(Joined::Follow { rank: 0, .. })));
    assert!(matches!(third.join(last.clone()).await, Ok(Joined::Follow { rank: 1, .. })));
    assert!(matches!(beat(&a, renew(1, flight)).await, BeatReply::Renewed { waiters: 2 }));

    assert!(matches!(owner.abandon(flight).await, Ok(Abandoned::Wanted { waiters: 2 })));
    assert_eq!(owner.finish(done(flight, None)).await.unwrap(), Finished::Wanted);
    for _ in 0..2 {
        let finish = done(flight, Some(b"the answer"));
        assert_eq!(owner.finish(finish).await.unwrap(), Finished::Accepted);
    }
    let (ended, status, record) = pushed_end(&mut *follower).await;
    assert_eq!((ended, status), (flight, EndStatus::Done));
    assert_eq!(record.as_deref(), Some(&b"the answer"[..]));
    assert_eq!(follower.fetch().await.unwrap().as_deref(), Some(&b"the answer"[..]));
    assert!(matches!(beat(&a, renew(1, flight)).await, BeatReply::Over));

    // Who knows the flight gets its answer; a fresh caller only inside its reuse.
    match third.join(Join { known: flight.token, ..last }).await {
        Ok(Joined::Done { flight: f, streamed: false, record: Some(record), age: None }) => {
            assert_eq!((f, &record[..]), (flight, &b"the answer"[..]));
        }
        other => panic!("{other:?}"),
    }
    let reuse = Join { reuse: LEASE, ..fresh() };
    assert!(matches!(third.join(reuse).await, Ok(Joined::Done { age: Some(_), .. })));
    let next = own(&mut *third, &fresh()).await;
    assert!(next.token > flight.token);
    assert_eq!(
        owner.finish(done(flight, Some(b"late"))).await.unwrap(),
        Finished::Accepted,
        "its own end, asked again"
    );
    let look = Join { known: flight.token, look_only: true, ..fresh() };
    assert!(matches!(follower.join(look).await, Ok(Joined::Done { flight: f, .. }) if f == flight));
    assert_eq!(server.lines(&["TTL", "ai:flight:owner-seq"]), [":-1"]);
    assert_eq!((a.errors(), b.errors()), (vec![], vec![]));
}

#[tokio::test]
async fn release_wakes_a_follower_and_the_old_owner_is_fenced() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut follower) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    let wait = fresh();
    follow(&mut *follower, &wait).await;
    let release = Beat::Release {
        key: key(1),
        flight: flight.id,
        token: Some(flight.token),
        status: EndStatus::Abandoned,
    };
    assert!(matches!(beat(&store, release.clone()).await, BeatReply::Gone));
    loop {
        match pushed(&mut *follower).await {
            Pushed::Released { flight: f } => break assert_eq!(f, flight),
            Pushed::Gap => {}
            other => panic!("{other:?}"),
        }
    }
    let retry = Join { known: flight.token, flight: FlightId::random(), ..wait };
    let next = own(&mut *follower, &retry).await;
    let lost = Finished::Lost(Loss::Superseded { by: next.token });
    let late = done(FlightRef { token: next.token, ..flight }, Some(b"late"));
    assert_eq!(owner.finish(late).await.unwrap(), lost);
    let big = vec![7; 100_000];
    assert!(matches!(beat(&store, release).await, BeatReply::Gone));
    let stranger = FlightRef { token: 1, id: FlightId::random() };
    assert_eq!(owner.finish(done(stranger, Some(&big))).await.unwrap(), lost);
    assert!(matches!(beat(&store, renew(1, stranger)).await,
        BeatReply::Lost(Loss::Superseded { by }) if by == next.token));
    assert!(matches!(beat(&store, renew(2, stranger)).await, BeatReply::Lost(Loss::Missing)));
    let keys = server.lines(&["KEYS", "*"]);
    assert!(!keys.iter().any(|key| key.contains("result")), "nothing staged is left: {keys:?}");
    assert!(!keys.iter().any(|key| key.contains(&key_text(2))), "a refused step creates nothing");
}

fn key_text(n: u8) -> String {
    key(n).to_string()
}

#[tokio::test]
async fn records_of_every_size() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    for (n, size) in [0, 1, 4096, 4097, 20_480, 20_481, 3_000_000].into_iter().enumerate() {
        let n = n as u8;
        let (mut owner, mut follower) = (store.session(key(n)), store.session(key(n)));
        let flight = own(&mut *owner, &fresh()).await;
        follow(&mut *follower, &fresh()).await;
        let record: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        let finish = done(flight, Some(&record));
        assert_eq!(owner.finish(finish).await.unwrap(), Finished::Accepted);
        let (_, _, pushed) = pushed_end(&mut *follower).await;
        assert_eq!(pushed.is_some(), size <= 20_480, "{size}");
        assert!(pushed.is_none_or(|pushed| pushed == record), "{size}");
        assert_eq!(follower.fetch().await.unwrap().unwrap(), record, "{size}");
        match follower.join(Join { known: flight.token, ..fresh() }).await.unwrap() {
            Joined::Done { record: found, .. } => {
                assert_eq!(found.is_some(), size <= 4096, "{size}");
            }
            other => panic!("{other:?}"),
        }
    }
}

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
    for lost in 1..=3 {
        let flight = own(&mut *session, &Join { known, lease, ..fresh() }).await;
        known = flight.token;
        let look = Join { known, look_only: true, ..fresh() };
        eventually("the lease is over", async || {
            matches!(store.session(key(2)).join(look.clone()).await, Ok(Joined::Lapsed))
        })
        .await;
        assert!(lost <= 3);
    }
    for known in [known, 0] {
        match session.join(Join { known, ..fresh() }).await.unwrap() {
            Joined::Quarantined { left } => assert!(left <= Duration::from_secs(5)),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn private_stands_and_watch_answers() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    let wait = fresh();
    follow(&mut *other, &wait).await;
    let watch = Beat::Watch { key: key(1), join: wait, mark: LEASE };
    assert!(matches!(beat(&store, watch.clone()).await,
        BeatReply::Watched(Joined::Follow { flight: f, .. }) if f == flight));
    let private = Finish { status: EndStatus::Private, ..done(flight, None) };
    assert_eq!(owner.finish(private).await.unwrap(), Finished::Accepted);
    assert_eq!(pushed_end(&mut *other).await.1, EndStatus::Private);
    assert!(matches!(beat(&store, watch).await, BeatReply::Watched(Joined::Private { .. })));
    // One of those who come finds out whether it is still so.
    assert!(matches!(other.join(fresh()).await, Ok(Joined::Probe { .. })));
    assert!(matches!(other.join(fresh()).await, Ok(Joined::Private { .. })));
    let again = Join { flight: flight.id, ..fresh() };
    assert!(matches!(other.join(again).await, Ok(Joined::Private { .. })));
}

#[tokio::test]
async fn nobody_waits() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut session = store.session(key(1));
    let wait = fresh();
    for kept_back in [true, false] {
        let join = fresh();
        let flight = own(&mut *session, &join).await;
        follow(&mut *store.session(key(1)), &wait).await;
        let leave = Beat::Leave { key: key(1), waiter: wait.waiter };
        assert!(matches!(beat(&store, leave).await, BeatReply::Gone));
        if kept_back {
            assert_eq!(session.finish(done(flight, None)).await.unwrap(), Finished::Accepted);
        } else {
            assert_eq!(session.abandon(flight).await.unwrap(), Abandoned::Over);
        }
        assert!(matches!(
            session.join(join).await,
            Ok(Joined::Ended { status: EndStatus::Abandoned })
        ));
    }
}

#[tokio::test]
async fn e5_every_key_has_ttl() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let check = |when: &str| {
        let keys = server.lines(&["KEYS", "*"]);
        for key in keys.iter().filter(|key| !key.ends_with("owner-seq")) {
            assert_ne!(server.lines(&["PTTL", key]), [":-1"], "{when}: {key}");
        }
    };
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    check("own");
    follow(&mut *other, &fresh()).await;
    check("follow");
    assert!(matches!(beat(&store, renew(1, flight)).await, BeatReply::Renewed { waiters: 1 }));
    check("renew");
    owner.finish(done(flight, Some(&[1; 5000]))).await.unwrap();
    check("finish");
    assert_eq!(server.lines(&["KEYS", "*:result:*"]).len(), 1);
    let flight = own(&mut *owner, &fresh()).await;
    check("own again");
    beat(
        &store,
        Beat::Release { key: key(1), flight: flight.id, token: None, status: EndStatus::Abandoned },
    )
    .await;
    check("release");
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
async fn g6_script_flush_between_steps() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let flush = || server.command(&["SCRIPT", "FLUSH"]);
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let mut heartbeat = store.heartbeat();
    let flight = own(&mut *owner, &fresh()).await;
    flush();
    let wait = fresh();
    follow(&mut *other, &wait).await;
    flush();
    let watch = Beat::Watch { key: key(1), join: wait.clone(), mark: LEASE };
    let replies = heartbeat.beat(&[renew(1, flight), watch]).await;
    assert!(
        matches!(
            &replies[..],
            [Ok(BeatReply::Renewed { waiters: 1 }), Ok(BeatReply::Watched(Joined::Follow { .. }))]
        ),
        "{replies:?}"
    );
    flush();
    assert!(matches!(owner.abandon(flight).await, Ok(Abandoned::Wanted { waiters: 1 })));
    flush();
    let finish = done(flight, Some(&[5; 9000]));
    assert_eq!(owner.finish(finish).await.unwrap(), Finished::Accepted);
    assert_eq!(pushed_end(&mut *other).await.2.unwrap().len(), 9000);
    flush();
    beat(
        &store,
        Beat::Release { key: key(1), flight: flight.id, token: None, status: EndStatus::Abandoned },
    )
    .await;
    flush();
    beat(&store, Beat::Leave { key: key(1), waiter: wait.waiter }).await;
    assert_eq!(store.errors(), []);
}

#[tokio::test]
async fn i2_dropped_futures_mix_no_answers_up() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).pool_size(1).connect().await.unwrap();
    for n in 0..8 {
        let mut session = store.session(key(n));
        let flight = own(&mut *session, &fresh()).await;
        session.finish(done(flight, Some(&[n; 64]))).await.unwrap();
    }
    for round in 0..500 {
        let (dropped, read) = ((round % 8) as u8, (round * 3 % 8) as u8);
        let mut session = store.session(key(dropped));
        // Polled once, so that it is sent; then dropped.
        assert!(session.fetch().now_or_never().is_none());
        let look = Join { known: 1, look_only: true, ..fresh() };
        assert!(session.join(look.clone()).now_or_never().is_none());
        let mut session = store.session(key(read));
        assert_eq!(session.fetch().await.unwrap().unwrap(), vec![read; 64], "{round}");
        match session.join(look).await.unwrap() {
            Joined::Done { record: Some(record), .. } => assert_eq!(record, vec![read; 64]),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(store.errors(), []);
}

#[tokio::test]
async fn i3_client_kill_heals() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut heartbeat = store.heartbeat();
    for round in 0..5 {
        let mut session = store.session(key(round));
        let flight = own(&mut *session, &fresh()).await;
        let replies = heartbeat.beat(&[renew(round, flight)]).await;
        assert!(matches!(replies[..], [Ok(_)]), "{round}: {replies:?}");
        session.finish(done(flight, Some(&[1; 5000]))).await.unwrap();
        for kind in ["normal", "pubsub"] {
            server.command(&["CLIENT", "KILL", "TYPE", kind]);
        }
    }
    assert_eq!(store.errors(), [], "idle connections that broke cost nobody an error");
    // Four for scripts, one for bodies, one for pushes, and the one that asks.
    let count = || server.command(&["CLIENT", "LIST"]).matches(" laddr=").count();
    eventually("the connections are back", async || {
        let mut session = store.session(key(99));
        let _ = session.fetch().await;
        let flight = FlightRef { token: 1, id: FlightId::random() };
        let _ = session.abandon(flight).await;
        count() >= 7
    })
    .await;
}

#[tokio::test]
async fn i5_idle_connections_that_the_server_closes() {
    let server = RedisServer::start_with(&["--timeout", "1"]);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut session = store.session(key(1));
    own(&mut *session, &fresh()).await;
    eventually("the server closed idle connections", async || {
        server.command(&["CLIENT", "LIST"]).matches(" laddr=").count() <= 2
    })
    .await;
    own(&mut *store.session(key(2)), &fresh()).await;
    assert_eq!(store.errors(), []);
}

#[tokio::test]
async fn i6_a_look_finds_what_no_push_said() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    let wait = fresh();
    follow(&mut *other, &wait).await;
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    owner.finish(done(flight, Some(b"answer"))).await.unwrap();
    let join = Join { known: flight.token, ..wait };
    let watch = Beat::Watch { key: key(1), join, mark: LEASE };
    assert!(matches!(beat(&store, watch).await,
        BeatReply::Watched(Joined::Done { flight: f, .. }) if f == flight));
    loop {
        if matches!(pushed(&mut *other).await, Pushed::Gap) {
            break;
        }
    }
}

#[tokio::test]
async fn i7_push_connection_resubscribes() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    let flight = own(&mut *owner, &fresh()).await;
    follow(&mut *other, &fresh()).await;
    for _ in 0..5 {
        eventually("somebody is subscribed", async || {
            server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]) != ":0\r\n"
        })
        .await;
        loop {
            if matches!(pushed(&mut *other).await, Pushed::Gap) {
                break;
            }
        }
    }
    owner.finish(done(flight, Some(b"answer"))).await.unwrap();
    assert_eq!(pushed_end(&mut *other).await.0, flight);
}

#[tokio::test]
async fn subscriptions_end_with_their_sessions() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let channels = || server.lines(&["PUBSUB", "CHANNELS", "*"]).len();
    let mut sessions = Vec::new();
    for n in 0..20 {
        own(&mut *store.session(key(n)), &fresh()).await;
        for _ in 0..2 {
            let mut session = store.session(key(n));
            follow(&mut *session, &fresh()).await;
            sessions.push(session);
        }
    }
    assert_eq!(channels(), 20);
    sessions.truncate(21);
    eventually("half of them are gone", async || channels() == 11).await;
    drop(store);
    let connections = || server.command(&["CLIENT", "LIST"]).matches(" laddr=").count();
    assert!(connections() > 1);
    drop(sessions);
    eventually("all connections are closed", async || connections() == 1).await;
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

#[tokio::test]
async fn scripting_and_version_are_checked() {
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
async fn q3_a_dead_store_costs_little_and_comes_back() {
    let mut server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    own(&mut *store.session(key(0)), &fresh()).await;
    server.kill();
    let mut failures = 0;
    while store.state() == StoreState::Ok {
        assert!(store.session(key(1)).join(fresh()).await.is_err());
        failures += 1;
        assert!(failures <= 3);
    }
    // Past several probes, which no request waits for. What a slow machine adds to
    // one or another is not ours.
    let (mut times, end) = (Vec::new(), Instant::now() + Duration::from_millis(1500));
    while Instant::now() < end {
        let began = Instant::now();
        let error = store.session(key(1)).join(fresh()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Open);
        times.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    times.sort();
    assert!(times[times.len() * 99 / 100] < Duration::from_millis(5), "{times:?}");
    let errors: u64 = store.errors().iter().map(|(_, count)| count).sum();
    assert!(errors > failures);
    server.restart();
    eventually("the store is back", async || store.session(key(2)).join(fresh()).await.is_ok())
        .await;
    assert_eq!(store.state(), StoreState::Ok);
    let (mut owner, mut other) = (store.session(key(3)), store.session(key(3)));
    let flight = own(&mut *owner, &fresh()).await;
    follow(&mut *other, &fresh()).await;
    owner.finish(done(flight, Some(b"pushed"))).await.unwrap();
    // The push connection may still be on its way: then the word is to look.
    match pushed(&mut *other).await {
        Pushed::Ended { flight: f, .. } => assert_eq!(f, flight),
        Pushed::Gap => {
            let look = Join { known: flight.token, look_only: true, ..fresh() };
            assert!(matches!(other.join(look).await, Ok(Joined::Done { .. })));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn i4_a_silent_server_costs_the_limit() {
    let (_listener, url) = silent_server();
    let limit = Duration::from_millis(50);
    let store = RedisStore::builder(url).operation_limit(limit).connect_lazy().unwrap();
    for _ in 0..3 {
        let began = Instant::now();
        let error = store.session(key(1)).join(fresh()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::TimedOut);
        assert!(began.elapsed() < limit * 4, "{:?}", began.elapsed());
    }
    assert_eq!(store.state(), StoreState::Degraded);
    let began = Instant::now();
    let flight = FlightRef { token: 1, id: FlightId::random() };
    let replies = store.heartbeat().beat(&[renew(1, flight), renew(2, flight)]).await;
    assert!(matches!(replies[..], [Err(_), Err(_)]));
    assert!(began.elapsed() < limit * 4, "{:?}", began.elapsed());
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
