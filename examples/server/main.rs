//! A slow service with single flight, and a page to try it on.
//!
//! ```text
//! cargo run --example server
//! cargo run --example server -- --listen 127.0.0.1:3001 --store redis://127.0.0.1/
//! ```
//!
//! With `--features metrics` a Prometheus server finds the layer's metrics at `/metrics`.
//! Ctrl-C and SIGTERM end it when all are answered.

use std::{
    collections::HashSet,
    error::Error,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{RawQuery, Request, State},
    http::StatusCode,
    response::Html,
    routing::get,
    serve::ListenerExt,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_singleflight::{HttpKey, RedisStore, SingleFlightLayer};

mod events;
#[path = "../shared/mod.rs"]
mod shared;

use self::shared::{Args, listen, told_to_end};

const USAGE: &str = "usage: server [--listen HOST:PORT] [--store redis://...]";

#[derive(Debug, Default)]
struct Model {
    runs: AtomicU64,
    running: AtomicU64,
}

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let args = Args::read(USAGE, "127.0.0.1:3000")?;
    tracing_subscriber::fmt().with_env_filter("warn").init();

    // Before the first request: the layer keeps what it then counts on.
    let metrics = PrometheusBuilder::new()
        .set_buckets(&[0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 60.0])?
        .install_recorder()?;

    // Several of these servers are one service, on several ports: with the port in
    // the key, two of them would never meet. A service behind one name needs no
    // such line.
    let key = HttpKey::new().authority("demo");
    let mut layer = SingleFlightLayer::new(key).name("answers");
    if let Some(url) = &args.store {
        layer = layer.store(RedisStore::connect(url).await?);
    }

    let model = Arc::new(Model::default());
    let answers = Router::new()
        .route("/answer", get(answer))
        .route("/events", get(events::events))
        .layer(layer.clone())
        .with_state(Arc::clone(&model));
    let app = answers
        .clone()
        .route("/burst", get(burst).with_state(answers))
        .route("/stats", get(stats).with_state((layer.clone(), model)))
        .route("/metrics", get(async move || shown(&metrics)))
        .route("/", get(Html(include_str!("page.html"))));

    let listener = listen(&args.listen).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("  open it in a browser, or ask twice at the same time and see one run:");
    let ask = format!("curl 'http://{address}/answer?q=why'");
    println!("  {ask} & {ask}; wait");
    println!("  or listen twice, and see the events of one run as they come:");
    let listen = format!("curl -N 'http://{address}/events?q=why'");
    println!("  {listen} & {listen}; wait");
    println!("  what it has counted, and what a Prometheus server finds:");
    println!("  curl http://{address}/stats");
    println!("  curl http://{address}/metrics");
    match args.store {
        Some(_) => println!("  other servers with the same --store share its runs"),
        None => println!("  with --store redis://... several servers share their runs"),
    }
    // An event is not to wait for the client to confirm the one before.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let leaving = async move {
        told_to_end().await;
        // Another server takes over what is still running here after five seconds.
        layer.drain(Duration::from_secs(5)).await;
    };
    Ok(axum::serve(listener, app).with_graceful_shutdown(leaving).await?)
}

/// The layer's metrics; without the feature there are none, which is said.
fn shown(metrics: &PrometheusHandle) -> (StatusCode, String) {
    if cfg!(feature = "metrics") {
        return (StatusCode::OK, metrics.render());
    }
    let text = "built without the feature `metrics`: \
        cargo run --example server --features metrics\n";
    (StatusCode::NOT_IMPLEMENTED, text.to_owned())
}

/// What stands for a model: an answer that takes three seconds.
async fn answer(State(model): State<Arc<Model>>, RawQuery(query): RawQuery) -> String {
    let run = Run::begin(model);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let question = query.unwrap_or_else(|| "nothing".into());
    format!("You asked {question}. This is run {} of process {}.\n", run.number, std::process::id())
}

/// Asks the question of the query many times at once, as many clients would; a
/// browser opens too few connections for that.
async fn burst(State(answers): State<Router>, RawQuery(query): RawQuery) -> Json<Value> {
    let query = query.unwrap_or_default();
    let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name));
    let times = value("n=").and_then(|times| times.parse().ok()).unwrap_or(20).min(1000);
    let path = format!("/answer?q={}", value("q=").unwrap_or("why"));
    let mut calls = JoinSet::new();
    for _ in 0..times {
        let request = Request::get(&path).body(Body::empty());
        let answers = answers.clone();
        calls.spawn(async move {
            let answer = answers.oneshot(request.ok()?).await.ok()?;
            let body = axum::body::to_bytes(answer.into_body(), 64 * 1024).await.ok()?;
            Some(String::from_utf8_lossy(&body).into_owned())
        });
    }
    let answers = calls.join_all().await;
    let different: HashSet<_> = answers.iter().flatten().collect();
    Json(json!({
        "answers": answers.iter().flatten().count(),
        "different": different.len(),
        "first": different.iter().next(),
    }))
}

/// Counts a run while it runs, also when it is dropped in the middle.
struct Run {
    number: u64,
    model: Arc<Model>,
}

impl Run {
    fn begin(model: Arc<Model>) -> Self {
        let number = model.runs.fetch_add(1, Relaxed) + 1;
        model.running.fetch_add(1, Relaxed);
        Self { number, model }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.model.running.fetch_sub(1, Relaxed);
    }
}

type Shown = (SingleFlightLayer<HttpKey>, Arc<Model>);

async fn stats(State((layer, model)): State<Shown>) -> Json<Value> {
    let stats = layer.stats();
    let callers: usize = layer.flights().iter().map(|flight| flight.callers).sum();
    Json(json!({
        "pid": std::process::id(),
        "store": format!("{:?}", layer.store_state()).to_lowercase(),
        "runs": model.runs.load(Relaxed),
        "running": model.running.load(Relaxed),
        "waiting": callers,
        "own": stats.owner,
        "shared_here": stats.follower_local,
        "shared_elsewhere": stats.follower_remote,
        "alone": stats.bypass,
    }))
}
