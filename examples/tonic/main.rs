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

use std::{net::SocketAddr, process::ExitCode};

use tower::BoxError;

mod client;
/// What `tonic-prost-build` makes of `reports.proto`; a service has this made by its
/// `build.rs`, and writes `tonic::include_proto!("reports")` here.
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod reports;
mod server;

const USAGE: &str =
    "usage: tonic [--listen ADDRESS:PORT] [--store redis://...]\n       tonic client ADDRESS:PORT";

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
    let mut args = std::env::args().skip(1).collect::<Vec<_>>().into_iter();
    let (mut listen, mut store) = (SocketAddr::from(([127, 0, 0, 1], 50051)), None);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("client", Some(address)) => return client::ask(&address).await,
            ("--listen", Some(address)) => listen = address.parse()?,
            ("--store", Some(url)) => store = Some(url),
            _ => return Err(USAGE.into()),
        }
    }
    server::serve(listen, store).await
}
