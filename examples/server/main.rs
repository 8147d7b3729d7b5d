//! A slow service with single flight, and a page to try it on.
//!
//! ```text
//! cargo run --example server
//! REDIS_URL=redis://127.0.0.1/ cargo run --example server -- --listen 127.0.0.1:3001
//! ```
//!
//! With `--features metrics` a Prometheus server finds the layer's metrics at `/metrics`.

use std::{
    collections::HashSet,
    error::Error,
    net::SocketAddr,
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
    response::Html,
    routing::get,
    serve::ListenerExt,
};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tower::ServiceExt;
use tower_singleflight::{HttpKey, RedisStore, SingleFlightLayer};

mod events;

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
    let redis = std::env::var("REDIS_URL").ok();
    if let Some(url) = &redis {
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
        .route("/metrics", get(async move || metrics.render()))
        .route("/", get(Html(include_str!("page.html"))));

    let listen = listen()?;
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("  open it in a browser, or ask twice at the same time and see one run:");
    let ask = format!("curl 'http://{address}/answer?q=why'");
    println!("  {ask} & {ask}; wait");
    println!("  or listen twice, and see the events of one run as they come:");
    let listen = format!("curl -N 'http://{address}/events?q=why'");
    println!("  {listen} & {listen}; wait");
    match redis {
        Some(_) => println!("  other servers with the same REDIS_URL share its runs"),
        None => println!("  with REDIS_URL=redis://... several servers share their runs"),
    }
    // An event is not to wait for the client to confirm the one before.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let (stop, stopping) = tokio::sync::oneshot::channel();
    let serving = axum::serve(listener, app).with_graceful_shutdown(async {
        terminated().await;
        // The receiver lives as long as the server.
        let _ = stop.send(());
    });
    // Another server takes over what is still running here after two seconds.
    let leaving = async {
        match stopping.await {
            Ok(()) => layer.drain(Duration::from_secs(2)).await,
            Err(_) => std::future::pending().await,
        }
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

async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

fn listen() -> Result<SocketAddr, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (None, _) => Ok(SocketAddr::from(([127, 0, 0, 1], 3000))),
        (Some("--listen"), Some(address)) => Ok(address.parse()?),
        _ => Err("usage: server [--listen ADDRESS:PORT]".into()),
    }
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
