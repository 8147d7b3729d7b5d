//! A gRPC service with single flight: a method that answers once, and one that answers
//! by a stream.
//!
//! ```text
//! cargo run --example tonic
//! cargo run --example tonic -- client 127.0.0.1:50051
//! ```
//!
//! With `--store redis://127.0.0.1/`, and `--listen` for a second one, several servers
//! share their runs.

use std::process::ExitCode;

use tower::BoxError;

mod client;
/// What `tonic-prost-build` makes of `reports.proto`; a service has this made by its
/// `build.rs`, and writes `tonic::include_proto!("reports")` here.
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod reports;
mod server;
#[path = "../shared/mod.rs"]
mod shared;

const USAGE: &str =
    "usage: tonic [--listen HOST:PORT] [--store redis://...], or: tonic client HOST:PORT";

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), BoxError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [client, address] if client == "client" => client::ask(address).await,
        _ => server::serve(shared::Args::read(USAGE, "127.0.0.1:50051")?).await,
    }
}
