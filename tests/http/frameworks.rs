//! The layer where it is used: axum, hyper, `ServiceBuilder` (rows T4, L1).

use std::{convert::Infallible, time::Duration};

use axum::{Router, routing::get as route_get};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use tokio_test::{assert_ready, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::trace::TraceLayer;
use tower_singleflight::{Bypass, FlightRole, FlightToken, HttpKey, SingleFlight};
use tracing::Instrument;
use tracing_subscriber::{Registry, registry::LookupSpan};

use crate::{
    net,
    support::{
        Gate, Inner, Req, Runs, ask, callers, crowd, get, layer, ms, nodes, numbered, read, text,
        until,
    },
};

/// A router with one gated route, `/`, and one that is not, `/plain`.
fn router(runs: &Runs, gate: &Gate) -> Router {
    let handler = {
        let (runs, gate) = (runs.clone(), gate.clone());
        move || {
            let (run, gate) = (runs.begin(), gate.clone());
            async move {
                gate.passed().await;
                let number = run.number;
                run.finish();
                format!("run {number}")
            }
        }
    };
    let plain = || async { "plain" };
    Router::new().route("/", route_get(handler)).route("/plain", route_get(plain))
}

#[tokio::test]
async fn t4_two_connections_to_axum_share_one_run() {
    for inside in [false, true] {
        let (runs, gate, node) = (Runs::default(), Gate::new(), layer());
        let router = router(&runs, &gate);
        let app = match inside {
            false => router.layer(node.clone()),
            true => router.route_layer(node.clone()),
        };
        let server = net::axum(app).await;
        let (mut one, mut two) = (net::http1(server).await, net::http1(server).await);
        let opened = async {
            until("both callers", || callers(&node) == 2).await;
            gate.open();
        };
        let (first, second, ()) = tokio::join!(one.ask(get("/")), two.ask(get("/")), opened);
        assert_eq!((first.text(), second.text(), runs.total()), ("run 0", "run 0", 1));
        assert_eq!(one.ask(get("/plain")).await.text(), "plain");
        // What no route knows is not the layer's, where it is inside of routing.
        let lost = one.ask(get("/lost")).await;
        assert_eq!(lost.status, StatusCode::NOT_FOUND);
        assert_eq!(lost.headers.contains_key("cache-status"), !inside);
    }
}

#[tokio::test]
async fn t4_two_connections_to_hyper_share_one_run() {
    let (runs, gate, node) = (Runs::default(), Gate::new(), layer());
    let inner = {
        let (runs, gate) = (runs.clone(), gate.clone());
        service_fn(move |_: Request<Incoming>| {
            let (run, gate) = (runs.begin(), gate.clone());
            async move {
                gate.passed().await;
                run.finish();
                Ok::<_, Infallible>(text("hello"))
            }
        })
    };
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(node.clone())
        .concurrency_limit(1)
        .service(inner);
    let server = net::hyper(stack).await;
    let (mut one, mut two) = (net::http1(server).await, net::http2(server).await);
    let opened = async {
        until("both callers", || callers(&node) == 2).await;
        gate.open();
    };
    let (first, second, ()) = tokio::join!(one.ask(get("/")), two.ask(get("/")), opened);
    assert_eq!((first.text(), second.text(), runs.total()), ("hello", "hello", 1));
}

#[tokio::test]
async fn axum_takes_the_layer_in_every_place() {
    let (runs, gate) = (Runs::default(), Gate::new());
    gate.open();
    let app = Router::new()
        .merge(router(&runs, &gate))
        .route("/method", route_get(|| async { "method" }).layer(layer()))
        .fallback(|| async { "fallback" })
        .layer(ServiceBuilder::new().layer(TraceLayer::new_for_http()).layer(layer()))
        .layer(layer())
        .route_service(
            "/service",
            layer().layer(service_fn(|_: axum::extract::Request| async {
                Ok::<_, Infallible>(text("service"))
            })),
        );
    let server = net::axum(app).await;
    let mut client = net::http1(server).await;
    for (path, body) in [
        ("/", "run 0"),
        ("/plain", "plain"),
        ("/method", "method"),
        ("/service", "service"),
        ("/none", "fallback"),
    ] {
        assert_eq!(client.ask(get(path)).await.text(), body);
    }
}

#[tokio::test(start_paused = true)]
async fn an_axum_error_is_infallible() {
    fn infallible<S: Service<Req, Error = Infallible>>(_: &S) {}
    let service = layer().layer(numbered(&Runs::default(), ms(1)));
    infallible(&service);
    let boxed: Inner<_> = Inner::new(service);
    assert_eq!(ask(&boxed, get("/")).await.text(), "run 0");
}

#[tokio::test(start_paused = true)]
async fn a_service_can_be_made_and_taken_apart() {
    let runs = Runs::default();
    let mut service = SingleFlight::new(numbered(&runs, ms(10)), HttpKey::new());
    let _: &Inner = service.get_ref();
    let _: &mut Inner = service.get_mut();
    crowd(&[&service], 3, get("/")).await;
    assert_eq!(runs.total(), 1);
    let inner = service.into_inner();
    let other = SingleFlight::<Inner, _>::layer(HttpKey::new()).layer(inner);
    crowd(&[&other], 3, get("/")).await;
    assert_eq!(runs.total(), 2);
}

#[test]
fn no_runtime_is_needed_to_build() {
    let service = ServiceBuilder::new()
        .layer(layer())
        .service(service_fn(|_: Req| async { Ok::<_, Infallible>(text("hello")) }));
    // Without one a request runs alone.
    let mut call = task::spawn(service.oneshot(get("/")));
    let response = assert_ready!(call.poll()).unwrap();
    let role = response.extensions().get::<FlightRole>();
    assert_eq!(role, Some(&FlightRole::Bypass(Bypass::NoRuntime)));
}

#[tokio::test(start_paused = true)]
async fn the_handler_is_told_its_token() {
    let runs = Runs::default();
    let inner = crate::support::sure(&runs, ms(100), |_, request| {
        let token = request.extensions().get::<FlightToken>().map(|token| token.get());
        text(format!("{token:?}"))
    });
    let [here, there] = nodes().map(|node| node.layer(inner.clone()));
    let mut seen = Vec::new();
    for service in [&here, &there, &here] {
        seen.push(ask(service, get("/")).await.text().to_owned());
    }
    assert!(seen[0] < seen[1] && seen[1] < seen[2], "{seen:?}");
    let mut post = get("/");
    *post.method_mut() = http::Method::POST;
    assert_eq!(ask(&here, post).await.text(), "None");
}

#[tokio::test(start_paused = true)]
async fn inner_runs_in_the_first_callers_span() {
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry());
    let inner = service_fn(|_: Req| async {
        tokio::time::sleep(ms(10)).await;
        let span = tracing::Span::current();
        let names = tracing::dispatcher::get_default(|dispatch| {
            let registry = dispatch.downcast_ref::<Registry>().expect("the registry");
            let span = span.id().and_then(|id| registry.span(&id)).expect("a span");
            span.scope().map(|span| span.name()).collect::<Vec<_>>().join(" in ")
        });
        Ok::<_, Infallible>(text(names))
    });
    let service = layer().layer(inner);
    let (first, second) = tokio::join!(
        ask(&service, get("/")).instrument(tracing::error_span!("first")),
        ask(&service, get("/")).instrument(tracing::error_span!("second")),
    );
    let names = "flight in single_flight in first";
    assert_eq!((first.text(), second.text()), (names, names));
}

#[tokio::test(start_paused = true)]
async fn what_stays_with_the_owner() {
    let runs = Runs::default();
    let inner = crate::support::sure(&runs, Duration::from_millis(100), |_, _| {
        let mut response = text("hello");
        response.extensions_mut().insert(7_u8);
        *response.version_mut() = http::Version::HTTP_10;
        response
    });
    let service = layer().layer(inner);
    let (owner, follower) =
        tokio::join!(service.clone().oneshot(get("/")), service.oneshot(get("/")));
    let (owner, follower) = (owner.unwrap(), follower.unwrap());
    assert_eq!(owner.extensions().get::<u8>(), Some(&7));
    assert_eq!(owner.version(), http::Version::HTTP_10);
    assert_eq!(follower.extensions().get::<u8>(), None);
    assert_eq!(follower.version(), http::Version::HTTP_11);
    assert!(read(owner).await.unwrap().is_owner());
}
