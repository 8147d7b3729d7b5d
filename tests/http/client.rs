//! The layer over a client: a fleet asks an upstream once.

use std::{convert::Infallible, net::SocketAddr};

use axum::{Router, extract::Request, routing::get as route_get};
use futures_util::{StreamExt, future::join_all, stream};
use http::{Method, StatusCode, Version};
use http_body_util::StreamBody;
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
};
use tower::{Layer, ServiceExt};
use tower_singleflight::{Bypass, FailureKind, FlightRole, HttpKey, KeyExtractor};

use crate::{
    net,
    support::{Full, Gate, Req, Runs, ask, callers, layer, nodes, read, until},
};

fn client(version: Version) -> Client<HttpConnector, Full> {
    Client::builder(TokioExecutor::new()).http2_only(version == Version::HTTP_2).build_http()
}

fn to(upstream: SocketAddr, path: &str) -> Req {
    http::Request::get(format!("http://{upstream}{path}")).body(Full::default()).unwrap()
}

/// An upstream that answers when the gate is open: with a length under `/whole`, in
/// pieces of unknown length under `/pieces`; `/echo` gives back what it is sent.
async fn upstream(runs: &Runs, gate: &Gate) -> SocketAddr {
    let (runs, gate) = (runs.clone(), gate.clone());
    let begin = move || {
        let (run, gate) = (runs.begin(), gate.clone());
        async move {
            gate.passed().await;
            let text = format!("run {}", run.number);
            run.finish();
            text
        }
    };
    let pieces = begin.clone();
    let pieces = async move || {
        let frames = stream::iter([pieces().await, ", and more".into()]);
        let frames = frames.map(|text| Ok::<_, Infallible>(http_body::Frame::data(text.into())));
        http::Response::new(axum::body::Body::new(StreamBody::new(frames)))
    };
    let echo = begin.clone();
    let echo = async move |request: Request| {
        echo().await;
        request.into_body()
    };
    let app = Router::new()
        .route("/whole", route_get(begin))
        .route("/pieces", route_get(pieces))
        .route("/echo", axum::routing::post(echo));
    net::axum(app).await
}

#[tokio::test]
async fn a_fleet_asks_an_upstream_once() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for (path, text) in [("/whole", "run 0"), ("/pieces", "run 0, and more")] {
            let (runs, gate) = (Runs::default(), Gate::new());
            let upstream = upstream(&runs, &gate).await;
            let nodes = nodes::<2>();
            let clients = nodes.each_ref().map(|node| node.layer(client(version)));
            let asked = clients
                .iter()
                .flat_map(|client| (0..10).map(move |_| ask(client, to(upstream, path))));
            let asked = tokio::spawn(join_all(asked.collect::<Vec<_>>()));
            until("all callers", || callers(&nodes[0]) + callers(&nodes[1]) == 20).await;
            until("the run", || runs.total() > 0).await;
            gate.open();
            let answers = asked.await.unwrap();
            assert_eq!(runs.total(), 1, "{version:?} {path}");
            assert_eq!(answers.iter().filter(|answer| answer.is_owner()).count(), 1);
            for answer in answers {
                assert_eq!((answer.status, answer.text()), (StatusCode::OK, text));
                let ours = if answer.is_owner() { version } else { Version::HTTP_11 };
                assert_eq!(answer.version, ours);
            }
        }
    }
}

#[tokio::test]
async fn b5_an_upstream_that_is_down_is_the_clients_own_error() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let nodes = nodes::<2>();
    let clients = nodes.each_ref().map(|node| node.layer(client(Version::HTTP_11)));
    let asked = clients
        .iter()
        .flat_map(|client| (0..10).map(|_| client.clone().oneshot(to(address, "/whole"))));
    let (mut errors, mut failures) = (0, 0);
    for result in join_all(asked).await {
        match result {
            Err(error) => {
                let error: Error = error;
                assert!(error.is_connect());
                errors += 1;
            }
            Ok(response) => {
                let answer = read(response).await.unwrap();
                assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
                // Told apart from an answer of the upstream.
                let failure = answer.failure.unwrap();
                assert_eq!(failure.kind(), FailureKind::OwnerFailed);
                assert_eq!(failure.report(), Some("client error (Connect)"));
                failures += 1;
            }
        }
    }
    assert_eq!((errors, failures), (2, 18));
}

#[tokio::test]
async fn m8_what_is_no_get_goes_to_the_upstream_as_it_is() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let (runs, gate) = (Runs::default(), Gate::new());
        gate.open();
        let upstream = upstream(&runs, &gate).await;
        let client = layer().layer(client(version));
        let posts = (0..5).map(|n| {
            let mut request = to(upstream, "/echo");
            *request.method_mut() = Method::POST;
            *request.body_mut() = Full::from(format!("body {n}"));
            ask(&client, request)
        });
        for (n, answer) in join_all(posts).await.into_iter().enumerate() {
            assert_eq!(answer.text(), format!("body {n}"));
            assert_eq!(answer.role, Some(FlightRole::Bypass(Bypass::Method)));
        }
        assert_eq!(runs.total(), 5);
    }
}

/// Switches each connection to an echo of bytes.
async fn switching() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).await? > 2 {
                    line.clear();
                }
                let head = "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
                stream.write_all(head.as_bytes()).await?;
                let (mut from, mut to) = tokio::io::split(stream);
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    address
}

#[tokio::test]
async fn m4_each_upgrade_has_its_own_connection() {
    let upstream = switching().await;
    let client = layer().layer(client(Version::HTTP_11));
    let tunnels = (0..3).map(|n| {
        let mut request = to(upstream, "/tunnel");
        let headers = request.headers_mut();
        headers.insert("connection", http::HeaderValue::from_static("upgrade"));
        headers.insert("upgrade", http::HeaderValue::from_static("echo"));
        let client = client.clone();
        async move {
            let response = client.oneshot(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
            let role = response.extensions().get();
            assert_eq!(role, Some(&FlightRole::Bypass(Bypass::Upgrade)));
            let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
            let text = format!("through {n}");
            tunnel.write_all(text.as_bytes()).await.unwrap();
            let mut back = vec![0; text.len()];
            tunnel.read_exact(&mut back).await.unwrap();
            assert_eq!(back, text.as_bytes());
        }
    });
    join_all(tunnels).await;
}

/// A caller that leaves takes its request to the upstream along, if it was the last.
#[tokio::test]
async fn a_request_that_nobody_waits_for_is_given_up() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let upstream = upstream(&runs, &gate).await;
    let client = layer().layer(client(Version::HTTP_11));
    let [first, second] = [(); 2].map(|()| tokio::spawn(ask(&client, to(upstream, "/whole"))));
    until("the run", || runs.running() == 1).await;
    first.abort();
    gate.open();
    assert_eq!(second.await.unwrap().text(), "run 0");
    let gate = Gate::new();
    let upstream = self::upstream(&runs, &gate).await;
    let third = tokio::spawn(ask(&client, to(upstream, "/whole")));
    until("the run", || runs.running() == 1).await;
    third.abort();
    until("it is dropped", || runs.dropped() == 1).await;
}

/// A client's request says of itself where it goes: by its URI alone.
#[test]
fn k3_schemes_and_their_ports_are_told_apart() {
    let key = |uri: &str| {
        let request = http::Request::get(uri).body(()).unwrap();
        HttpKey::new().extract(&request).unwrap()
    };
    let all = [
        "http://a.test/p",
        "https://a.test/p",
        "http://a.test:443/p",
        "https://a.test:80/p",
        "http://a.test:8080/p",
        "http://user:one@a.test/p",
        "http://user:two@a.test/p",
    ];
    for (place, uri) in all.iter().enumerate() {
        assert!(all[..place].iter().all(|other| key(other) != key(uri)), "{uri}");
    }
    for (one, same) in [
        ("http://a.test/p", "HTTP://A.test:80/p"),
        ("https://a.test/p", "https://A.TEST:443/p"),
        ("https://a.test", "https://a.test/"),
    ] {
        assert_eq!(key(one), key(same), "{same}");
    }
}
