//! Lines that break, scripts that are forgotten, servers that are silent.

use std::time::{Duration, Instant};

use tower_singleflight::{
    FlightId, FlightRef, RedisStore, Store,
    store::{
        Abandoned, Beat, BeatReply, EndStatus, Finished, Join, Joined, Pushed, StoreErrorKind,
        StoreState,
    },
};

use super::{LEASE, ask_and_go, beat, done, follow, fresh, key, own, pushed, pushed_end, renew};
use crate::{
    proxy::Proxy,
    support::{
        eventually,
        redis_server::{RedisServer, silent_server},
    },
};

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
    // All connections are there.
    store.session(key(0)).fetch().await.unwrap();
    let before = [server.calls("get"), server.scripts()];
    for round in 0..500 {
        let (dropped, read) = ((round % 8) as u8, (round * 3 % 8) as u8);
        let mut session = store.session(key(dropped));
        ask_and_go(session.fetch()).await;
        let look = Join { known: 1, look_only: true, ..fresh() };
        ask_and_go(session.join(look.clone())).await;
        let mut session = store.session(key(read));
        assert_eq!(session.fetch().await.unwrap().unwrap(), vec![read; 64], "{round}");
        match session.join(look).await.unwrap() {
            Joined::Done { record: Some(record), .. } => assert_eq!(record, vec![read; 64]),
            other => panic!("{other:?}"),
        }
    }
    // What was dropped was sent, and answered to nobody.
    let sent = [server.calls("get") - before[0], server.scripts() - before[1]];
    assert_eq!(sent, [1000, 1000]);
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

/// What is between, and forgets who is silent, hears of all connections.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn i5_idle_connections_are_kept_alive() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut session = store.session(key(1));
    let flight = own(&mut *session, &fresh()).await;
    follow(&mut *store.session(key(1)), &fresh()).await;
    session.fetch().await.unwrap();
    let mut heartbeat = store.heartbeat();
    heartbeat.beat(&[renew(1, flight)]).await.remove(0).unwrap();
    // For each connection to the server: the timer that runs, in hundredths of a second.
    let there = format!("0100007F:{:04X}", server.port());
    let timers = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let rows = rows.filter(|row| row[2] == there && row[3] == "01");
        let timers = rows.map(|row| row[5].split_once(':').unwrap()).map(|(kind, when)| {
            let when = u64::from_str_radix(when, 16).unwrap();
            (kind == "02").then(|| Duration::from_millis(10 * when))
        });
        timers.collect::<Vec<_>>()
    };
    eventually("all seven are kept alive", async || {
        let soon = |timer: &Option<Duration>| timer.is_some_and(|when| when.as_secs() <= 30);
        let timers = timers();
        timers.len() == 7 && timers.iter().all(soon)
    })
    .await;
}

/// A NAT has forgotten them in spite of that, say.
#[tokio::test]
async fn i5_a_connection_that_is_gone_without_a_word_costs_a_limit() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port()).await;
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    own(&mut *store.session(key(0)), &fresh()).await;
    let count = || server.command(&["CLIENT", "LIST"]).matches(" laddr=").count();
    eventually("four for scripts are there, and one for pushes", async || count() >= 6).await;
    proxy.forget();
    let asked = fresh();
    eventually("it answers again", async || {
        store.session(key(1)).join(asked.clone()).await.is_ok()
    })
    .await;
    // One for each at most; those that nobody needed meanwhile were not found out.
    let errors = store.errors();
    let timed_out = errors.iter().find(|(kind, _)| *kind == StoreErrorKind::TimedOut);
    assert!((1..=4).contains(&timed_out.unwrap().1), "{errors:?}");
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
