//! An axum server with single flight, and nothing else.
//!
//! ```text
//! cargo run --example axum
//! ```
//!
//! `--example server` has more to it: a store that several processes meet on, streams,
//! metrics, a page, and a good end.

use std::{
    error::Error,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use axum::{Router, extract::Path, routing::get};
use tokio::net::TcpListener;
use tower_singleflight::{HttpKey, SingleFlightLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A fleet shares with `.store(RedisStore::connect("redis://127.0.0.1/").await?)`.
    let layer = SingleFlightLayer::new(HttpKey::new());
    let app = Router::new()
        .route("/report/{year}", get(report))
        // Around what is slow: routes that are added below are not shared.
        .layer(layer)
        .route("/health", get(async || "well\n"));

    let args: Vec<String> = std::env::args().skip(1).collect();
    let listen = match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => "127.0.0.1:3000",
        ["--listen", address] => address,
        _ => return Err("usage: axum [--listen ADDRESS:PORT]".into()),
    };
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("  two ask for one report, and a third for another one: two runs; each answer");
    println!("  says in `cache-status` whether it was made for somebody else");
    let curl = |year: u32| format!("curl -i http://{address}/report/{year}");
    println!("  {} & {} & {} & wait", curl(2024), curl(2024), curl(1999));
    Ok(axum::serve(listener, app).await?)
}

/// What is slow and costly.
async fn report(Path(year): Path<u32>) -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Relaxed) + 1;
    tokio::time::sleep(Duration::from_secs(2)).await;
    format!("all of {year}, by run {run}\n")
}
