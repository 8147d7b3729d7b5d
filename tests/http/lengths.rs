//! Lengths that are true, on connections that can be used again (row M5), and
//! trailers.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::Incoming;
use tower::{Layer, service_fn};
use tower_singleflight::{HttpKey, SingleFlightLayer};

use crate::{
    net,
    support::{Full, Gate, Runs, callers, get, nodes, until},
};

type AnyBody = BoxBody<Bytes, Infallible>;

fn stream(frames: &[Frame<Bytes>]) -> AnyBody {
    let frames: Vec<_> = frames
        .iter()
        .map(|frame| match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => Frame::data(data.clone()),
            (_, trailers) => Frame::trailers(trailers.unwrap().clone()),
        })
        .map(Ok)
        .collect();
    BoxBody::new(StreamBody::new(tokio_stream::iter(frames)))
}

fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

/// The kinds of answers, by path, and their bodies.
const KINDS: [(&str, &str); 5] = [
    ("/streamed", "hello world"),
    ("/length", "hello world"),
    ("/both", "hello world"),
    ("/empty", ""),
    ("/streamed-empty", ""),
];

fn answer(path: &str) -> Response<AnyBody> {
    let words = [data("hello "), data("world")];
    let mut response = match path {
        "/streamed" | "/both" => Response::new(stream(&words)),
        "/length" => Response::new(BoxBody::new(Full::from("hello world"))),
        "/empty" => Response::new(BoxBody::new(Full::default())),
        "/streamed-empty" => Response::new(stream(&[])),
        other => panic!("{other}"),
    };
    if path == "/length" {
        response.headers_mut().insert("content-length", HeaderValue::from(11));
    }
    if path == "/both" {
        response.headers_mut().insert("transfer-encoding", HeaderValue::from_static("chunked"));
    }
    response
}

/// A server for each node, whose runs wait at the gate.
async fn servers(runs: &Runs, gate: &Gate) -> ([SingleFlightLayer<HttpKey>; 2], Vec<SocketAddr>) {
    let nodes = nodes::<2>();
    let mut addresses = Vec::new();
    for node in &nodes {
        let (runs, gate) = (runs.clone(), gate.clone());
        let inner = service_fn(move |request: Request<Incoming>| {
            let (run, gate) = (runs.begin(), gate.clone());
            async move {
                gate.passed().await;
                run.finish();
                Ok::<_, Infallible>(answer(request.uri().path()))
            }
        });
        addresses.push(net::hyper(node.layer(inner)).await);
    }
    (nodes, addresses)
}

#[tokio::test]
async fn m5_lengths_on_http1() {
    for (path, body) in KINDS {
        let (runs, gate) = (Runs::default(), Gate::new());
        let (nodes, servers) = servers(&runs, &gate).await;
        let request = format!("GET {path} HTTP/1.1\r\nhost: a.test\r\n\r\n");
        let mut connections = Vec::new();
        for server in [servers[0], servers[0], servers[1], servers[1]] {
            let mut raw = net::Raw::connect(server).await;
            raw.send(&request).await;
            connections.push(raw);
        }
        until("all callers", || nodes.iter().all(|node| callers(node) == 2)).await;
        gate.open();
        let mut collapsed = 0;
        for raw in &mut connections {
            let wire = raw.answer(false).await;
            assert_eq!((wire.status, &wire.body[..]), (200, body.as_bytes()), "{path}");
            let lengths = wire.all("content-length");
            let chunked = wire.all("transfer-encoding");
            assert_eq!(lengths.len() + chunked.len(), 1, "{path}: {wire:?}");
            if let [length] = lengths[..] {
                assert_eq!(length.parse(), Ok(body.len()), "{path}");
            }
            let [status] = wire.all("cache-status")[..] else { panic!("{wire:?}") };
            if status.ends_with("; collapsed") {
                collapsed += 1;
                assert_eq!(lengths.len(), 1, "a follower of a whole answer knows its length");
            }
        }
        assert_eq!((collapsed, runs.total()), (3, 1), "{path}");
        // Every connection is good for one more.
        for raw in &mut connections {
            raw.send("GET /length HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
            assert_eq!(raw.answer(false).await.body, b"hello world", "{path}");
        }
    }
}

#[tokio::test]
async fn m5_lengths_on_http2() {
    for (path, body) in KINDS {
        let (runs, gate) = (Runs::default(), Gate::new());
        let (nodes, servers) = servers(&runs, &gate).await;
        let mut asked = Vec::new();
        for server in [servers[0], servers[0], servers[1], servers[1]] {
            let mut client = net::http2(server).await;
            asked.push(tokio::spawn(async move {
                let first = client.send(get(path)).await.unwrap();
                let hint = first.body().size_hint().exact();
                let first = crate::support::read(first).await.unwrap();
                (first, hint, client.ask(get("/length")).await)
            }));
        }
        until("all callers", || nodes.iter().all(|node| callers(node) == 2)).await;
        gate.open();
        for asked in asked {
            let (first, hint, second) = asked.await.unwrap();
            assert_eq!((first.text(), second.text()), (body, "hello world"), "{path}");
            assert!(hint.is_none_or(|hint| hint == body.len() as u64), "{path}");
            assert!(!first.headers.contains_key("transfer-encoding"), "{path}");
            if let Some(length) = first.headers.get("content-length") {
                assert_eq!(length.to_str().unwrap().parse(), Ok(body.len()), "{path}");
            }
        }
    }
}

fn with_trailers() -> AnyBody {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("7"));
    trailers.append("x-sum", HeaderValue::from_bytes(b"\xe9").unwrap());
    stream(&[data("hello"), Frame::trailers(trailers)])
}

#[tokio::test]
async fn trailers_reach_every_caller() {
    let gate = Gate::new();
    let nodes = nodes::<2>();
    let mut asked = Vec::new();
    for node in &nodes {
        let gate = gate.clone();
        let inner = service_fn(move |_: Request<Incoming>| {
            let gate = gate.clone();
            async move {
                gate.passed().await;
                let mut response = Response::new(with_trailers());
                response.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
                Ok::<_, Infallible>(response)
            }
        });
        let server = net::hyper(node.layer(inner)).await;
        // On HTTP/1.1 trailers need a chunked body and a client that wants them.
        let mut one = net::http1(server).await;
        let mut two = net::http2(server).await;
        let mut more = net::http2(server).await;
        asked.push(tokio::spawn(async move { two.ask(get("/")).await }));
        asked.push(tokio::spawn(async move { more.ask(get("/")).await }));
        asked.push(tokio::spawn(async move { one.ask(get("/")).await }));
    }
    until("all callers", || nodes.iter().all(|node| callers(node) == 3)).await;
    gate.open();
    let mut shared = 0;
    for asked in asked {
        let answer = asked.await.unwrap();
        assert_eq!(answer.text(), "hello");
        let collapsed = answer.headers["cache-status"].to_str().unwrap().ends_with("collapsed");
        shared += usize::from(collapsed);
        if answer.version == http::Version::HTTP_2 {
            let sums: Vec<_> = answer.trailers.as_ref().unwrap().get_all("x-sum").iter().collect();
            assert_eq!(sums.len(), 2);
            assert_eq!((sums[0].as_bytes(), sums[1].as_bytes()), (&b"7"[..], &b"\xe9"[..]));
        }
    }
    assert_eq!(shared, 5);
}

#[tokio::test]
async fn an_unread_body_has_its_trailers_still() {
    let node = crate::support::layer();
    let inner = service_fn(|_: crate::support::Req| async {
        Ok::<_, Infallible>(Response::new(with_trailers()))
    });
    let response = tower::ServiceExt::oneshot(node.layer(inner), get("/")).await.unwrap();
    let mut body = Box::pin(response.into_body());
    assert!(!body.is_end_stream());
    assert!(body.frame().await.unwrap().unwrap().is_data());
    assert!(!body.is_end_stream());
    assert!(body.frame().await.unwrap().unwrap().is_trailers());
    assert!(body.is_end_stream());
    assert!(body.frame().await.is_none());
}
