//! Plain hyper with single flight on both sides: a server, and the client by which it
//! asks another server.
//!
//! ```text
//! cargo run --example hyper
//! ```
//!
//! Each page takes two seconds, since it needs the rates of a slow upstream. Equal
//! pages asked for at once are made once; pages that differ are made each, and the
//! upstream is still asked once.

use std::{
    convert::Infallible,
    process::ExitCode,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::net::TcpListener;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_singleflight::{Failure, HttpKey, SingleFlight, SingleFlightLayer};

#[path = "shared/listen.rs"]
mod listen;

type Upstream = SingleFlight<Client<HttpConnector, Empty<Bytes>>, HttpKey>;
type Answer = Result<Response<Full<Bytes>>, Infallible>;

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
    let upstream = TcpListener::bind("127.0.0.1:0").await?;
    let rates_at = format!("http://{}/rates", upstream.local_addr()?);
    tokio::spawn(serve(upstream, service_fn(rates)));

    // The client's side. What comes out of it is a response like any other.
    let client = Client::builder(TokioExecutor::new()).build_http();
    let layer = SingleFlightLayer::new(HttpKey::new()).namespace("hyper example: rates");
    let client = layer.layer(client);

    // The server's side. On one Redis two layers need two namespaces, or they would
    // take each other's flights for their own.
    let layer = SingleFlightLayer::new(HttpKey::new()).namespace("hyper example: pages");
    let pages = layer.layer(service_fn(move |request: Request<Incoming>| {
        page(request.uri().path().to_owned(), client.clone(), rates_at.clone())
    }));

    let listener = listen::listen(&address()?).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("  two equal pages and one other: two pages are made, the upstream is asked once");
    println!(
        "  curl http://{address}/a & curl http://{address}/a & curl http://{address}/b & wait"
    );
    serve(listener, pages).await;
    Ok(())
}

/// HTTP/1.1 and HTTP/2, a clone of the service for each connection.
async fn serve<S, B>(listener: TcpListener, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of files, as a rule: some are closed in a while.
                eprintln!("{error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            // A client that hangs up is no news.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// The upstream, which could be anywhere.
async fn rates(_: Request<Incoming>) -> Answer {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let asked = ASKED.fetch_add(1, Relaxed) + 1;
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(Response::new(format!("the rates of run {asked}").into()))
}

/// What the server does for a page.
async fn page(path: String, upstream: Upstream, rates_at: String) -> Answer {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let made = MADE.fetch_add(1, Relaxed) + 1;
    Ok(match ask(upstream, &rates_at).await {
        Ok(rates) => Response::new(format!("page {path} of run {made}, with {rates}\n").into()),
        Err(error) => {
            let mut response = Response::new(format!("no rates: {error}\n").into());
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    })
}

async fn ask(upstream: Upstream, uri: &str) -> Result<String, BoxError> {
    // The client's own error, for the caller whose request went out ...
    let response = upstream.oneshot(Request::get(uri).body(Empty::new())?).await?;
    // ... and what the others are told of it: no answer of the upstream.
    if let Some(failure) = response.extensions().get::<Failure>() {
        return Err(failure.clone().into());
    }
    let body = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}

fn address() -> Result<String, BoxError> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (None, _) => Ok("127.0.0.1:3000".to_owned()),
        (Some("--listen"), Some(address)) => Ok(address),
        _ => Err("usage: hyper [--listen HOST:PORT]".into()),
    }
}
