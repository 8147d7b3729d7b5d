//! The layer on a real server, in one process.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::support::redis_server::RedisServer;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_singleflight::{
    Config, Failure, FailureKind, FlightPhase, HttpKey, RedisStore, SingleFlightLayer,
    store::StoreErrorKind,
};

type Body = Full<bytes::Bytes>;

fn get(path: &str) -> Request<Body> {
    Request::get(format!("http://a.test{path}")).body(Body::default()).unwrap()
}

/// An inner service with three awaits, that takes `time`.
fn inner(
    calls: &Arc<AtomicUsize>,
    time: Duration,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let calls = Arc::clone(calls);
    service_fn(move |_| {
        calls.fetch_add(1, SeqCst);
        async move {
            tokio::task::yield_now().await;
            tokio::time::sleep(time).await;
            tokio::task::yield_now().await;
            Ok(Response::new(Body::default()))
        }
    })
}

/// How often the server ran each command since it was asked to count anew, also out of
/// scripts; and how many bytes came in.
fn costs(server: &RedisServer) -> (Vec<(String, u64)>, u64) {
    let count = |line: &String| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let own = ["info", "config|resetstat", "client|setinfo"].contains(&command);
        let calls = rest.split(',').next()?.parse().ok()?;
        (!own).then(|| (command.to_owned(), calls))
    };
    let lines = server.lines(&["INFO", "commandstats"]);
    let mut commands: Vec<_> = lines.iter().filter_map(count).collect();
    commands.sort();
    let lines = server.lines(&["INFO", "stats"]);
    let bytes = lines.iter().find_map(|line| line.strip_prefix("total_net_input_bytes:"));
    (commands, bytes.unwrap().trim().parse().unwrap())
}

/// What is asked of the server, to the last command: who adds one here says why.
#[tokio::test]
async fn what_a_flight_costs_the_server() {
    const FLIGHTS: u64 = 20;
    let server = RedisServer::start();
    let config = Config::builder().delivery(tower_singleflight::Delivery::Buffered);
    // What a process holds costs no word at all.
    let reuse = config.clone().reuse(Duration::from_secs(20)).local_results(0).build().unwrap();
    let config = config.build().unwrap();
    let store = || async { RedisStore::connect(&server.url()).await.unwrap() };
    let [plain, keeping, reusing] = [store().await, store().await, store().await];
    let layer = |store, config: &Config| {
        SingleFlightLayer::new(HttpKey::new()).store(store).config(config.clone())
    };
    let answers = |bytes: usize| {
        service_fn(move |_: Request<Body>| async move {
            Ok::<_, Infallible>(Response::new(Body::from(vec![b'a'; bytes])))
        })
    };
    let (plain, keeping, reusing) =
        (layer(plain, &config), layer(keeping, &reuse), layer(reusing, &reuse));
    for (layer, bytes, path, expected, most) in [
        // Nobody elsewhere waits: the record goes along, since it is small.
        (
            &plain,
            64,
            "small",
            &[("evalsha", 2), ("hlen", 1), ("hmget", 1), ("hset", 2), ("pexpire", 2)][..],
            1500,
        ),
        // Of a large one nothing is sent.
        (&plain, 1 << 20, "large", &[("evalsha", 2), ("hgetall", 1), ("hlen", 2)], 1024),
        (&keeping, 64, "kept", &[("evalsha", 2), ("hlen", 1), ("hmget", 1), ("hset", 2)], 1500),
        (&reusing, 64, "kept", &[("evalsha", 1), ("getrange", 1), ("hmget", 1)], 700),
    ] {
        let service = layer.layer(answers(bytes));
        let ask = |n: u64| service.clone().oneshot(get(&format!("/{path}/{n}")));
        let idle = async || {
            crate::support::eventually("the store knows", async || layer.flights().is_empty())
                .await;
        };
        if path != "kept" || !std::ptr::eq(layer, &reusing) {
            // The connections are there, and the scripts.
            ask(FLIGHTS).await.unwrap();
            idle().await;
        }
        server.command(&["CONFIG", "RESETSTAT"]);
        let (_, before) = costs(&server);
        let (_, twice) = costs(&server);
        for n in 0..FLIGHTS {
            ask(n).await.unwrap();
            idle().await;
        }
        let (commands, after) = costs(&server);
        println!("{path} {bytes}: {commands:?}, {} bytes", after - twice);
        let calls = |name: &str| {
            let found = commands.iter().find(|(command, _)| command == name);
            found.map_or(0, |(_, calls)| *calls)
        };
        for (command, each) in expected {
            assert_eq!(calls(command), FLIGHTS * each, "{path} {bytes}: {command}");
        }
        for command in ["subscribe", "unsubscribe", "publish", "xadd", "zcard", "eval"] {
            assert_eq!(calls(command), 0, "{path} {bytes}: {command}");
        }
        let bytes_each = (after - twice - (twice - before)) / FLIGHTS;
        assert!(bytes_each < most, "{path} {bytes}: {bytes_each} bytes");
    }
}

/// Where the process does not hold it; also where the answer is fresh for less than the
/// setting would use it.
#[tokio::test]
async fn c14_an_answer_that_is_used_again_costs_one_script() {
    let server = RedisServer::start();
    let calls = Arc::default();
    let config = Config::builder().reuse(Duration::from_secs(20)).local_results(0).build().unwrap();
    let [here, there] = [(), ()].map(|()| {
        let store = RedisStore::builder(server.url()).connect_lazy().unwrap();
        SingleFlightLayer::new(HttpKey::new()).store(store).config(config.clone())
    });
    let inner = inner(&calls, Duration::ZERO).map_response(|mut response: Response<Body>| {
        response.headers_mut().insert("cache-control", "max-age=10".parse().unwrap());
        response
    });
    here.layer(inner.clone()).oneshot(get("/")).await.unwrap();
    crate::support::eventually("the store knows", async || here.flights().is_empty()).await;
    let service = there.layer(inner);
    service.clone().oneshot(get("/")).await.unwrap();
    for _ in 0..3 {
        let before = server.scripts();
        service.clone().oneshot(get("/")).await.unwrap();
        assert_eq!(server.scripts(), before + 1);
    }
    assert_eq!(calls.load(SeqCst), 1);
}

/// No guard of a map is held while a task waits.
#[tokio::test(flavor = "current_thread")]
async fn c6_a_thousand_keys_at_once_on_one_thread() {
    let server = RedisServer::start();
    let calls = Arc::default();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let layer = SingleFlightLayer::new(HttpKey::new()).store(store);
    let service = layer.layer(inner(&calls, Duration::from_millis(5)));
    let began = Instant::now();
    let asks = (0..1000).map(|n| service.clone().oneshot(get(&format!("/{n}"))));
    assert!(join_all(asks).await.into_iter().all(|answer| answer.is_ok()));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(calls.load(SeqCst), 1000);
}

/// Leases as short as their beats, given up at any moment of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e4_nothing_is_renewed_after_its_end() {
    const LEASE: Duration = Duration::from_millis(100);
    let server = RedisServer::start();
    let calls = Arc::default();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let config = Config::builder().lease(LEASE).heartbeat(LEASE / 20).retention(LEASE * 2);
    let layer = SingleFlightLayer::new(HttpKey::new()).store(store).config(config.build().unwrap());
    let service = layer.layer(inner(&calls, Duration::from_millis(1)));
    for batch in 0..100 {
        let asks = (0..100).map(|n| {
            let ask = service.clone().oneshot(get(&format!("/{batch}/{n}")));
            // Every third caller leaves somewhere in the middle.
            let patience = if n % 3 == 0 { Duration::from_micros(n * 30) } else { LEASE * 100 };
            tokio::spawn(tokio::time::timeout(patience, ask))
        });
        join_all(asks).await;
    }
    crate::support::eventually("all flights are over", async || layer.flights().is_empty()).await;
    crate::support::eventually("nothing is left", async || {
        let keys = server.lines(&["KEYS", "*"]);
        keys.iter().all(|key| key.ends_with("owner-seq"))
    })
    .await;
    // The two looks see no script between them, but for those on their way.
    crate::support::eventually("no renewal goes on", async || {
        let before = server.scripts();
        tokio::time::sleep(LEASE).await;
        server.scripts() == before
    })
    .await;
    let before = server.scripts();
    tokio::time::sleep(LEASE * 5).await;
    assert_eq!(server.scripts(), before, "a hundred beats later");
}

type Process = (SingleFlightLayer<HttpKey>, RedisStore);

/// A layer with a store of its own, as another process would have it.
async fn process(server: &RedisServer, config: Config) -> Process {
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let layer = SingleFlightLayer::new(HttpKey::new()).store(store.clone()).config(config);
    (layer, store)
}

fn quick() -> Config {
    let lease = Duration::from_millis(600);
    Config::builder().lease(lease).retention(lease * 2).build().unwrap()
}

/// Waiting holds up no renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i1_two_hundred_leases_beside_two_hundred_followers() {
    let server = RedisServer::start();
    let calls = Arc::<AtomicUsize>::default();
    let lease = Duration::from_millis(1500);
    let config = Config::builder().lease(lease).build().unwrap();
    let [(one, _), (other, _)] =
        [process(&server, config.clone()).await, process(&server, config).await];
    let (open, gate) = tokio::sync::watch::channel(false);
    let counted = Arc::clone(&calls);
    let inner = service_fn(move |_| {
        counted.fetch_add(1, SeqCst);
        let mut gate = gate.clone();
        async move {
            gate.wait_for(|open| *open).await.unwrap();
            Ok::<_, Infallible>(Response::new(Body::default()))
        }
    });
    let [owners, followers] = [one.layer(inner.clone()), other.layer(inner)];
    let ask = |service: &tower_singleflight::SingleFlight<_, _>, n| {
        tokio::spawn(Clone::clone(service).oneshot(get(&format!("/{n}"))))
    };
    // In steps: not more at once than a busy machine can let join in time.
    let mut asked = Vec::new();
    for (layer, service, phase) in
        [(&one, &owners, FlightPhase::Owning), (&other, &followers, FlightPhase::Following)]
    {
        for step in 1..=8 {
            asked.extend((step * 25 - 25..step * 25).map(|n| ask(service, n)));
            crate::support::eventually("all own, or follow", async || {
                let flights = layer.flights();
                flights.len() == step * 25 && flights.iter().all(|flight| flight.phase == phase)
            })
            .await;
        }
    }
    // Several leases long.
    tokio::time::sleep(lease * 2).await;
    open.send_replace(true);
    for answer in join_all(asked).await {
        assert_eq!(answer.unwrap().unwrap().status(), 200);
    }
    let [one, other] = [one.stats(), other.stats()];
    assert_eq!((one.owner, other.follower_remote), (200, 200));
    assert_eq!((one.leases_lost, other.takeovers, calls.load(SeqCst)), (0, 0, 200));
}

/// Leases that are held outlive a server that takes no more; new flights are run all
/// the same, and shared again when there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j1_memory_runs_full_in_the_middle_of_a_flight() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let calls = Arc::default();
    let [(one, _), (other, _)] = [process(&server, quick()).await, process(&server, quick()).await];
    let inner = inner(&calls, Duration::from_secs(2));
    let [owner, follower] = [one.layer(inner.clone()), other.layer(inner)];
    let first = tokio::spawn(owner.clone().oneshot(get("/held")));
    crate::support::eventually("it runs", async || calls.load(SeqCst) == 1).await;
    let second = tokio::spawn(follower.clone().oneshot(get("/held")));
    crate::support::eventually("it is followed", async || {
        other.flights().iter().any(|flight| flight.token.is_some())
    })
    .await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let began = Instant::now();
    let fresh = owner.clone().oneshot(get("/fresh")).await.unwrap();
    assert_eq!(fresh.status(), 200);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    for answer in [first.await, second.await] {
        assert_eq!(answer.unwrap().unwrap().status(), 200);
    }
    // The lease was kept over three of its lengths, and its answer told.
    assert_eq!((one.stats().leases_lost, other.stats().takeovers), (0, 0));
    assert_eq!(calls.load(SeqCst), 2, "one for each key");
    assert!(one.store_errors().iter().any(|(kind, _)| *kind == StoreErrorKind::OutOfMemory));
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server.command(&["CONFIG", "SET", "maxmemory", "64mb"]);
    crate::support::eventually("flights are shared again", async || {
        let path = format!("/later/{}", calls.load(SeqCst));
        let before = calls.load(SeqCst);
        let asks = [&owner, &follower].map(|node| node.clone().oneshot(get(&path)));
        join_all(asks).await.iter().for_each(|answer| assert!(answer.is_ok()));
        calls.load(SeqCst) == before + 1
    })
    .await;
}

/// Both processes hear of it, whoever says it; the next flight is another's business.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flight_is_stopped_in_the_whole_fleet() {
    let server = RedisServer::start();
    for from in 0..2 {
        let calls = Arc::default();
        let nodes = [process(&server, quick()).await, process(&server, quick()).await];
        let inner = inner(&calls, Duration::from_secs(60));
        let services = [nodes[0].0.layer(inner.clone()), nodes[1].0.layer(inner)];
        let path = format!("/stopped/{from}");
        let first = tokio::spawn(services[0].clone().oneshot(get(&path)));
        crate::support::eventually("it runs", async || calls.load(SeqCst) == 1).await;
        let second = tokio::spawn(services[1].clone().oneshot(get(&path)));
        crate::support::eventually("it is followed", async || {
            nodes[1].0.flights().iter().any(|flight| flight.phase == FlightPhase::Following)
        })
        .await;
        nodes[from].0.stop(&get(&path)).await.unwrap();
        for answer in [first.await, second.await] {
            let answer = answer.unwrap().unwrap();
            let failure = answer.extensions().get::<Failure>().map(Failure::kind);
            assert_eq!((answer.status().as_u16(), failure), (503, Some(FailureKind::Stopped)));
        }
        crate::support::eventually("all is over", async || {
            nodes.iter().all(|(layer, _)| layer.flights().is_empty())
        })
        .await;
        assert_eq!(nodes[0].0.stats().stopped, 1);
        let next = tokio::spawn(services[1].clone().oneshot(get(&path)));
        crate::support::eventually("the next runs", async || calls.load(SeqCst) == 2).await;
        next.abort();
    }
}
