//! The Redis store behind sentinels.

use std::time::{Duration, Instant};

use crate::steps::{fresh, key};
use crate::support::{eventually, redis_server::silent_server, rights, sentinels::Fleet};
use tower_singleflight::{
    FlightRef, RedisStore, Store,
    store::{EndStatus, Finish, Finished, Join, Joined, Pushed, StoreErrorKind},
};

async fn owns(store: &RedisStore, n: u8) -> bool {
    matches!(store.session(key(n)).join(fresh()).await, Ok(Joined::Own { .. }))
}

/// What is owned now is followed, and its end is heard by its push: unless a connection
/// is on its way to the master just then.
async fn is_pushed(one: &RedisStore, other: &RedisStore, n: u8) -> bool {
    let (mut owner, mut follower) = (one.session(key(n)), other.session(key(n)));
    let join = fresh();
    let Ok(Joined::Own { token }) = owner.join(join.clone()).await else { return false };
    let flight = FlightRef { token, id: join.flight };
    match follower.join(fresh()).await {
        Ok(Joined::Follow { flight: of, .. }) if of == flight => {}
        _ => return false,
    }
    let finish = Finish {
        flight,
        status: EndStatus::Done,
        record: Some(b"answer"[..].into()),
        seal: None,
        fresh: Duration::ZERO,
        keep: Duration::from_secs(30),
        report: String::new(),
    };
    if !matches!(owner.finish(finish).await, Ok(Finished::Accepted)) {
        return false;
    }
    loop {
        let pushed = tokio::time::timeout(Duration::from_secs(5), follower.pushed()).await;
        match pushed.expect("a push") {
            Pushed::Ended { flight: of, .. } => {
                assert_eq!(of, flight);
                return true;
            }
            Pushed::Gap => {
                let look = Join { known: flight.token, look_only: true, ..fresh() };
                if !matches!(follower.join(look).await, Ok(Joined::Follow { .. })) {
                    return false;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The old master lives on as a replica: nobody talks to it any more.
#[tokio::test]
async fn a_demoted_master_is_left() {
    let fleet = Fleet::start();
    let url = fleet.url("");
    let stores =
        [RedisStore::connect(&url).await.unwrap(), RedisStore::connect(&url).await.unwrap()];
    assert!(is_pushed(&stores[0], &stores[1], 1).await);
    let before = fleet.master().expect("a master");
    fleet.fail_over();
    // The sentinels leave the old one in office for up to ten seconds.
    let end = Instant::now() + Duration::from_secs(20);
    let old = || fleet.servers.iter().find(|server| server.port() == before).expect("it lives");
    while !old().lines(&["ROLE"]).contains(&"slave".to_owned()) {
        assert!(Instant::now() < end, "it is still the master");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let began = Instant::now();
    for (n, store) in (2..).zip(&stores) {
        eventually("keys are owned again", async || owns(store, n).await).await;
    }
    println!("owned again after {:?}", began.elapsed());
    for (n, [one, other]) in (10..).zip([[0, 1], [1, 0]]) {
        let [one, other] = [&stores[one], &stores[other]];
        eventually("pushes", async || is_pushed(one, other, n).await).await;
    }
    let clients = old().lines(&["CLIENT", "LIST", "TYPE", "pubsub"]).join("\n");
    // The sentinels listen there too.
    let ours = clients.lines().filter(|line| !line.contains("name=sentinel-"));
    assert_eq!(ours.count(), 0, "{clients}");
}

/// Without one of three sentinels, and with one that says nothing, all goes on.
#[tokio::test]
async fn sentinels_that_are_gone_hold_up_nothing() {
    let mut fleet = Fleet::start();
    let (_listener, silent) = silent_server();
    let silent = silent.rsplit('@').next().unwrap().trim_end_matches('/').to_owned();
    fleet.kill_sentinel(0);
    let url = fleet.url("").replace("://", &format!("://{silent},"));
    let began = Instant::now();
    let store = RedisStore::connect(&url).await.unwrap();
    assert!(owns(&store, 1).await);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());

    let error = RedisStore::connect(&fleet.url("").replace("/main", "/other")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Connect, "{error}");
    assert!(error.to_string().contains("other"), "{error}");
    let unknown = RedisStore::connect(&fleet.url("user:hunter2@")).await.unwrap_err();
    assert_eq!(unknown.kind(), StoreErrorKind::Denied, "{unknown}");
    assert!(!unknown.to_string().contains("hunter2"), "{unknown}");
    fleet.kill_sentinel(1);
    fleet.kill_sentinel(2);
    let error = RedisStore::connect(&fleet.url("")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Connect, "{error}");
}

/// The sentinels' user and password are others than the server's.
#[tokio::test]
async fn both_sides_ask_who_is_there() {
    let fleet = Fleet::start();
    fleet.require_password("sentinels");
    let all = [&rights::of_the_guide()[..], &["+role".to_owned(), "+select".to_owned()]].concat();
    fleet.servers[0].set_user("flight", &all);
    let url = format!("{}/3", fleet.url(&format!("flight:{}@", rights::PASSWORD)));
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Denied, "{error}");
    let store = RedisStore::builder(&url).sentinel_login("", "sentinels").connect().await.unwrap();
    assert!(owns(&store, 1).await);
    fleet.servers[0].set_user("flight", &["-role".to_owned()]);
    let builder = RedisStore::builder(&url).sentinel_login("", "sentinels");
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("the right to ROLE"), "{error}");
    let misplaced = RedisStore::builder("redis://h/").sentinel_login("", "x").connect_lazy();
    assert_eq!(misplaced.unwrap_err().kind(), StoreErrorKind::Setting);
}
