//! What callers are told when the layer fails them, and whose deadline is whose.

use std::time::Duration;

use futures_util::future::join_all;
use http::HeaderMap;
use http_body::Body as _;
use tonic::{Code, Response, body::Body};
use tower::ServiceExt;
use tower_singleflight::{Config, Failure, FailureKind};

use crate::{
    rig::{Answers, GET, ask, get, is_shared, nodes, serve, wrap},
    support::{Full, Gate, Runs, callers, ms, until},
};

fn call() -> http::Request<Body> {
    let message = bytes::Bytes::from_static(b"\0\0\0\0\x01q");
    http::Request::post(format!("http://answers.test{GET}"))
        .header("content-type", "application/grpc")
        .body(Body::new(Full::from(message)))
        .unwrap()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_a_response_without_a_body() {
    let [node] = nodes();
    let config = Config::builder().hard_timeout(ms(1000)).build().unwrap();
    let node = node.config(config);
    let never = Answers::new(&Runs::default()).get(|_, _| std::future::pending());
    let response = wrap(&node, never).oneshot(call()).await.unwrap();
    assert_eq!(response.status(), 200);
    let headers = response.headers();
    assert_eq!(text(headers, "content-type"), "application/grpc");
    assert_eq!(text(headers, "grpc-status"), "4");
    assert_eq!(text(headers, "grpc-message"), "the shared run passed its time limit");
    assert_eq!(text(headers, "cache-status"), "tower-singleflight; detail=owner_timed_out");
    let failure = response.extensions().get::<Failure>().unwrap();
    assert_eq!(failure.kind(), FailureKind::OwnerTimedOut);
    // Else a client would wait for a status in trailers.
    assert!(response.body().is_end_stream());
    assert_eq!(response.body().size_hint().exact(), Some(0));
}

#[tokio::test]
async fn a_client_is_told_that_the_time_is_over() {
    let [node] = nodes();
    let node = node.config(Config::builder().hard_timeout(ms(50)).build().unwrap());
    let never = Answers::new(&Runs::default()).get(|_, _| std::future::pending());
    let channel = serve(&node, &never).await;
    let status = get(&channel, ask("q", &[])).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(status.message(), "the shared run passed its time limit");
}

#[tokio::test]
async fn followers_of_a_run_that_panics_are_told_that_nobody_answers() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let answers = Answers::new(&runs).gated(&gate, |_, _| panic!("inner panics"));
    let [node] = nodes();
    // A panic takes its connection along.
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(get(&serve(&node, &answers).await, ask("q", &[])));
    }
    let opened = async {
        until("all callers", || callers(&node) == 4).await;
        gate.open();
    };
    let (got, ()) = tokio::join!(join_all(calls), opened);
    let told = got.into_iter().map(Result::unwrap_err).filter(|status| {
        status.code() == Code::Unavailable && status.message() == "the shared run failed"
    });
    assert_eq!(told.count(), 2);
    assert_eq!((runs.total(), node.stats().failed), (2, 2));
}

#[tokio::test]
async fn one_callers_deadline_ends_no_other_call() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let answers = Answers::new(&runs).gated(&gate, |_, request| {
        assert!(request.metadata().get("grpc-timeout").is_none());
        Ok(Response::new("answer".into()))
    });
    let [node] = nodes();
    let channel = serve(&node, &answers).await;
    let mut hasty = ask("q", &[]);
    hasty.set_timeout(Duration::from_millis(100));
    let hasty = tokio::spawn(get(&channel, hasty));
    until("the hasty caller", || callers(&node) == 1).await;
    let patient = tokio::spawn(get(&channel, ask("q", &[])));
    // Its own limit ends its waiting, though its run goes on for the other.
    let status = hasty.await.unwrap().unwrap_err();
    assert!(matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded), "{status:?}");
    until("the patient caller alone", || callers(&node) == 1).await;
    gate.open();
    let got = patient.await.unwrap().unwrap();
    assert!(is_shared(got.metadata()));
    assert_eq!((got.into_inner(), runs.total(), runs.dropped()), ("answer".into(), 1, 0));
}
