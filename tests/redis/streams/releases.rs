//! Two releases on one server, whose formats differ: neither touches the other's
//! flights, serves their answers, or waits for them.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{
    Config, FlightId, HttpKey, KeyDigest, RedisStore, SingleFlightLayer, Store, StoreDown,
    WaiterId,
    store::{Beat, BeatReply, Joined, Loss},
};

use super::{LEASE, fresh, key, name, own, renew, support::redis_server::RedisServer};

/// The steps of a release like this one, but with another format.
struct Other<'a> {
    server: &'a RedisServer,
    key: KeyDigest,
    format: u8,
}

impl Other<'_> {
    fn name(&self, what: &str) -> String {
        format!("ai:flight:{what}:{{{}}}", self.key)
    }

    fn run(&self, script: &str, keys: &[&str], args: &[&str]) -> Vec<String> {
        let shared = concat!(
            include_str!("../../../src/store/redis/scripts/head.lua"),
            include_str!("../../../src/store/redis/scripts/record.lua"),
        );
        let other = shared.replace("FORMAT = '1'", &format!("FORMAT = '{}'", self.format));
        assert_ne!(shared, other);
        let script = format!("{other}{script}");
        let names: Vec<String> = keys
            .iter()
            .map(|what| match *what {
                "seq" => "ai:flight:owner-seq".to_owned(),
                what => self.name(what),
            })
            .collect();
        let count = keys.len().to_string();
        let mut command = vec!["EVAL", &script, &count];
        command.extend(names.iter().map(String::as_str));
        command.extend(args);
        let lines = self.server.lines(&command);
        assert!(!lines[0].starts_with('-'), "{lines:?}");
        lines
    }

    fn join(&self, flight: FlightId) -> Vec<String> {
        let (flight, waiter) = (flight.to_string(), WaiterId::random().to_string());
        self.run(
            concat!(
                include_str!("../../../src/store/redis/scripts/join_first.lua"),
                include_str!("../../../src/store/redis/scripts/join.lua"),
            ),
            &["meta", "waiters", "result", "stream", "seq"],
            &[&flight, &waiter, "0", "3000", "0", "30000", "", &self.channels()],
        )
    }

    fn channels(&self) -> String {
        "ai:flight:push:0:".to_owned()
    }

    fn append(&self, token: &str, flight: FlightId, piece: &str) -> Vec<String> {
        self.run(
            include_str!("../../../src/store/redis/scripts/append.lua"),
            &["meta", "stream"],
            &[
                token,
                &flight.to_string(),
                "0",
                "0",
                "30000",
                "16384",
                &self.channels(),
                "PUBLISH",
                piece,
            ],
        )
    }

    fn renew(&self, token: &str, flight: FlightId) -> Vec<String> {
        self.run(
            concat!(
                include_str!("../../../src/store/redis/scripts/renew_first.lua"),
                include_str!("../../../src/store/redis/scripts/renew.lua"),
            ),
            &["meta", "waiters", "stream"],
            &[token, &flight.to_string(), "3000"],
        )
    }

    fn finish(&self, token: &str, flight: FlightId, body: &str) -> Vec<String> {
        let flight = flight.to_string();
        let channels = self.channels();
        self.run(
            concat!(
                include_str!("../../../src/store/redis/scripts/finish_first.lua"),
                include_str!("../../../src/store/redis/scripts/finish.lua"),
            ),
            &["meta", "waiters", "stream", "result"],
            &[token, &flight, "done", "30000", &channels, "inline", "30000", body],
        )
    }

    /// All that lies there, byte for byte.
    fn dump(&self) -> Vec<String> {
        let kinds = ["meta", "waiters", "result", "stream"];
        kinds.iter().map(|what| self.server.command(&["DUMP", &self.name(what)])).collect()
    }
}

/// What this release's steps do where another's flight is, runs or has ended.
#[tokio::test]
async fn k8_another_formats_flight_is_left_alone() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    for (n, format) in [0, 2, 255].into_iter().enumerate() {
        let n = n as u8 + 1;
        let other = Other { server: &server, key: key(n), format };
        let id = FlightId::random();
        let [token] = &other.join(id)[..] else { panic!("not granted") };
        assert_eq!(other.append(token, id, "piece")[0], "OK");
        let flight = tower_singleflight::FlightRef { token: token.parse().unwrap(), id };
        for ended in [false, true] {
            if ended {
                assert_eq!(other.finish(token, id, "its answer"), ["OK"]);
            }
            let before = other.dump();
            let mut session = store.session(key(n));
            for known in [0, flight.token, flight.token + 1] {
                for look_only in [false, true] {
                    let join = tower_singleflight::store::Join {
                        known,
                        look_only,
                        reuse: Duration::from_secs(30),
                        ..fresh()
                    };
                    let joined = session.join(join).await;
                    assert!(matches!(joined, Ok(Joined::OtherFormat)), "{joined:?}");
                }
            }
            assert!(matches!(renew(&store, n, flight).await, BeatReply::Lost(Loss::Missing)));
            session.forget().await.unwrap();
            let leave = Beat::Leave { key: key(n), waiter: WaiterId::random() };
            assert!(store.heartbeat().beat(&[leave]).await[0].is_ok());
            assert_eq!(other.dump(), before, "{format} {ended}");
        }
    }
    assert_eq!(store.errors(), []);
}

/// And the other way about: a release with another format leaves ours alone.
#[tokio::test]
async fn k8_another_format_leaves_ours_alone() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut session = store.session(key(1));
    let flight = own(&mut *session, &fresh()).await;
    for format in [0, 2, 255] {
        let other = Other { server: &server, key: key(1), format };
        let before = other.dump();
        let id = FlightId::random();
        assert_eq!(other.join(id), ["OTHER"]);
        let token = flight.token.to_string();
        for flight in [id, flight.id] {
            assert_eq!(other.renew(&token, flight), ["MISSING"]);
            assert_eq!(other.append(&token, flight, "x"), ["MISSING"]);
            assert_eq!(other.finish(&token, flight, "x"), ["MISSING"]);
        }
        assert_eq!(other.dump(), before);
    }
    assert!(matches!(renew(&store, 1, flight).await, BeatReply::Renewed { waiters: 0 }));
    // No record that its own release would not end is waited for.
    server.command(&["HSET", &name("meta", 1), "format", "2"]);
    server.command(&["PERSIST", &name("meta", 1)]);
    own(&mut *session, &fresh()).await;
}

/// Callers of this release, while another's flight stands under their very key: one run
/// for each process, at once, and nothing of the other's.
#[tokio::test]
async fn k8_callers_do_not_wait_for_another_formats_flight() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let config = Config::builder().store_down(StoreDown::Reject).build().unwrap();
    let layer = SingleFlightLayer::new(HttpKey::new()).store(store).namespace("n").config(config);
    let counted = Arc::clone(&runs);
    let service = layer.layer(service_fn(move |_: Request<Full<Bytes>>| {
        let run = counted.fetch_add(1, SeqCst);
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(format!("ours {run}"))))
        }
    }));
    let call = async || {
        let request = Request::get("http://a.test/a").body(Full::default()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap().to_bytes()
    };
    let key = async {
        loop {
            match layer.flights()[..] {
                [ref flight] => break flight.key,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let (first, key) = tokio::join!(call(), key);
    assert_eq!(first, "ours 0");
    while !layer.flights().is_empty() {
        tokio::task::yield_now().await;
    }
    server.command(&["FLUSHALL"]);

    let other = Other { server: &server, key, format: 2 };
    let id = FlightId::random();
    let [token] = &other.join(id)[..] else { panic!("not granted") };
    let before = other.dump();
    let began = std::time::Instant::now();
    let answers = join_all((0..10).map(|_| call())).await;
    assert!(answers.iter().all(|answer| answer == "ours 1"), "{answers:?}");
    assert!(began.elapsed() < LEASE, "nobody waited for a lease: {:?}", began.elapsed());
    assert_eq!(other.dump(), before);
    assert_eq!(other.finish(token, id, "theirs"), ["OK"]);
    assert_eq!(call().await, "ours 2");
    let stats = layer.stats();
    assert_eq!((stats.bad_records, stats.failed, stats.owner), (2, 0, 3));
    assert_eq!(layer.store_errors(), []);
}
