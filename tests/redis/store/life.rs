//! What becomes of flights where all is in order.

use tower_singleflight::{
    FlightId, FlightRef, RedisStore, Store,
    store::{
        Abandoned, Beat, BeatReply, EndStatus, Finish, Finished, Join, Joined, Loss, Pushed,
        StoreState,
    },
};

use super::{LEASE, beat, done, follow, fresh, key, key_text, own, pushed, pushed_end, renew};
use crate::support::{eventually, redis_server::RedisServer};

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
