//! An axum server with single flight, and nothing else.
//!
//! ```text
//! cargo run --example axum
//! ```
//!
//! With `--store redis://127.0.0.1/`, and `--listen` for a second one, several servers
//! share their runs. `--example server` has more to it: streams, metrics and a page.

use std::{
    error::Error,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use axum::{Router, extract::Path, routing::get};
use tower_singleflight::{HttpKey, RedisStore, SingleFlightLayer};

mod shared;

use self::shared::{Args, listen, told_to_end};

const USAGE: &str = "usage: axum [--listen HOST:PORT] [--store redis://...]";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::read(USAGE, "127.0.0.1:3000")?;
    // Several of these are one service, on several ports; behind one name it needs no
    // `authority`.
    let mut layer = SingleFlightLayer::new(HttpKey::new().authority("reports"));
    if let Some(url) = &args.store {
        layer = layer.store(RedisStore::connect(url).await?);
    }
    let app = Router::new()
        .route("/report/{year}", get(report))
        // Around what is slow: routes that are added below are not shared.
        .layer(layer.clone())
        .route("/health", get(async || "well\n"));

    let listener = listen(&args.listen).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("  two ask for one report, and a third for another one: two runs; each answer");
    println!("  says in `cache-status` whether it was made for somebody else");
    let curl = |year: u32| format!("curl -i http://{address}/report/{year}");
    println!("  {} & {} & {} & wait", curl(2024), curl(2024), curl(1999));
    let leaving = async move {
        told_to_end().await;
        // Another server takes over what still runs here after five seconds.
        layer.drain(Duration::from_secs(5)).await;
    };
    Ok(axum::serve(listener, app).with_graceful_shutdown(leaving).await?)
}

/// What is slow and costly.
async fn report(Path(year): Path<u32>) -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Relaxed) + 1;
    tokio::time::sleep(Duration::from_secs(2)).await;
    format!("all of {year}, by run {run}\n")
}
