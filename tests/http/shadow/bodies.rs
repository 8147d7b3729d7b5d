//! Bodies are digested as they go by.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{Delivery, HttpCodec, HttpKey, SingleFlightLayer};

use super::{SHADOW, config, counted, counts, shadows};
use crate::{
    net,
    script::{Hint, Script, Step, data},
    support::{Gate, Req, Runs, ask, callers, crowd, get, ms, sure, text, until},
};

#[tokio::test(start_paused = true)]
async fn streams_are_compared_however_they_are_cut() {
    let [a, b] = shadows(&HttpKey::new());
    let runs = Runs::default();
    let wait = || Step::Wait(ms(500));
    let inner = sure(&runs, ms(0), move |run, _| {
        let steps = match run {
            0 => vec![data("he"), wait(), data("llo"), wait(), data(" world"), Step::Trailers],
            1 => vec![wait(), data("hello world"), Step::Trailers],
            2 => vec![
                data(""),
                data("hello"),
                wait(),
                wait(),
                wait(),
                data(" world"),
                Step::Trailers,
            ],
            _ => vec![data("hello world"), wait(), data("!"), Step::Trailers],
        };
        Script::new(steps).response(None)
    });
    let services = [&a, &b].map(|layer| layer.layer(inner.clone()));
    let answers = crowd(&[&services[0], &services[1]], 2, get("/")).await;
    assert!(answers.iter().all(|answer| answer.role == SHADOW && answer.trailers.is_some()));
    assert_eq!(counts(&[&a, &b]).await, [2, 1, 0, 0]);
}

/// A body that the test feeds, and what it feeds it with.
type Feed = mpsc::UnboundedSender<&'static str>;

#[tokio::test(start_paused = true)]
async fn a_body_dropped_half_way_is_compared_with_nothing() {
    let [a] = shadows(&HttpKey::new());
    let (feeds, mut fed) = mpsc::unbounded_channel::<Feed>();
    let service = a.layer(service_fn(move |_: Req| {
        let (feed, mut frames) = mpsc::unbounded_channel();
        feeds.send(feed).unwrap();
        let frames = futures_util::stream::poll_fn(move |cx| {
            frames.poll_recv(cx).map(|text| {
                text.map(|text: &str| {
                    Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(text)))
                })
            })
        });
        async move { Ok::<_, Infallible>(Response::new(StreamBody::new(frames))) }
    }));
    let open = async || service.clone().oneshot(get("/")).await.unwrap().into_body();
    let (mut first, mut second, third, fourth) =
        (open().await, open().await, open().await, open().await);
    let [one, two, three, four] = std::array::from_fn(|_| fed.try_recv().unwrap());
    for feed in [&one, &two, &three, &four] {
        feed.send("hello").unwrap();
    }
    assert_eq!(second.frame().await.unwrap().unwrap().into_data().unwrap(), "hello");
    drop(second);
    until("it is known", || counted(&a)[3] == 1).await;
    // The first is the run that the others would have followed; the next in line takes over.
    assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), "hello");
    drop(first);
    until("it is known", || counted(&a)[3] == 2).await;
    drop((one, two, three, four));
    let whole = join_all([third, fourth].map(BodyExt::collect)).await;
    assert!(whole.into_iter().all(|body| body.unwrap().to_bytes() == "hello"));
    assert_eq!(counts(&[&a]).await, [1, 0, 0, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_compared_with_nothing() {
    let [a] = shadows(&HttpKey::new());
    let runs = Runs::default();
    let service = a.layer(sure(&runs, ms(100), |_, _| text("same")));
    let mut dropped = Box::pin(ask(&service, get("/")));
    assert!(futures_util::poll!(&mut dropped).is_pending());
    drop(dropped);
    crowd(&[&service], 2, get("/")).await;
    assert_eq!((runs.total(), runs.dropped()), (3, 1));
    assert_eq!(counts(&[&a]).await, [1, 0, 0, 1]);
}

#[tokio::test]
async fn a_server_that_asks_for_no_end_has_read_it_all() {
    for (method, length) in [
        (Method::GET, Some(11)),
        (Method::GET, None),
        (Method::HEAD, Some(11)),
        (Method::HEAD, None),
    ] {
        let key = HttpKey::new().authority("here");
        let layer = SingleFlightLayer::new(key).config(config().build().unwrap());
        let gate = Gate::new();
        let inner = service_fn({
            let gate = gate.clone();
            move |_: Request<Incoming>| {
                let gate = gate.clone();
                async move {
                    gate.passed().await;
                    let body = Script::new([data("hello"), data(" world")]);
                    Ok::<_, Infallible>(body.response(length))
                }
            }
        });
        let server = net::hyper(layer.layer(inner)).await;
        let mut one = net::http1(server).await;
        // Over HTTP/2, hyper sends a body to HEAD, too.
        let mut two = match method {
            Method::GET => net::http2(server).await,
            _ => net::http1(server).await,
        };
        let request = || {
            let mut request = get("/");
            *request.method_mut() = method.clone();
            request
        };
        let answers = async { tokio::join!(one.ask(request()), two.ask(request())) };
        let opened = async {
            until("both are in the air", || callers(&layer) == 2).await;
            gate.open();
        };
        let ((one, two), ()) = tokio::join!(answers, opened);
        for answer in [one, two] {
            let body = if method == Method::GET { "hello world" } else { "" };
            assert_eq!((answer.status.as_u16(), answer.text()), (200, body));
        }
        assert_eq!(counts(&[&layer]).await, [1, 0, 0, 0], "{method} {length:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_to_be_shared_is_not_compared() {
    for (length, hint, delivery, expected) in [
        (Some(11), Hint::None, Delivery::Auto, [0, 0, 2, 0]),
        (None, Hint::Exact, Delivery::Auto, [0, 0, 2, 0]),
        (None, Hint::None, Delivery::Buffered, [0, 0, 2, 0]),
        // Shared by a window, with those who keep up.
        (None, Hint::None, Delivery::Auto, [1, 0, 0, 0]),
    ] {
        let config = config().max_share_bytes(10).delivery(delivery).build().unwrap();
        let [a] = shadows(&HttpKey::new()).map(|layer: super::Layer| layer.config(config.clone()));
        let service = a.layer(sure(&Runs::default(), ms(100), move |_, _| {
            let steps = [data("hello"), Step::Wait(ms(10)), data(" world")];
            Script::new(steps).hint(hint).response(length)
        }));
        for answer in crowd(&[&service], 2, get("/")).await {
            assert_eq!((answer.role, answer.text()), (SHADOW, "hello world"));
        }
        assert_eq!(counts(&[&a]).await, expected, "{length:?} {hint:?} {delivery:?}");
    }
}

/// Such a body is shared with nobody.
#[tokio::test(start_paused = true)]
async fn a_body_of_another_length_than_its_head_says_is_compared_with_nothing() {
    let [a] = shadows(&HttpKey::new());
    let service = a.layer(sure(&Runs::default(), ms(100), |_, _| {
        Script::new([data("hello")]).response(Some(11))
    }));
    assert!(crowd(&[&service], 2, get("/")).await.iter().all(|answer| answer.text() == "hello"));
    assert_eq!(counts(&[&a]).await, [0, 0, 0, 2]);
}

/// As gRPC has it, the status is the end.
#[tokio::test(start_paused = true)]
async fn an_end_that_the_codec_does_not_take_for_one_is_none() {
    for (status, expected) in [(Some("0"), [1, 0, 0, 0]), (None, [0, 0, 0, 2])] {
        let layer = SingleFlightLayer::with_codec(HttpKey::new(), HttpCodec::default().grpc());
        let layer = layer.config(config().build().unwrap());
        let service = layer.layer(sure(&Runs::default(), ms(100), move |_, _| {
            let mut response = Script::new([]).response(None);
            response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            if let Some(status) = status {
                response.headers_mut().insert("grpc-status", status.parse().unwrap());
            }
            response
        }));
        crowd(&[&service], 2, get("/")).await;
        assert_eq!(counts(&[&layer]).await, expected, "{status:?}");
    }
}
