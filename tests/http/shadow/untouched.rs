//! Nothing of a caller's own run is touched.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{FlightToken, HttpKey, ResponseBody, StoreDown};

use super::{SHADOW, config, counts, shadows};
use crate::{
    script::{Script, Step, data, trailers},
    support::{
        Full, Gate, Inner, Req, Runs, ask, crowd, get, layer, ms, read, sure, text, until, with,
    },
};

#[derive(Clone, Debug, PartialEq)]
struct Own(usize);

#[tokio::test(start_paused = true)]
async fn request_and_response_are_inners_own() {
    let [a] = shadows(&HttpKey::new());
    let runs = Runs::default();
    let service = a.layer(sure(&runs, ms(100), |run, request: Req| {
        assert_eq!(request.headers()["grpc-timeout"], "5S");
        assert!(request.extensions().get::<FlightToken>().is_none());
        let mut response = Script::new([data("hello"), Step::Trailers]).response(None);
        *response.status_mut() = StatusCode::ACCEPTED;
        *response.version_mut() = Version::HTTP_10;
        let headers = response.headers_mut();
        for (name, value) in [("b", "1"), ("a", "2"), ("b", "3"), ("keep-alive", "4")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers.append("x-request-id", HeaderValue::from(run));
        response.extensions_mut().insert(Own(run));
        response
    }));
    let request = || with(get("/"), "grpc-timeout", "5S");
    let (a, b) = tokio::join!(service.clone().oneshot(request()), service.oneshot(request()));
    for (run, response) in [a, b].map(Result::unwrap).into_iter().enumerate() {
        assert_eq!(response.extensions().get(), Some(&Own(run)));
        let answer = read(response).await.unwrap();
        assert_eq!((answer.status, answer.version), (StatusCode::ACCEPTED, Version::HTTP_10));
        let fields: Vec<_> = answer.headers.keys().map(|name| name.as_str()).collect();
        assert_eq!(fields, ["b", "a", "keep-alive", "x-request-id", "cache-status"]);
        assert_eq!(answer.headers["x-request-id"], run.to_string());
        assert_eq!(answer.text(), "hello");
        assert_eq!(answer.trailers, Some(trailers()));
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_the_run_that_it_is_compared_with() {
    let [a, b] = shadows(&HttpKey::new());
    let (runs, gate) = (Runs::default(), Gate::new());
    let inner = {
        let (runs, gate) = (runs.clone(), gate.clone());
        service_fn(move |_: Req| {
            let (run, gate) = (runs.begin(), gate.clone());
            async move {
                if run.number == 0 {
                    gate.passed().await;
                }
                run.finish();
                Ok::<_, Infallible>(text("same"))
            }
        })
    };
    let services = [&a, &b].map(|layer| layer.layer(inner.clone()));
    let owner = tokio::spawn(ask(&services[0], get("/")));
    until("the owner runs", || runs.running() == 1).await;
    let start = Instant::now();
    for service in &services {
        // Inner is asked, and answers, in the first poll.
        assert_eq!(
            service.clone().oneshot(get("/")).now_or_never().unwrap().unwrap().status(),
            200
        );
        assert_eq!(ask(service, get("/")).await.role, SHADOW);
    }
    assert_eq!(start.elapsed(), ms(0));
    gate.open();
    owner.await.unwrap();
    // The responses that were not read had no body to be read: they are dropped.
    assert_eq!(counts(&[&a, &b]).await, [2, 0, 0, 2]);
}

/// Counts how often it is asked, and for what.
struct Counting {
    polls: Arc<AtomicUsize>,
    left: usize,
}

impl Body for Counting {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.polls.fetch_add(1, SeqCst);
        Poll::Ready(self.left.checked_sub(1).map(|left| {
            self.left = left;
            Ok(Frame::data(Bytes::from_static(b"a")))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_by_its_caller_and_at_its_pace() {
    let [a] = shadows(&HttpKey::new());
    let polls = Arc::<AtomicUsize>::default();
    let counting = Arc::clone(&polls);
    let service = a.layer(service_fn(move |_: Req| {
        let body = Counting { polls: Arc::clone(&counting), left: 3 };
        async move { Ok::<_, Infallible>(Response::new(body)) }
    }));
    let mut body = service.oneshot(get("/")).await.unwrap().into_body();
    for left in (0..3).rev() {
        tokio::time::sleep(ms(1000)).await;
        assert_eq!(
            (polls.load(SeqCst), body.size_hint().exact()),
            (2 - left, Some(left as u64 + 1))
        );
        assert!(!body.is_end_stream());
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
    }
    assert!(body.is_end_stream());
    assert_eq!(polls.load(SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panics_or_fails_does_so_for_its_caller() {
    for last in [Step::Error, Step::Panic] {
        let [a] = shadows(&HttpKey::new());
        let steps = [data("hello"), last.clone()];
        let service = a.layer(sure(&Runs::default(), ms(100), move |run, _| match run {
            0 => Script::new([data("hello"), Step::Wait(ms(500))]).response(None),
            _ => Script::new(steps.clone()).response(None),
        }));
        let first = service.clone().oneshot(get("/")).await.unwrap();
        let whole = tokio::spawn(async move { read(first).await.unwrap() });
        let response = service.oneshot(get("/")).await.unwrap();
        let broken = tokio::spawn(response.into_body().collect()).await;
        match last {
            Step::Panic => assert!(broken.unwrap_err().is_panic()),
            _ => assert_eq!(broken.unwrap().unwrap_err().to_string(), "the disk is gone"),
        }
        assert_eq!(whole.await.unwrap().text(), "hello");
        assert_eq!(counts(&[&a]).await, [0, 0, 0, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_ask_for_itself() {
    let [a] = shadows(&HttpKey::new());
    let slot = Arc::new(OnceLock::<Inner<ResponseBody<Full>>>::new());
    let below = Arc::clone(&slot);
    let runs = Runs::default();
    let counted = runs.clone();
    let service = Inner::new(a.layer(service_fn(move |_: Req| {
        let (run, below) = (counted.begin(), Arc::clone(&below));
        async move {
            let said = match run.number {
                0 => format!("{:?}", ask(below.get().unwrap(), get("/")).await.role.unwrap()),
                _ => "the end".to_owned(),
            };
            run.finish();
            Ok::<_, Infallible>(text(said))
        }
    })));
    slot.set(service.clone()).unwrap();
    let answer = timeout(ms(100), ask(&service, get("/"))).await.unwrap();
    assert_eq!(answer.text(), "Bypass(Recursion)");
    assert_eq!(counts(&[&a]).await, [0; 4], "it is no part of its own flight");
}

#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_nothing_to_a_caller() {
    let config = config().store_down(StoreDown::Reject).build().unwrap();
    let a = layer().store(crate::store::away()).config(config);
    let service = a.layer(sure(&Runs::default(), ms(100), |_, _| text("same")));
    let start = Instant::now();
    for answer in crowd(&[&service], 3, get("/")).await {
        assert_eq!((answer.role, answer.text()), (SHADOW, "same"));
    }
    assert_eq!(start.elapsed(), ms(100));
    assert_eq!(counts(&[&a]).await, [2, 0, 0, 0], "compared within the process");
}
