//! Keys over bodies on real servers (rows K4, K5).

use std::{convert::Infallible, net::SocketAddr};

use axum::{Router, body::Body, extract::Request, response::Response, routing};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tower_singleflight::{HttpKey, MemoryStore, SingleFlightLayer};

use crate::{
    net::{self, Raw},
    posts::{Boxed, post},
    script::{Script, Step, trailers},
    support::{Answer, Gate, Runs, callers, read, until},
};

const MIB: usize = 1 << 20;

/// Sends over a connection of its own, and reads all of the answer.
async fn ask(server: SocketAddr, http2: bool, mut request: http::Request<Boxed>) -> Answer {
    let stream = TokioIo::new(TcpStream::connect(server).await.unwrap());
    let response = if http2 {
        let (mut client, connection) =
            http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        client.send_request(request).await
    } else {
        request.headers_mut().insert("host", "a.test".parse().unwrap());
        *request.uri_mut() = "/".parse().unwrap();
        let (mut client, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        client.send_request(request).await
    };
    read(response.unwrap()).await.unwrap()
}

/// Waits at the gate, then answers with the body and what its trailers were.
fn app(runs: &Runs, gate: &Gate) -> Router {
    let (runs, gate) = (runs.clone(), gate.clone());
    let handler = move |request: Request| {
        let (run, gate) = (runs.begin(), gate.clone());
        async move {
            let body = request.into_body().collect().await.unwrap();
            gate.passed().await;
            run.finish();
            let mut response = Response::new(Body::empty());
            if let Some(trailers) = body.trailers() {
                response.headers_mut().extend(trailers.clone());
            }
            response.map(|_| Body::from(body.to_bytes()))
        }
    };
    Router::new().route("/", routing::post(handler))
}

#[tokio::test]
async fn k4_axum_servers_share_bodies_that_say_the_same() {
    let texts = [
        r#"{"a":{"x":[1,2,{"k":"é","j":1}],"y":null},"b":true}"#,
        " {\"b\" : true,\n\"a\":{\"y\":null,\"x\":[1,2,{\"j\":1,\"k\":\"\\u00E9\"}]}}",
    ];
    let (runs, gate, store) = (Runs::default(), Gate::new(), MemoryStore::new());
    let node = || SingleFlightLayer::new(HttpKey::new().json_body(Body::new)).store(store.clone());
    let [here, there] = [node(), node()];
    let servers = [
        net::axum(app(&runs, &gate).layer(here.clone())).await,
        net::axum(app(&runs, &gate).layer(there.clone())).await,
    ];
    let opened = async {
        until("all callers", || callers(&here) + callers(&there) == 5).await;
        gate.open();
    };
    let ask = |server: usize, text: &str| {
        ask(servers[server], server == 1, post(http_body_util::Full::from(text.to_owned())))
    };
    let array = texts[0].replace("1,2", "2,1");
    let (a, b, c, d, other, ()) = tokio::join!(
        ask(0, texts[0]),
        ask(0, texts[1]),
        ask(1, texts[0]),
        ask(1, texts[1]),
        ask(0, &array),
        opened
    );
    assert_eq!(runs.total(), 2, "one for each order of the array");
    assert_eq!(other.text(), array);
    let answers = [a, b, c, d];
    assert!(answers.iter().all(|answer| answer.body == answers[0].body));
    assert!(texts.contains(&answers[0].text()));
    let collapsed =
        |answer: &&Answer| answer.headers["cache-status"].to_str().unwrap().ends_with("collapsed");
    assert_eq!(answers.iter().filter(collapsed).count(), 3);
}

#[tokio::test]
async fn k5_a_handler_sees_the_same_bytes_and_trailers() {
    let body: Vec<u8> = (0..MIB).map(|at| (at / 7 + at) as u8).collect();
    let body = Bytes::from(body);
    for http2 in [false, true] {
        let (runs, gate) = (Runs::default(), Gate::new());
        // With its trailers it is a little more than the default limit.
        let key = HttpKey::new().json_body(Body::new).body_limit(MIB + 100);
        let node = SingleFlightLayer::new(key);
        let server = net::axum(app(&runs, &gate).layer(node.clone())).await;
        let request = || {
            let pieces = (0..MIB).step_by(60_000);
            let steps = pieces.map(|at| Step::Data(body.slice(at..(at + 60_000).min(MIB))));
            post(Script::new(steps.chain([Step::Trailers])))
        };
        let opened = async {
            until("both callers", || callers(&node) == 2).await;
            gate.open();
        };
        let (one, two, ()) =
            tokio::join!(ask(server, http2, request()), ask(server, http2, request()), opened);
        assert_eq!(runs.total(), 1);
        for answer in [one, two] {
            assert!(answer.body == body, "http2: {http2}: other bytes");
            assert_eq!(answer.headers["x-sum"], trailers()["x-sum"], "http2: {http2}");
        }
    }
}

#[tokio::test]
async fn k5_a_body_over_the_limit_passes_through_whole() {
    const CHUNK: usize = 64 * 1024;
    let chunk = Bytes::from((0..CHUNK).map(|at| (at / 3 + at) as u8).collect::<Vec<_>>());
    let expected = chunk.clone();
    let handler = move |request: Request| {
        let expected = expected.clone();
        async move {
            let (mut body, mut at) = (request.into_body(), 0);
            while let Some(frame) = body.frame().await {
                let Ok(mut data) = frame.unwrap().into_data() else { continue };
                while !data.is_empty() {
                    let place = at % CHUNK;
                    let part = data.split_to(data.len().min(CHUNK - place));
                    assert!(part == expected.slice(place..place + part.len()), "at {at}");
                    at += part.len();
                }
            }
            at.to_string()
        }
    };
    let key = HttpKey::new().raw_body(Body::new).body_limit(2 * MIB);
    let node = SingleFlightLayer::new(key);
    let app = Router::new().route("/", routing::post(handler)).layer(node.clone());
    let server = net::axum(app).await;
    let count = 100 * MIB / CHUNK;
    let request = || {
        let frame = Frame::data(chunk.clone());
        let chunks = (0..count).map(move |_| {
            Ok::<_, Infallible>(match frame.data_ref() {
                Some(data) => Frame::data(data.clone()),
                None => unreachable!(),
            })
        });
        post(StreamBody::new(tokio_stream::iter(chunks)))
    };
    let (one, two) = tokio::join!(ask(server, false, request()), ask(server, true, request()));
    for answer in [one, two] {
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "104857600"));
        assert_eq!(answer.headers["cache-status"], "tower-singleflight; fwd=bypass");
    }
    assert_eq!(node.stats().owner, 0);
}

#[tokio::test]
async fn a_client_that_asks_before_it_sends_is_told_to_go_on() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let node = SingleFlightLayer::new(HttpKey::new().json_body(Body::new));
    let server = net::axum(app(&runs, &gate).layer(node.clone())).await;
    let head = "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-type: application/json\r\n\
                expect: 100-continue\r\ncontent-length: 7\r\n\r\n";
    let mut asking = [Raw::connect(server).await, Raw::connect(server).await];
    for raw in &mut asking {
        raw.send(head).await;
        assert_eq!(raw.answer(true).await.status, 100);
        raw.send("{\"a\":1}").await;
    }
    until("both callers", || callers(&node) == 2).await;
    gate.open();
    for raw in &mut asking {
        let wire = raw.answer(false).await;
        assert_eq!((wire.status, &wire.body[..]), (200, &b"{\"a\":1}"[..]));
    }
    assert_eq!(runs.total(), 1);
}

#[tokio::test]
async fn k5_a_body_at_the_limit_is_shared_and_one_byte_more_is_not() {
    for (text, shared) in [("{\"a\":1}", true), ("{\"a\":12}", false)] {
        let (runs, gate) = (Runs::default(), Gate::new());
        let node = SingleFlightLayer::new(HttpKey::new().json_body(Body::new).body_limit(7));
        let server = net::axum(app(&runs, &gate).layer(node.clone())).await;
        let mut asking = Vec::new();
        let length = format!("content-length: {}", text.len());
        let (one, two) = text.split_at(3);
        let chunks = format!("3\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", two.len());
        for (said, body) in [(&*length, text), ("transfer-encoding: chunked", &*chunks)] {
            let mut raw = Raw::connect(server).await;
            let head = "POST / HTTP/1.1\r\nhost: a.test\r\nexpect: 100-continue\r\n";
            raw.send(&format!("{head}content-type: application/json\r\n{said}\r\n\r\n")).await;
            assert_eq!(raw.answer(true).await.status, 100, "{text} {said}");
            raw.send(body).await;
            asking.push(raw);
        }
        let ran = if shared { 1 } else { 2 };
        let waiting = if shared { 2 } else { 0 };
        until("all callers", || callers(&node) == waiting && runs.running() == ran).await;
        gate.open();
        for raw in &mut asking {
            let wire = raw.answer(false).await;
            assert_eq!((wire.status, &wire.body[..]), (200, text.as_bytes()));
        }
        assert_eq!((runs.total(), node.stats().bypass), (ran, if shared { 0 } else { 2 }));
    }
}

/// Bytes that are coded for one connection are another body than the same bytes bare.
#[tokio::test]
async fn a_body_that_is_coded_for_its_connection_is_not_shared() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let node = SingleFlightLayer::new(HttpKey::new().raw_body(Body::new));
    let server = net::axum(app(&runs, &gate).layer(node.clone())).await;
    let mut asking = Vec::new();
    for coding in ["chunked", "gzip, chunked", "Chunked"] {
        let mut raw = Raw::connect(server).await;
        let head =
            format!("POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: {coding}\r\n\r\n");
        raw.send(&format!("{head}3\r\nabc\r\n0\r\n\r\n")).await;
        asking.push(raw);
    }
    until("all callers", || callers(&node) == 2 && runs.running() == 2).await;
    gate.open();
    let mut alone = Vec::new();
    for raw in &mut asking {
        let wire = raw.answer(false).await;
        assert_eq!((wire.status, &wire.body[..]), (200, &b"abc"[..]));
        alone.push(wire.all("cache-status") == ["tower-singleflight; fwd=bypass"]);
    }
    assert_eq!((alone, runs.total()), (vec![false, true, false], 2));
}

#[tokio::test]
async fn a_client_that_breaks_off_its_body_is_not_shared() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let handler = {
        let (runs, gate) = (runs.clone(), gate.clone());
        move |request: Request| {
            let (run, gate) = (runs.begin(), gate.clone());
            async move {
                let body = request.into_body().collect().await;
                assert!(body.is_err());
                run.finish();
                gate.open();
            }
        }
    };
    let node = SingleFlightLayer::new(HttpKey::new().json_body(Body::new));
    let app = Router::new().route("/", routing::post(handler)).layer(node.clone());
    let mut raw = Raw::connect(net::axum(app).await).await;
    raw.send(
        "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-type: application/json\r\n\
              transfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\nnonsense\r\n",
    )
    .await;
    gate.passed().await;
    until("the run alone", || node.stats().bypass == 1).await;
    assert_eq!((runs.total(), node.stats().owner), (1, 0));
}
