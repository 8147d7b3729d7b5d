//! A server whose inner service does what the request says: start several on one
//! Redis, kill, stop and cut them, and see what becomes of the callers.
//!
//! ```text
//! cargo run --example lab -- --listen 127.0.0.1:0 --store redis://127.0.0.1:6379/
//! curl '127.0.0.1:PORT/work/report?ms=2000'
//! curl -N 127.0.0.1:PORT/llm -H 'content-type: application/json' -d '{"stream":true}'
//! curl '127.0.0.1:PORT/stats'
//! ```
//!
//! `--store` takes every address that `RedisStore` takes: `rediss://` with the feature
//! `tls`, `redis-sentinel://host:port,host:port/master-name`,
//! `redis-cluster://host:port,host:port`.

use std::{io::Write, process::ExitCode, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::{DefaultBodyLimit, RawQuery, State},
    http::{HeaderMap, Request, StatusCode, header},
    routing::{get, post},
    serve::ListenerExt,
};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower_singleflight::{
    FlightInfo, FlightPhase, HttpKey, SingleFlightLayer,
    key::{BodyKey, Json as JsonBody, ReadBody},
    store::StoreState,
};

mod args;
mod body;
mod llm;
mod script;
mod work;

use self::{args::Args, work::Inner};

type GiveBack = fn(ReadBody<Body>) -> Body;
type Layer = SingleFlightLayer<HttpKey<BodyKey<GiveBack, JsonBody>>>;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.workers)
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(serve(args)),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: Args) -> Result<(), Box<dyn std::error::Error>> {
    // Several ports are one service here.
    let key = HttpKey::new().authority("lab").json_body(Body::new as GiveBack);
    let mut layer: Layer =
        SingleFlightLayer::new(key).namespace(args.namespace.as_str()).config(args.config);
    if let Some(store) = args.store {
        layer = layer.store(store);
    }
    let inner = Arc::new(Inner::default());
    let llm = post(llm::llm).layer(DefaultBodyLimit::max(llm::MOST_BYTES));
    let mut behind = Router::new().route("/work/{*name}", get(work::work)).route("/llm", llm);
    if let Some(limit) = args.inner_limit {
        behind = behind.layer(GlobalConcurrencyLimitLayer::new(limit));
    }
    let behind = behind.layer(layer.clone()).with_state(Arc::clone(&inner));
    let beside = Router::new()
        .route("/stats", get(stats))
        .route("/flights", get(flights))
        .route("/forget", post(forget).with_state(layer.clone()))
        .route("/drain", post(drain).with_state((layer.clone(), args.grace)))
        .with_state((layer.clone(), inner));

    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.map_err(|error| format!("--listen ({}): {error}", args.listen))?;
    let mut out = std::io::stdout();
    writeln!(out, "listening on {}", listener.local_addr()?)?;
    out.flush()?;
    let (stop, stopping) = tokio::sync::oneshot::channel();
    // What is small and comes by and by is not to wait for what came before it.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let serving = axum::serve(listener, behind.merge(beside)).with_graceful_shutdown(async {
        terminated().await;
        // The receiver lives as long as the server.
        let _ = stop.send(());
    });
    let leaving = async {
        match stopping.await {
            Ok(()) => layer.drain(args.grace).await,
            Err(_) => std::future::pending().await,
        }
        // For the last answers to be written.
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let mut leaving = std::pin::pin!(leaving);
    tokio::select! {
        result = serving => {
            result?;
            // All are answered, but other processes may not have heard of it yet.
            leaving.await;
        }
        () = &mut leaving => {}
    }
    Ok(())
}

/// Forgets the `GET` request of that path, as a client with this one's headers would
/// send it.
async fn forget(
    State(layer): State<Layer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<(), (StatusCode, String)> {
    let refuse = |text: String| (StatusCode::BAD_REQUEST, text);
    let query = query.unwrap_or_default();
    let path = query.strip_prefix("path=").ok_or_else(|| refuse("path is missing".into()))?;
    let path = percent_decode_str(path).decode_utf8().map_err(|error| refuse(error.to_string()))?;
    let mut request = Request::get(path.as_ref())
        .body(Body::empty())
        .map_err(|error| refuse(error.to_string()))?;
    *request.headers_mut() = headers;
    for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE] {
        request.headers_mut().remove(name);
    }
    let told = layer.forget(&request).await;
    told.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
}

async fn drain(State((layer, grace)): State<(Layer, Duration)>) {
    layer.drain(grace).await;
}

async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

async fn stats(State((layer, inner)): State<(Layer, Arc<Inner>)>) -> Json<Value> {
    let flights = layer.stats();
    let errors = layer.store_errors();
    let by_kind: Value =
        errors.iter().map(|(kind, count)| (kind.name().to_owned(), json!(count))).collect();
    let total: u64 = errors.iter().map(|(_, count)| count).sum();
    let state = match layer.store_state() {
        StoreState::Ok => "ok",
        StoreState::Memory => "memory",
        _ => "degraded",
    };
    Json(json!({
        "pid": std::process::id(),
        "inner": inner.stats(),
        "flights": {
            "owner": flights.owner,
            "follower_local": flights.follower_local,
            "follower_remote": flights.follower_remote,
            "reused": flights.reused,
            "bypass": flights.bypass,
            "failed": flights.failed,
            "takeovers": flights.takeovers,
            "leases_lost": flights.leases_lost,
            "failed_runs": flights.failed_runs,
            "timed_out_runs": flights.timed_out_runs,
            "private_runs": flights.private_runs,
            "large_runs": flights.large_runs,
            "hand_overs": flights.hand_overs,
            "fenced": flights.fenced,
            "quarantined": flights.quarantined,
            "bad_records": flights.bad_records,
        },
        "store": { "state": state, "errors": total, "by_kind": by_kind },
    }))
}

async fn flights(State((layer, _)): State<(Layer, Arc<Inner>)>) -> Json<Value> {
    Json(layer.flights().iter().map(flight).collect())
}

fn flight(flight: &FlightInfo) -> Value {
    let (role, status) = match flight.phase {
        FlightPhase::Joining => ("joining", "joining"),
        FlightPhase::Owning => ("owner", "running"),
        FlightPhase::Following => ("follower", "running"),
        FlightPhase::Local => ("local", "running"),
        _ => ("owner", "ending"),
    };
    let own = usize::from(matches!(role, "owner" | "local"));
    json!({
        "digest": flight.key.to_string(),
        "role": role,
        "status": status,
        "token": flight.token,
        "age_ms": flight.age.as_millis() as u64,
        "followers": flight.callers.saturating_sub(own),
    })
}
