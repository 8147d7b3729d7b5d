//! A slow function that many ask at once, with single flight. No HTTP, no server.
//!
//! ```text
//! cargo run --example tower
//! ```

use std::{
    io,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tower::{ServiceBuilder, ServiceExt};
use tower_singleflight::{FlightError, SingleFlightLayer, key_fn};

struct Question {
    year: u32,
    /// Who asks: no part of the key, so that all share.
    caller: u32,
}

/// What others get goes through serde; the caller whose question is worked on gets
/// the very value that the function gave.
#[derive(Serialize, Deserialize)]
struct Report {
    text: String,
    made_for: u32,
}

static RUNS: AtomicU32 = AtomicU32::new(0);

/// What is slow and costly.
async fn report(Question { year, caller }: Question) -> io::Result<Report> {
    let run = RUNS.fetch_add(1, Relaxed) + 1;
    tokio::time::sleep(Duration::from_millis(500)).await;
    if year > 2030 {
        return Err(io::Error::other(format!("nothing is known of {year}")));
    }
    Ok(Report { text: format!("all of {year}, by run {run}"), made_for: caller })
}

#[tokio::main]
async fn main() {
    // With `.store(RedisStore::connect("redis://127.0.0.1/").await?)` callers in all
    // processes share.
    let layer =
        SingleFlightLayer::values(key_fn(|question: &Question| Some(question.year.to_string())));
    let reports = ServiceBuilder::new()
        .layer(layer.clone())
        // Below the layer a limit counts runs, not callers.
        .concurrency_limit(2)
        .service_fn(report);

    let start = Instant::now();
    let mut callers = JoinSet::new();
    // Five ask the same, two something else, and three what has no answer: that fails
    // twice, for two of them, and the third is told.
    for (caller, year) in [2024, 2024, 1999, 2024, 2024, 1999, 2024].into_iter().enumerate() {
        ask(&mut callers, reports.clone(), start, caller as u32 + 1, year);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for caller in 8..11 {
        ask(&mut callers, reports.clone(), start, caller, 2077);
    }
    callers.join_all().await;
    let stats = layer.stats();
    println!(
        "{} runs; {} callers had their own, {} shared one, {} failed with another's",
        RUNS.load(Relaxed),
        stats.owner,
        stats.follower_local,
        stats.failed,
    );
}

/// Asks in a task of its own, and prints what came of it.
fn ask<S>(callers: &mut JoinSet<()>, reports: S, start: Instant, caller: u32, year: u32)
where
    S: tower::Service<Question, Response = Report, Error = FlightError<io::Error>>,
    S: Send + 'static,
    S::Future: Send,
{
    callers.spawn(async move {
        let asked = start.elapsed().as_millis();
        let answer = match reports.oneshot(Question { year, caller }).await {
            Ok(report) if report.made_for == caller => format!("own run: {}", report.text),
            Ok(report) => format!("shared with caller {}: {}", report.made_for, report.text),
            // Inner's own error, as it is; `inner` need not be `Clone`.
            Err(FlightError::Inner(error)) => format!("own error: {error}"),
            // What others are told of it.
            Err(FlightError::Failure(failure)) => format!("{failure}"),
        };
        let done = start.elapsed().as_millis();
        println!("caller {caller:2}: asked at {asked:4} ms, answered at {done:4} ms, {answer}");
    });
}
