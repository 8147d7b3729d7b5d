//! What processes hold of answers that are used again, on a real server (row C14).

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::support::{eventually, redis_server::RedisServer, rights};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{Config, FlightRole, HttpKey, RedisStore, SingleFlightLayer};

type Body = Full<bytes::Bytes>;

const BEAT: Duration = Duration::from_secs(1);

/// A process, whose inner service says which run of all it was.
#[derive(Clone)]
struct Node {
    layer: SingleFlightLayer<HttpKey>,
    runs: Arc<AtomicUsize>,
}

fn get(path: &str) -> Request<Body> {
    Request::get(format!("http://a.test{path}")).body(Body::default()).unwrap()
}

async fn nodes<const N: usize>(url: &str) -> [Node; N] {
    let runs = Arc::<AtomicUsize>::default();
    let config = Config::builder().reuse(Duration::from_secs(20)).build().unwrap();
    let mut nodes = Vec::new();
    for _ in 0..N {
        let store = RedisStore::connect(url).await.unwrap();
        let layer = SingleFlightLayer::new(HttpKey::new()).store(store).namespace("tests");
        nodes.push(Node { layer: layer.config(config.clone()), runs: Arc::clone(&runs) });
    }
    nodes.try_into().unwrap_or_else(|_| unreachable!())
}

impl Node {
    /// Which run it was, and whether that was over.
    async fn ask(&self, path: &str) -> (usize, bool) {
        let runs = Arc::clone(&self.runs);
        let service = self.layer.layer(service_fn(move |_: Request<Body>| {
            let run = runs.fetch_add(1, SeqCst);
            async move { Ok::<_, Infallible>(Response::new(Body::from(run.to_string()))) }
        }));
        let response = service.oneshot(get(path)).await.unwrap();
        let role = response.extensions().get::<FlightRole>().copied();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let run = std::str::from_utf8(&body).unwrap().parse().unwrap();
        (run, matches!(role, Some(FlightRole::Reused { .. })))
    }

    fn held(&self) -> u64 {
        self.layer.stats().reused_local
    }

    /// Asks until it is given what it holds, of this run.
    async fn holds(&self, path: &str, run: usize) {
        let before = self.held();
        eventually("an answer that is held", async || {
            assert_eq!(self.ask(path).await.0, run);
            self.held() > before
        })
        .await;
    }
}

#[tokio::test]
async fn c14_an_answer_that_is_held_costs_no_script() {
    let server = RedisServer::start();
    let [here, there] = nodes(&server.url()).await;
    assert_eq!(here.ask("/").await, (0, false));
    here.holds("/", 0).await;
    there.holds("/", 0).await;
    // It goes on longer than a connection may be silent.
    let (before, until) = (server.scripts(), Instant::now() + BEAT * 3 / 2);
    while Instant::now() < until {
        for node in [&here, &there] {
            assert_eq!(node.ask("/").await, (0, true));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.scripts(), before);
}

#[tokio::test]
async fn what_any_process_forgets_is_held_by_none() {
    let server = RedisServer::start();
    let [a, b, stranger] = nodes(&server.url()).await;
    assert_eq!(a.ask("/").await, (0, false));
    for (run, forgets) in [&a, &b, &stranger].into_iter().enumerate() {
        a.holds("/", run).await;
        b.holds("/", run).await;
        forgets.layer.forget(&get("/")).await.unwrap();
        let told = Instant::now();
        if run < 2 {
            assert_eq!(forgets.ask("/").await.0, run + 1, "at once where it is told");
        }
        for node in [&a, &b] {
            eventually("word of it", async || node.ask("/").await.0 == run + 1).await;
        }
        assert!(told.elapsed() < BEAT, "{:?}", told.elapsed());
    }
}

/// Whoever changes a record, and in whatever way.
#[tokio::test]
async fn what_is_lost_or_taken_away_is_held_by_none() {
    let server = RedisServer::start();
    let [a, b] = nodes(&server.url()).await;
    let record = || server.lines(&["KEYS", "ai:flight:meta:*"]).swap_remove(0);
    let ways: [&dyn Fn() -> String; 3] =
        [&|| server.command(&["FLUSHALL"]), &|| server.command(&["DEL", &record()]), &|| {
            server.command(&["HSET", &record(), "fresh", "0"])
        }];
    assert_eq!(a.ask("/").await, (0, false));
    for (run, way) in ways.into_iter().enumerate() {
        a.holds("/", run).await;
        b.holds("/", run).await;
        way();
        for node in [&a, &b] {
            eventually("word of it", async || node.ask("/").await.0 == run + 1).await;
        }
    }
}

#[tokio::test]
async fn who_cannot_hear_holds_nothing() {
    let server = RedisServer::start();
    let [a, b] = nodes(&server.url()).await;
    assert_eq!(a.ask("/").await, (0, false));
    a.holds("/", 0).await;
    b.holds("/", 0).await;
    // Connections that break, and a word that they would have brought.
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let record = server.lines(&["KEYS", "ai:flight:meta:*"]).swap_remove(0);
    server.command(&["DEL", &record]);
    for node in [&a, &b] {
        eventually("a new run", async || node.ask("/").await.0 > 0).await;
        eventually("the connection", async || {
            let before = node.held();
            node.ask("/").await;
            node.held() > before
        })
        .await;
    }
    // A server that is gone without a word.
    let frozen = Instant::now();
    server.freeze();
    eventually("nothing is held", async || {
        let before = a.held();
        a.ask("/").await;
        a.held() == before
    })
    .await;
    let took = frozen.elapsed();
    server.thaw();
    assert!(took < BEAT * 2, "{took:?}");
}

/// By a user who may not ask for word, and without RESP3.
#[tokio::test]
async fn who_is_not_told_of_changes_asks_at_each_use() {
    let server = RedisServer::start();
    server.set_user("flight", &rights::of_the_guide());
    let url = server.url_for("flight", rights::PASSWORD, 0);
    for (path, url) in [("/user", url), ("/resp2", format!("{}?protocol=resp2", server.url()))] {
        let [node] = nodes(&url).await;
        let (run, _) = node.ask(path).await;
        eventually("the store knows", async || node.layer.flights().is_empty()).await;
        for _ in 0..3 {
            let before = server.scripts();
            assert_eq!(node.ask(path).await, (run, true));
            assert_eq!(server.scripts(), before + 1);
        }
        assert_eq!(node.held(), 0);
        assert_eq!(node.layer.store_errors(), []);
    }
}

/// Each answer is told of by the server that has it.
#[tokio::test]
async fn what_is_held_of_a_cluster_is_forgotten_too() {
    let cluster = crate::support::cluster::Cluster::start();
    let [a, b] = nodes(&cluster.url("")).await;
    let paths: Vec<String> = (0..8).map(|n| format!("/{n}")).collect();
    for (run, path) in paths.iter().enumerate() {
        assert_eq!(a.ask(path).await.0, run);
        a.holds(path, run).await;
        b.holds(path, run).await;
    }
    for path in &paths {
        b.layer.forget(&get(path)).await.unwrap();
        eventually("word of it", async || a.ask(path).await.0 >= paths.len()).await;
    }
}
