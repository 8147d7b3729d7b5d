//! Bodies that break off: never a clean end, for anyone.

use std::collections::VecDeque;

use futures_util::future::join_all;
use http::Response;
use http_body_util::BodyExt;
use tower::{Layer, Service, ServiceExt};
use tower_singleflight::{Config, Delivery, FailureKind, ResponseBody};

use crate::{
    net,
    script::{Hint, Script, Step, data},
    support::{Inner, Req, Runs, crowd, get, layer, ms, nodes, sure},
};

/// What a caller saw of a body: the bytes, and the error if there was one.
async fn drain<B>(body: ResponseBody<B>) -> (Vec<u8>, Option<String>)
where
    B: http_body::Body<Error: Into<tower::BoxError>> + Send,
{
    let mut body = Box::pin(body);
    let mut bytes = Vec::new();
    loop {
        // Nothing may look like an end while an error is to come.
        let ended = http_body::Body::is_end_stream(&body);
        match body.frame().await {
            None => return (bytes, None),
            Some(Err(error)) => {
                assert!(!ended, "the end was announced, and then came an error");
                // Who reads on all the same reads no error again and again.
                assert!(body.frame().await.is_none(), "something comes after an error");
                return (bytes, Some(error.to_string()));
            }
            Some(Ok(frame)) => bytes.extend_from_slice(&frame.into_data().unwrap_or_default()),
        }
    }
}

/// The ways in which a body breaks off after `hello`, and the head's length.
fn broken() -> [(&'static str, Vec<Step>, Option<u64>); 6] {
    [
        ("error", vec![data("hello"), Step::Error], None),
        ("error in a known length", vec![data("hello"), Step::Error], Some(11)),
        ("panic", vec![data("hello"), Step::Panic], None),
        ("late error", vec![data("hello"), Step::Wait(ms(50)), Step::Error], None),
        ("too short", vec![data("hello")], Some(11)),
        ("too long", vec![data("hello"), data(" ")], Some(5)),
    ]
}

/// Breaks off in the first runs, and then is whole.
fn inner(runs: &Runs, broken_runs: usize, steps: Vec<Step>, length: Option<u64>) -> Inner<Script> {
    sure(runs, ms(100), move |run, _| {
        if run < broken_runs {
            Script::new(steps.clone()).response(length)
        } else {
            Script::new([data("hello"), data(" "), data("world")]).response(Some(11))
        }
    })
}

fn buffered() -> Config {
    Config::builder().delivery(Delivery::Buffered).build().unwrap()
}

fn streamed() -> Config {
    Config::builder().delivery(Delivery::Streaming).build().unwrap()
}

/// Another run's answer would not be the same.
#[tokio::test(start_paused = true)]
async fn who_has_begun_sees_the_break_everywhere() {
    for (name, mut steps, length) in broken() {
        // The others come to begin with it.
        steps.insert(0, Step::Wait(ms(50)));
        let runs = Runs::default();
        let [here, there] = nodes()
            .map(|node| node.config(streamed()).layer(inner(&runs, 1, steps.clone(), length)));
        for response in call(&[&here, &there], 4).await {
            assert_eq!(response.status().as_u16(), 200, "{name}");
            let (bytes, error) = drain(response.into_body()).await;
            assert!(b"hello ".starts_with(&bytes[..]), "{name}: {bytes:?}");
            assert!(error.expect(name).contains("broke off"), "{name}");
        }
        assert_eq!(runs.total(), 1, "{name}");
    }
}

async fn call<S>(services: &[&S], each: usize) -> VecDeque<Response<ResponseBody<Script>>>
where
    S: Service<Req, Response = Response<ResponseBody<Script>>, Future: Send>,
    S: Clone + Send + Sync,
    S::Error: std::fmt::Debug + Send,
{
    let callers = services.iter().flat_map(|s| (0..each).map(|_| (*s).clone().oneshot(get("/"))));
    join_all(callers).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test(start_paused = true)]
async fn the_owner_sees_the_break_and_followers_a_new_run() {
    for (name, steps, length) in broken() {
        let runs = Runs::default();
        let [here, there] = nodes()
            .map(|node| node.config(buffered()).layer(inner(&runs, 1, steps.clone(), length)));
        let responses = call(&[&here, &there], 4).await;
        let (mut whole, mut cut) = (0, 0);
        for response in responses {
            assert_eq!(response.status().as_u16(), 200, "{name}");
            match drain(response.into_body()).await {
                (bytes, None) => {
                    assert_eq!(bytes, b"hello world", "{name}");
                    whole += 1;
                }
                (bytes, Some(error)) => {
                    assert!(bytes.starts_with(b"hello"), "{name}");
                    assert!(error.contains("broke off"), "{name}: {error}");
                    cut += 1;
                }
            }
        }
        assert_eq!((cut, whole, runs.total()), (1, 7, 2), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_broken_runs_are_a_failure() {
    for (name, steps, length) in broken() {
        let runs = Runs::default();
        let service = layer().config(buffered()).layer(inner(&runs, usize::MAX, steps, length));
        let (mut cut, mut failed) = (0, 0);
        for response in call(&[&service], 5).await {
            if response.status().as_u16() == 503 {
                let failure = response.extensions().get::<tower_singleflight::Failure>().unwrap();
                assert_eq!(failure.kind(), FailureKind::OwnerFailed, "{name}");
                assert!(failure.report().is_some(), "{name}");
                failed += 1;
            } else {
                assert!(drain(response.into_body()).await.1.is_some(), "{name}");
                cut += 1;
            }
        }
        assert_eq!((cut, failed, runs.total()), (2, 3, 2), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_shorter_than_it_says_itself() {
    // No length in the head; the body's own hint is one too.
    struct Liar(Option<&'static str>);
    impl http_body::Body for Liar {
        type Data = bytes::Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
            let text = self.0.take();
            std::task::Poll::Ready(text.map(|text| Ok(http_body::Frame::data(text.into()))))
        }

        fn size_hint(&self) -> http_body::SizeHint {
            http_body::SizeHint::with_exact(11)
        }
    }
    let runs = Runs::default();
    let inner = sure(&runs, ms(100), |_, _| Response::new(Liar(Some("hello"))));
    let service = layer().layer(inner);
    let response = service.oneshot(get("/")).await.unwrap();
    let (bytes, error) = drain(response.into_body()).await;
    assert_eq!(bytes, b"hello");
    assert!(error.is_some(), "eleven bytes were promised and five came");
}

#[tokio::test(start_paused = true)]
async fn a_length_of_head_and_no_content_is_no_promise() {
    let runs = Runs::default();
    let inner: Inner<Script> = sure(&runs, ms(100), |_, request| {
        let mut response = Script::new([]).hint(Hint::Exact).response(Some(11));
        if request.uri().path() == "/204" {
            *response.status_mut() = http::StatusCode::NO_CONTENT;
        }
        response
    });
    let [here, there] = nodes().map(|node| node.layer(inner.clone()));
    let mut head = get("/");
    *head.method_mut() = http::Method::HEAD;
    for request in [head, get("/204")] {
        for answer in crowd(&[&here, &there], 2, request).await {
            assert_eq!(answer.text(), "");
            assert_eq!(answer.headers["content-length"], "11");
        }
    }
    assert_eq!(runs.total(), 2);
}

#[tokio::test]
async fn a_broken_body_breaks_its_connection() {
    for (path, request) in [("/1", "1.1"), ("/2", "2")] {
        let inner = tower::service_fn(|_: http::Request<hyper::body::Incoming>| async {
            Ok::<_, std::convert::Infallible>(
                Script::new([data("hello"), Step::Error]).response(None),
            )
        });
        let server = net::hyper(layer().layer(inner)).await;
        let mut client = match request {
            "1.1" => net::http1(server).await,
            _ => net::http2(server).await,
        };
        // The client sees an error with the head or with the body, and no whole answer.
        let whole = match client.send(get(path)).await {
            Ok(response) => response.into_body().collect().await.is_ok(),
            Err(_) => false,
        };
        assert!(!whole, "HTTP/{request}");
    }
}
