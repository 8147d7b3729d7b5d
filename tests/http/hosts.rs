//! Hosts and nested routers (rows K2, K3).

use axum::{
    Router,
    extract::{OriginalUri, Request},
    routing::get as route_get,
};
use http::header::HOST;
use tokio::time::{Duration, sleep};
use tower::ServiceExt;
use tower_singleflight::{Bypass, FlightRole, HttpKey, MemoryStore, SingleFlightLayer};

use crate::{
    net,
    support::{Gate, Req, Runs, ask, callers, get, layer, ms, numbered, read, until},
};

/// Two mounts with one layer inside each, and inner answers that tell them apart.
fn nested(key: &HttpKey, runs: &Runs) -> Router {
    let layer = SingleFlightLayer::new(key.clone());
    let mount = |name: &'static str| {
        let runs = runs.clone();
        let handler = move || {
            let run = runs.begin();
            async move {
                sleep(ms(100)).await;
                run.finish();
                name
            }
        };
        Router::new().route("/f", route_get(handler)).layer(layer.clone())
    };
    Router::new()
        .nest("/c1", mount("c1"))
        .nest("/c2", mount("c2"))
        .nest("/deep", Router::new().nest("/c1", mount("deep c1")))
}

async fn call(app: Router, path: &str) -> String {
    let request = Request::get(path).header(HOST, "a.test").body(axum::body::Body::empty());
    let response = app.oneshot(request.unwrap()).await.unwrap();
    read(response).await.unwrap().text().to_owned()
}

#[tokio::test(start_paused = true)]
async fn k2_two_mounts_never_share() {
    let runs = Runs::default();
    let key =
        HttpKey::new().original_uri(|extensions| extensions.get::<OriginalUri>().map(|uri| &uri.0));
    let app = nested(&key, &runs);
    let (a, b, c, d) = tokio::join!(
        call(app.clone(), "/c1/f"),
        call(app.clone(), "/c2/f"),
        call(app.clone(), "/deep/c1/f"),
        call(app, "/c1/f"),
    );
    assert_eq!([a, b, c, d], ["c1", "c2", "deep c1", "c1"]);
    assert_eq!(runs.total(), 3);
}

// What the docs warn of; if this ever fails, the warning can go.
#[tokio::test(start_paused = true)]
async fn k2_without_the_original_uri_mounts_collide() {
    let runs = Runs::default();
    let app = nested(&HttpKey::new(), &runs);
    let (a, b) = tokio::join!(call(app.clone(), "/c1/f"), call(app, "/c2/f"));
    assert_eq!([a, b], ["c1", "c1"]);
    assert_eq!(runs.total(), 1);
}

/// Says which host it was asked for, once the gate is open.
fn hosts(runs: &Runs, gate: &Gate) -> Router {
    let (runs, gate) = (runs.clone(), gate.clone());
    let handler = move |request: Request| {
        let (run, gate) = (runs.begin(), gate.clone());
        let host = request.headers().get(HOST).map(|host| host.to_str().unwrap().to_owned());
        let host = host.or_else(|| request.uri().authority().map(ToString::to_string));
        async move {
            gate.passed().await;
            run.finish();
            host.unwrap_or_default()
        }
    };
    Router::new().route("/", route_get(handler))
}

fn at(uri: &str) -> Req {
    let mut request = get("/");
    *request.uri_mut() = uri.parse().unwrap();
    request
}

#[tokio::test]
async fn k3_tenants_never_share() {
    let (runs, gate, node) = (Runs::default(), Gate::new(), layer());
    let server = net::axum(hosts(&runs, &gate).layer(node.clone())).await;
    let mut asked = Vec::new();
    for host in ["a.test", "b.test", "a.test:8080", "a.test.", "sub.a.test"] {
        let uri = format!("http://{host}/");
        for mut client in [net::http1(server).await, net::http2(server).await] {
            let request = at(&uri);
            asked.push((host, tokio::spawn(async move { client.ask(request).await })));
        }
    }
    until("all callers", || callers(&node) == 10).await;
    until("all runs", || runs.total() == 5).await;
    gate.open();
    for (host, answer) in asked {
        assert_eq!(answer.await.unwrap().text(), host);
    }
    assert_eq!(runs.total(), 5);
}

#[tokio::test]
async fn k3_all_forms_of_one_host_share() {
    let (runs, gate, node) = (Runs::default(), Gate::new(), layer());
    let server = net::axum(hosts(&runs, &gate).layer(node.clone())).await;
    let mut asked = Vec::new();
    for uri in ["http://a.test/", "http://A.TEST/", "http://a.test:80/", "https://a.test:443/"] {
        for mut client in [net::http1(server).await, net::http2(server).await] {
            let request = at(uri);
            asked.push(tokio::spawn(async move { client.ask(request).await }));
        }
    }
    until("all callers", || callers(&node) == 8).await;
    gate.open();
    let mut bodies = std::collections::HashSet::new();
    for answer in asked {
        bodies.insert(answer.await.unwrap().body);
    }
    assert_eq!((bodies.len(), runs.total()), (1, 1));
}

#[tokio::test]
async fn k3_a_missing_host_bypasses() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let store = MemoryStore::new();
    let node = layer().store(store.clone());
    let server = net::axum(hosts(&runs, &gate).layer(node.clone())).await;
    let mut connections = Vec::new();
    for request in [
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a.test\r\nhost: b.test\r\n\r\n",
        "GET http://a.test/ HTTP/1.1\r\nhost: b.test\r\n\r\n",
        "GET / HTTP/1.1\r\nhost:\r\n\r\n",
    ] {
        let mut raw = net::Raw::connect(server).await;
        raw.send(request).await;
        connections.push(raw);
    }
    until("all runs", || runs.running() == 5).await;
    assert!(node.flights().is_empty() && store.is_empty());
    gate.open();
    for mut raw in connections {
        let wire = raw.answer(false).await;
        assert_eq!(wire.all("cache-status"), ["tower-singleflight; fwd=bypass"]);
    }
}

#[tokio::test(start_paused = true)]
async fn k3_no_authority_is_the_reason() {
    let runs = Runs::default();
    let service = tower::Layer::layer(&layer(), numbered(&runs, Duration::ZERO));
    let answer = ask(&service, at("/")).await;
    assert_eq!(answer.role, Some(FlightRole::Bypass(Bypass::NoAuthority)));
}
