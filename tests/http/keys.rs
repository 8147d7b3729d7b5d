//! Requests that look alike where their parts are joined (row K1), over real connections.

use axum::{Router, body::Body, extract::Request};
use http::Method;
use http_body_util::BodyExt;
use tower_singleflight::{HttpKey, SingleFlightLayer};

use crate::{
    net,
    support::{Full, Gate, Req, Runs, callers, get, until, with},
};

fn post(path: &str, body: &'static str) -> Req {
    let mut request = get(path);
    *request.method_mut() = Method::POST;
    *request.body_mut() = Full::from(body);
    request
}

/// Says all of what it was asked, once the gate is open.
async fn answer(request: Request, runs: Runs, gate: Gate) -> String {
    let run = runs.begin();
    gate.passed().await;
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let fields = ["a", "b"].map(|name| parts.headers.get(name).cloned());
    run.finish();
    format!("{} {} {fields:?} {body:?}", parts.method, parts.uri)
}

#[tokio::test]
async fn k1_parts_are_never_taken_for_others() {
    let pairs = || {
        [
            [with(get("/"), "a", "x:b=y"), with(with(get("/"), "a", "x"), "b", "y")],
            [with(get("/"), "a", "x\tb"), with(with(get("/"), "a", "x"), "b", "")],
            [with(get("/"), "a", ""), get("/")],
            [with(with(get("/"), "a", "1"), "a", "2"), with(get("/"), "a", "1, 2")],
            [post("/items/a", "b|c"), post("/items/a%7Cb", "c")],
            [post("/items/a|b", "c"), post("/items/a", "|bc")],
            [post("/p", "\0\u{1e}\u{1f}"), post("/p", "\0\u{1e}")],
            [get("/?q=1%3D2"), get("/?q=1=2")],
            [get("/p"), get("/p?")],
        ]
    };
    for http2 in [false, true] {
        for pair in pairs() {
            let (runs, gate) = (Runs::default(), Gate::new());
            let node = SingleFlightLayer::new(HttpKey::new().sorted_query().raw_body(Body::new));
            let (counted, held) = (runs.clone(), gate.clone());
            let handler = move |request| answer(request, counted.clone(), held.clone());
            let server = net::axum(Router::new().fallback(handler).layer(node.clone())).await;
            let mut asked = Vec::new();
            for request in pair.iter().flat_map(|one| [one.clone(), one.clone()]) {
                let mut client =
                    if http2 { net::http2(server).await } else { net::http1(server).await };
                asked.push(tokio::spawn(async move { client.ask(request).await }));
            }
            until("all callers", || callers(&node) == 4).await;
            until("both runs", || runs.running() == 2).await;
            gate.open();
            let mut answers = Vec::new();
            for answer in asked {
                answers.push(answer.await.unwrap().body);
            }
            assert_eq!((&answers[0], &answers[2]), (&answers[1], &answers[3]), "{pair:?}");
            assert_ne!(answers[0], answers[2], "{pair:?}");
            assert_eq!(runs.total(), 2);
        }
    }
}
