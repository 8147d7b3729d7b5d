//! Methods, ranges and conditions (rows M1, M2, M3, M8).

use std::convert::Infallible;

use axum::{Router, routing::get as route_get};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{Bypass, FlightRole, MemoryStore, SingleFlightLayer, key_fn};

use crate::{
    net,
    support::{
        Full, Gate, Inner, Req, Runs, ask, callers, crowd, get, layer, ms, nodes, numbered, sure,
        text, until, with,
    },
};

fn method(method: &Method, path: &str) -> Req {
    let mut request = get(path);
    request.method_mut().clone_from(method);
    request
}

/// HEAD gets the head of GET, and no body.
fn heads(runs: &Runs) -> Inner {
    sure(runs, ms(100), |_, request| {
        let mut response = text(if request.method() == Method::HEAD { "" } else { "hello" });
        response.headers_mut().insert("content-length", 5.into());
        response
    })
}

#[tokio::test(start_paused = true)]
async fn m1_head_and_get_do_not_share() {
    for order in [[Method::HEAD, Method::GET], [Method::GET, Method::HEAD]] {
        let runs = Runs::default();
        let [here, there] = nodes().map(|node| node.layer(heads(&runs)));
        let [a, b] = order.clone();
        let (a, b, c, d) = tokio::join!(
            ask(&here, method(&a, "/")),
            ask(&here, method(&b, "/")),
            ask(&there, method(&a, "/")),
            ask(&there, method(&b, "/")),
        );
        assert_eq!(runs.total(), 2);
        for (answer, method) in [&a, &b, &c, &d].into_iter().zip(order.iter().cycle()) {
            assert_eq!(answer.status, StatusCode::OK);
            assert_eq!(answer.headers["content-length"], "5");
            assert_eq!(answer.text(), if method == Method::HEAD { "" } else { "hello" });
        }
        assert!(c.is_shared() && d.is_shared());
    }
}

#[tokio::test]
async fn m1_head_over_a_connection() {
    let (runs, gate, node) = (Runs::default(), Gate::new(), layer());
    let handler = {
        let (runs, gate) = (runs.clone(), gate.clone());
        move || {
            let (run, gate) = (runs.begin(), gate.clone());
            async move {
                gate.passed().await;
                run.finish();
                "hello"
            }
        }
    };
    let server = net::axum(Router::new().route("/", route_get(handler)).layer(node.clone())).await;
    let mut connections = Vec::new();
    for kind in ["HEAD", "HEAD", "GET", "GET"] {
        let mut raw = net::Raw::connect(server).await;
        raw.send(&format!("{kind} / HTTP/1.1\r\nhost: a.test\r\n\r\n")).await;
        connections.push((kind, raw));
    }
    until("all callers", || callers(&node) == 4).await;
    gate.open();
    for (kind, raw) in &mut connections {
        let wire = raw.answer(*kind == "HEAD").await;
        assert_eq!((wire.status, wire.all("content-length")), (200, vec!["5"]), "{kind}");
        assert_eq!(wire.body, if *kind == "HEAD" { "" } else { "hello" }.as_bytes());
        // Nothing is left on the connection that would be taken for an answer.
        raw.send("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
        assert_eq!(raw.answer(false).await.body, b"hello");
    }
    assert_eq!(runs.total(), 2 + 4);
}

#[tokio::test(start_paused = true)]
async fn m2_ranges_bypass() {
    let runs = Runs::default();
    let inner = sure(&runs, ms(100), |_, request| {
        let whole = "0123456789abcdefghij";
        let (status, part) = match request.headers().get("range").map(|range| range.as_bytes()) {
            Some(b"bytes=0-9") => (206, &whole[..10]),
            Some(b"bytes=10-19") => (206, &whole[10..]),
            _ => (200, whole),
        };
        let mut response = text(part);
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    });
    let service = layer().layer(inner);
    let range = |range| with(get("/"), "range", range);
    let (a, b, c, d) = tokio::join!(
        ask(&service, range("bytes=0-9")),
        ask(&service, range("bytes=10-19")),
        ask(&service, get("/")),
        ask(&service, range("bytes=0-9")),
    );
    assert_eq!((a.status.as_u16(), a.text()), (206, "0123456789"));
    assert_eq!((b.status.as_u16(), b.text()), (206, "abcdefghij"));
    assert_eq!((c.status.as_u16(), c.text()), (200, "0123456789abcdefghij"));
    assert_eq!(d.text(), "0123456789");
    assert_eq!(runs.total(), 4);
    for answer in [a, b, d] {
        assert_eq!(answer.role, Some(FlightRole::Bypass(Bypass::Range)));
    }
}

#[tokio::test(start_paused = true)]
async fn m3_conditional_requests_never_share() {
    for (name, value, status) in [
        ("if-none-match", "\"x\"", 304),
        ("if-modified-since", "Tue, 15 Nov 1994 08:12:31 GMT", 304),
        ("if-match", "\"y\"", 412),
    ] {
        for conditional_first in [true, false] {
            let runs = Runs::default();
            let inner = sure(&runs, ms(100), move |_, request| {
                let asked = request.headers().contains_key(name);
                let mut response = text(if asked { "" } else { "hello" });
                if asked {
                    *response.status_mut() = StatusCode::from_u16(status).unwrap();
                }
                response
            });
            let [here, there] = nodes().map(|node| node.layer(inner.clone()));
            let [first, second] = match conditional_first {
                true => [with(get("/"), name, value), get("/")],
                false => [get("/"), with(get("/"), name, value)],
            };
            let (a, b, c, d) = tokio::join!(
                ask(&here, first.clone()),
                ask(&here, second.clone()),
                ask(&there, first),
                ask(&there, second)
            );
            let answers = if conditional_first { [a, b, c, d] } else { [b, a, d, c] };
            for pair in answers.chunks(2) {
                assert_eq!(pair[0].status.as_u16(), status, "{name}");
                assert_eq!(pair[0].role, Some(FlightRole::Bypass(Bypass::Conditional)));
                assert_eq!((pair[1].status.as_u16(), pair[1].text()), (200, "hello"), "{name}");
            }
            assert_eq!(runs.total(), 3, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m8_other_methods_do_not_share() {
    for name in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "TRACE", "get", "BREW"] {
        let (runs, store) = (Runs::default(), MemoryStore::new());
        let node = layer().store(store.clone());
        let service = node.layer(numbered(&runs, ms(100)));
        let name = Method::from_bytes(name.as_bytes()).unwrap();
        let answers = async {
            let services = [&service];
            let callers = crowd(&services, 2, method(&name, "/"));
            let look = async {
                tokio::time::sleep(ms(50)).await;
                assert!(store.is_empty() && node.flights().is_empty(), "{name}");
            };
            tokio::join!(callers, look).0
        };
        for answer in answers.await {
            assert_eq!(answer.role, Some(FlightRole::Bypass(Bypass::Method)), "{name}");
        }
        assert_eq!((runs.total(), runs.highest()), (2, 2), "{name}");
        assert!(store.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn m8_a_key_function_shares_a_post_without_body() {
    let runs = Runs::default();
    let by_path = key_fn(|request: &Req| Some(request.uri().path().to_owned()));
    let service = SingleFlightLayer::new(by_path).layer(numbered(&runs, ms(100)));
    let answers = crowd(&[&service], 2, method(&Method::POST, "/")).await;
    assert_eq!(runs.total(), 1);
    assert!(answers.iter().any(|answer| answer.is_shared()));
    // A body is never part of such a key.
    let post = method(&Method::POST, "/").map(|_| Full::from("question"));
    let answers = crowd(&[&service], 2, post).await;
    assert_eq!(runs.total(), 3);
    assert!(answers.iter().all(|a| a.role == Some(FlightRole::Bypass(Bypass::Body))));
}

#[tokio::test(start_paused = true)]
async fn m8_a_streaming_body_is_untouched() {
    type Stream = StreamBody<ReceiverStream<Result<Frame<Bytes>, Infallible>>>;
    let echo = service_fn(|request: Request<Stream>| async {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let service = layer().layer(echo);
    for name in [Method::POST, Method::GET] {
        let (sender, frames) = mpsc::channel(1);
        let body = StreamBody::new(ReceiverStream::new(frames));
        let request = Request::builder().method(name).uri("http://a.test/").body(body).unwrap();
        let mut body = Box::pin(service.clone().oneshot(request).await.unwrap().into_body());
        // Each frame is out before the next one is in.
        for word in ["one", "two"] {
            sender.send(Ok(Frame::data(Bytes::from(word)))).await.unwrap();
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), word);
        }
        assert!(!body.is_end_stream());
        drop(sender);
        assert!(body.frame().await.is_none());
    }
}
