//! Metrics, as a Prometheus server reads them.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{Arc, LazyLock},
    time::Duration,
};

use axum::body::Body;
use futures_util::future::join_all;
use http::{HeaderName, Request, Response};
use http_body_util::BodyExt;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::sync::Semaphore;
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_singleflight::{HttpKey, MemoryStore, RedisStore, SingleFlightLayer, Store};

use crate::support::{eventually, redis_server::closed_port};

/// One for all tests of the process: each has layers of other names.
static RECORDER: LazyLock<PrometheusHandle> =
    LazyLock::new(|| PrometheusBuilder::new().install_recorder().expect("the first recorder"));

const LANGUAGE: HeaderName = HeaderName::from_static("x-language");

type Service = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

struct Node {
    layer: SingleFlightLayer<HttpKey>,
    service: Service,
    leave: Arc<Semaphore>,
}

impl Node {
    /// Its runs wait for leave.
    fn new(name: &str, store: impl Store) -> Self {
        Self::of(Self::layer(name).store(store))
    }

    fn layer(name: &str) -> SingleFlightLayer<HttpKey> {
        let key = HttpKey::new().ignore(LANGUAGE);
        SingleFlightLayer::new(key).namespace("metrics").name(name)
    }

    fn of(layer: SingleFlightLayer<HttpKey>) -> Self {
        LazyLock::force(&RECORDER);
        let leave = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&leave);
        let inner = service_fn(move |request: Request<Body>| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.expect("open").forget();
                let response = Response::builder().header("vary", LANGUAGE);
                Ok::<_, Infallible>(response.body(Body::from(request.uri().to_string())).unwrap())
            }
        });
        let service = layer.layer(inner).map_response(|response| response.map(Body::new));
        Self { layer, service: BoxCloneSyncService::new(service), leave }
    }

    async fn ask(&self, path: &str, language: &str) -> u16 {
        let request = Request::get(format!("http://a.test{path}")).header(LANGUAGE, language);
        let request = request.body(Body::empty()).unwrap();
        let response = self.service.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        response.into_body().collect().await.unwrap();
        status
    }

    fn has(&self, callers: usize) -> bool {
        self.layer.flights().iter().any(|f| f.token.is_some() && f.callers == callers)
    }
}

/// The series of a layer, or of another label.
fn series(of: &str) -> Vec<(String, f64)> {
    let text = RECORDER.render();
    let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains(of));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// The one series of a layer with this name and label.
fn value(layer: &str, name: &str, label: &str) -> f64 {
    let all = series(&format!("layer=\"{layer}\""));
    let found: Vec<_> = all
        .iter()
        .filter(|(series, _)| series.starts_with(&format!("{name}{{")) && series.contains(label))
        .collect();
    let [(_, value)] = found[..] else { panic!("one {name} with {label}: {found:?} of {all:?}") };
    *value
}

/// C8: each caller is counted once, in the role that it had in the end.
#[tokio::test(start_paused = true)]
async fn c8_roles_add_up_to_requests() {
    let store = MemoryStore::new();
    let [one, two] = [(); 2].map(|()| Node::new("c8", store.clone()));
    let callers = [(&one, "en"), (&one, "en"), (&one, "en"), (&one, "de")].into_iter().chain([
        (&two, "en"),
        (&two, "en"),
        (&two, "en"),
        (&two, "de"),
    ]);
    let asked = async {
        eventually("all of them", async || one.has(4) && two.has(4)).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        one.leave.add_permits(2);
        two.leave.add_permits(1);
    };
    let first = one.ask("/", "en");
    let rest = async {
        eventually("an owner", async || one.has(1)).await;
        let callers = callers.skip(1).map(|(node, language)| node.ask("/", language));
        tokio::join!(join_all(callers), asked).0
    };
    let (first, mut all) = tokio::join!(first, rest);
    all.push(first);
    assert!(all.iter().all(|status| *status == 200), "{all:?}");
    let role = |role: &str| {
        value("c8", "single_flight_requests_total", &format!("role=\"{role}\"")) as u64
    };
    let roles = ["owner", "follower_local", "follower_remote", "bypass", "reused", "failed"];
    assert_eq!(roles.map(role), [1, 2, 3, 2, 0, 0]);
    assert_eq!(value("c8", "single_flight_bypasses_total", "\"unshared\""), 2.0);
    assert_eq!(value("c8", "single_flight_runs_avoided_total", ""), 5.0);
    let stats = [&one, &two].map(|node| node.layer.stats());
    assert_eq!(stats.iter().map(|stats| stats.runs_avoided()).sum::<u64>(), 5);
    assert_eq!(value("c8", "single_flight_run_seconds_count", "\"done\""), 1.0);
    assert!(value("c8", "single_flight_run_seconds_sum", "\"done\"") >= 1.5);
    assert!(value("c8", "single_flight_run_milliseconds_avoided_total", "") >= 5.0 * 1500.0);
    assert_eq!(value("c8", "single_flight_wait_seconds_count", "\"follower_remote\""), 3.0);
    assert!(value("c8", "single_flight_published_bytes_total", "") > 10.0);
    assert_eq!(
        stats[0].published_bytes as f64,
        value("c8", "single_flight_published_bytes_total", "")
    );
    eventually("nothing is in the air", async || value("c8", "single_flight_in_flight", "") == 0.0)
        .await;
}

/// Q5: as many series for ten thousand keys as for one, and nothing of a key in them.
#[tokio::test(start_paused = true)]
async fn q5_series_are_as_many_for_any_number_of_keys() {
    let node = Node::of(Node::layer("q5"));
    node.leave.add_permits(1);
    node.ask("/first", "en").await;
    let names = || series("layer=\"q5\"").into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let before: BTreeSet<String> = names().into_iter().collect();
    node.leave.add_permits(10_000);
    for hundred in 0..100 {
        let asks = (0..100).map(|n| format!("/?mail=user-{}@example.org", hundred * 100 + n));
        join_all(asks.map(async |path| node.ask(&path, "en").await)).await;
    }
    // Let go, stopped, alone.
    let left = tokio::time::timeout(Duration::from_secs(1), node.ask("/left", "en")).await;
    assert!(left.is_err());
    let key = Request::get("http://a.test/stopped").body(Body::empty()).unwrap();
    let stop = async {
        eventually("a run", async || node.has(1)).await;
        node.layer.stop(&key).await.unwrap();
    };
    assert_eq!(tokio::join!(node.ask("/stopped", "en"), stop).0, 503);
    let put = Request::put("http://a.test/").body(Body::empty()).unwrap();
    node.leave.add_permits(1);
    drop(node.service.clone().oneshot(put).await.unwrap());

    assert_eq!(names().into_iter().collect::<BTreeSet<_>>(), before);
    assert!(before.len() < 250, "{}", before.len());
    assert!(!RECORDER.render().contains("example.org"));
    let count = |name: &str, label: &str| value("q5", name, label) as u64;
    assert_eq!(count("single_flight_requests_total", "\"owner\""), 10_001);
    assert_eq!(count("single_flight_requests_total", "\"failed\""), 1);
    assert_eq!(count("single_flight_bypasses_total", "\"method\""), 1);
    assert_eq!(count("single_flight_stopped_total", ""), 1);
    assert_eq!(count("single_flight_run_seconds_count", "\"unwanted\""), 1);
    assert_eq!(count("single_flight_store_degraded", ""), 0);
}

/// Q2: that the store is away can be seen.
#[tokio::test]
async fn q2_a_store_that_is_away_is_seen() {
    let store = RedisStore::builder(closed_port()).connect_lazy().unwrap();
    let node = Node::new("q2", store);
    for n in 0..10 {
        node.leave.add_permits(1);
        assert_eq!(node.ask(&format!("/{n}"), "en").await, 200);
    }
    assert_eq!(value("q2", "single_flight_store_degraded", ""), 1.0);
    let errors = series("single_flight_store_errors_total{");
    assert!(errors.iter().any(|(name, count)| name.contains("\"connect\"") && *count >= 1.0));
}

/// The table in the docs has all that there is, and nothing else.
#[tokio::test(start_paused = true)]
async fn the_docs_name_every_metric() {
    let node = Node::new("docs", MemoryStore::new());
    node.leave.add_permits(1);
    node.ask("/", "en").await;
    let docs = include_str!("../../src/telemetry/mod.rs");
    let rows = docs.lines().filter_map(|line| line.strip_prefix("//! | `single_flight_"));
    let named: BTreeSet<&str> = rows.filter_map(|row| Some(row.split_once('`')?.0)).collect();
    let all = series("layer=\"docs\"");
    let told = all.iter().filter_map(|(name, _)| {
        let name = name.strip_prefix("single_flight_")?.split_once('{')?.0;
        // Each time has several.
        let times = name.strip_suffix("_seconds_sum").or(name.strip_suffix("_seconds_count"));
        Some(times.map_or_else(|| name.to_owned(), |name| format!("{name}_seconds")))
    });
    let mut told: BTreeSet<String> = told.collect();
    told.insert("store_errors_total".to_owned());
    assert_eq!(told, named.into_iter().map(str::to_owned).collect());
}
