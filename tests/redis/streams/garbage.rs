//! Whatever lies under a key's names: every step answers by its rules or takes it for
//! nothing, and the key is owned and works after it.

use std::time::Duration;

use bb8_redis::redis;
use bytes::Bytes;
use proptest::test_runner::{Config, TestRunner};
use tower_singleflight::{
    FlightRef, RedisStore, Store,
    store::{Beat, EndStatus, Finish, Finished, Join, Joined, Session},
};

use super::{
    LEASE, append, appended, finished, fresh, is_streamed, key, name,
    plants::{flight, garbage, put, waiter},
    seal, sealed,
    support::redis_server::RedisServer,
    ttls,
};

async fn beat(store: &RedisStore, beat: Beat) {
    let replies = store.heartbeat().beat(std::slice::from_ref(&beat)).await;
    assert!(matches!(replies[..], [Ok(_)]), "{beat:?}: {replies:?}");
}

fn ends(flight: FlightRef, status: EndStatus, record: Option<&[u8]>) -> Finish {
    let record = record.map(Bytes::copy_from_slice);
    Finish { status, record, seal: None, ..sealed(flight, 0) }
}

/// One step, which must not fail.
async fn step(store: &RedisStore, session: &mut dyn Session, what: u8, n: u8) {
    let flight = flight(n);
    let join = Join { flight: flight.id, waiter: waiter(), ..fresh() };
    let known = Join { known: flight.token, ..fresh() };
    let reuse = Join { reuse: Duration::from_secs(3600), ..fresh() };
    let look = Join { look_only: true, ..known.clone() };
    match what {
        0 => drop(session.join(join).await.expect("join")),
        1 => drop(session.join(known).await.expect("join of one who knows")),
        2 => drop(session.join(reuse).await.expect("join that reuses")),
        3 => drop(session.join(look).await.expect("look")),
        4 => beat(store, Beat::Renew { key: key(1), flight, lease: LEASE }).await,
        5 => beat(store, Beat::Watch { key: key(1), join: look, mark: LEASE }).await,
        6 => {
            let status = if n > 1 { EndStatus::Abandoned } else { EndStatus::TimedOut };
            let token = n.is_multiple_of(2).then_some(flight.token);
            beat(store, Beat::Release { key: key(1), flight: flight.id, token, status }).await;
        }
        7 => beat(store, Beat::Leave { key: key(1), waiter: waiter() }).await,
        8 => _ = session.append(append(flight, u64::from(n), &[b"a", b"b"])).await.expect("append"),
        9 => _ = session.finish(sealed(flight, u64::from(n))).await.expect("sealed finish"),
        10 => {
            let record = [None, Some(&b"small"[..]), Some(&[1; 5000]), None][usize::from(n)];
            let status = [EndStatus::Done, EndStatus::Done, EndStatus::Done, EndStatus::Failed];
            let finish = ends(flight, status[usize::from(n)], record);
            _ = session.finish(finish).await.expect("finish");
        }
        11 => drop(session.abandon(flight).await.expect("abandon")),
        12 => session.forget().await.expect("forget"),
        _ => {
            session.fetch().await.expect("fetch");
            session.read(flight, u64::from(n)).await.expect("read");
            session.listen(flight, LEASE).await.expect("listen");
        }
    }
}

/// The key is owned, whatever it was; where not at once, then since a record says so
/// that goes by itself.
async fn owned(server: &RedisServer, store: &RedisStore) -> FlightRef {
    let meta = name("meta", 1);
    for _ in 0..2 {
        let join = fresh();
        match store.session(key(1)).join(join.clone()).await.expect("join") {
            Joined::Own { token } => return FlightRef { token, id: join.flight },
            Joined::Follow { left, .. }
            | Joined::Private { left }
            | Joined::Probe { left }
            | Joined::Quarantined { left } => {
                let ttl: i64 = server.lines(&["PTTL", &meta])[0][1..].parse().unwrap();
                assert!(ttl >= 0, "nothing ends it");
                let most = Duration::from_millis(u64::try_from(ttl).unwrap() + 1500);
                assert!(left <= most, "{left:?} of {most:?}");
            }
            Joined::OtherFormat => {
                assert_ne!(server.lines(&["PTTL", &meta]), [":-1"], "nothing ends it");
            }
            other => panic!("{other:?}"),
        }
        server.command(&["DEL", &meta]);
    }
    panic!("not owned");
}

/// It does all that a flight does.
async fn works(server: &RedisServer, store: &RedisStore, flight: FlightRef) {
    let (mut owner, mut other) = (store.session(key(1)), store.session(key(1)));
    match other.join(Join { waiter: waiter(), ..fresh() }).await.expect("join") {
        Joined::Follow { flight: followed, pieces: 0, left, .. } => {
            assert_eq!(followed, flight);
            assert!(left <= LEASE, "{left:?}");
        }
        joined => panic!("{joined:?}"),
    }
    beat(store, Beat::Renew { key: key(1), flight, lease: LEASE }).await;
    appended(&mut *owner, append(flight, 0, &[b"a", b"b"])).await;
    let read = other.read(flight, 0).await.unwrap();
    assert_eq!(read.pieces, [Bytes::from("a"), Bytes::from("b")]);
    finished(&mut *owner, Finish { seal: Some(seal(2)), ..sealed(flight, 2) }).await;
    assert!(is_streamed(&mut *other, flight).await);
    ttls(server, "after a stream");
    // Nobody waits for the next one: all marks are gone.
    let join = Join { known: flight.token, ..fresh() };
    owner.join(join).await.expect("a look at it");
    let flight = owned_next(&mut *owner).await;
    assert_eq!(
        owner.finish(ends(flight, EndStatus::Done, None)).await.unwrap(),
        Finished::Accepted,
        "nobody wants it"
    );
    let flight = owned_next(&mut *owner).await;
    let record = vec![7; 5000];
    finished(&mut *owner, ends(flight, EndStatus::Done, Some(&record))).await;
    assert_eq!(owner.fetch().await.unwrap().as_deref(), Some(&record[..]));
    assert!(matches!(
        other.join(super::look(flight)).await,
        Ok(Joined::Done { streamed: false, .. })
    ));
    ttls(server, "after a record");
}

async fn owned_next(session: &mut dyn Session) -> FlightRef {
    super::own(session, &fresh()).await
}

#[test]
fn k8_whatever_lies_there_a_flight_works() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = RedisServer::start();
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let (store, redis) = runtime.block_on(async {
        let store = RedisStore::connect(&server.unix_url()).await.unwrap();
        let client = redis::Client::open(server.unix_url()).unwrap();
        (store, client.get_multiplexed_async_connection().await.unwrap())
    });
    let run = TestRunner::new(config).run(&garbage(), |garbage| {
        let mut redis = redis.clone();
        runtime.block_on(async {
            server.command(&["FLUSHALL"]);
            let staged = format!("{}:{}", name("result", 1), flight(2).id);
            for (name, plant) in [
                (&name("meta", 1), &garbage.meta),
                (&name("waiters", 1), &garbage.waiters),
                (&name("result", 1), &garbage.result),
                (&name("stream", 1), &garbage.stream),
                (&"ai:flight:owner-seq".to_owned(), &garbage.seq),
                (&staged, &garbage.staged),
            ] {
                put(&mut redis, name, plant).await;
            }
            let mut session = store.session(key(1));
            for (what, n) in &garbage.steps {
                step(&store, &mut *session, *what, *n).await;
            }
            let flight = owned(&server, &store).await;
            if garbage.result.ttl.is_none() || garbage.staged.ttl.is_none() {
                // What no step has written, none gives an end.
                server.command(&["DEL", &name("result", 1), &staged]);
            }
            works(&server, &store, flight).await;
            assert_eq!(store.errors(), []);
        });
        Ok(())
    });
    run.unwrap();
}
