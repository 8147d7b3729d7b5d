//! Inner's readiness (row T1).

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::join_all;
use http::Response;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, load_shed::error::Overloaded};
use tower_singleflight::ResponseBody;

use crate::support::{Full, Req, ask, crowd, get, layer, ms, read, text};

/// Panics when it is called on an instance that was not polled ready.
struct Strict {
    ready: bool,
    polled: bool,
    /// Whether it is ready at the first poll already.
    eager: bool,
    readied: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
}

impl Strict {
    fn new(eager: bool) -> Self {
        let (readied, calls) = Default::default();
        Self { ready: false, polled: false, eager, readied, calls }
    }
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        let (readied, calls) = (self.readied.clone(), self.calls.clone());
        Self { ready: false, polled: false, eager: self.eager, readied, calls }
    }
}

impl Service<Req> for Strict {
    type Response = Response<Full>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Full>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if !self.eager && !std::mem::replace(&mut self.polled, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !std::mem::replace(&mut self.ready, true) {
            self.readied.fetch_add(1, SeqCst);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        self.polled = false;
        self.calls.fetch_add(1, SeqCst);
        ready(Ok(text(request.uri().path().to_owned())))
    }
}

/// 1,000 calls over 10 clones, over keys that are shared and keys that are not.
async fn hammer<S, E>(service: S) -> usize
where
    S: Service<Req, Response = Response<ResponseBody<Full>>, Error = E> + Clone,
    E: Into<BoxError> + std::fmt::Debug,
{
    let mut clones = vec![service; 10];
    let mut calls = Vec::new();
    for number in 0..1000 {
        let clone = &mut clones[number % 10];
        let path = if number % 2 == 0 { format!("/{number}") } else { "/shared".into() };
        let mut request = get(&path);
        if number % 3 == 0 {
            *request.method_mut() = http::Method::POST;
        }
        let call = clone.ready().await.unwrap().call(request);
        calls.push(async move { (path, call.await) });
    }
    let mut answered = 0;
    for (path, result) in join_all(calls).await {
        match result {
            Ok(response) => {
                let answer = read(response).await.unwrap();
                if answer.failure.is_none() {
                    assert_eq!(answer.text(), path);
                    answered += 1;
                }
            }
            Err(error) => assert!(error.into().is::<Overloaded>()),
        }
    }
    answered
}

#[tokio::test(start_paused = true)]
async fn t1_each_call_has_its_own_ready() {
    for eager in [true, false] {
        let strict = Strict::new(eager);
        assert_eq!(hammer(layer().layer(strict.clone())).await, 1000);
        let (readied, calls) = (strict.readied.load(SeqCst), strict.calls.load(SeqCst));
        assert_eq!(readied, calls);
        assert!((667..1000).contains(&calls), "{calls}");
    }
}

#[tokio::test(start_paused = true)]
async fn t1_over_the_layers_of_tower() {
    let strict = || Strict::new(false);
    let above = || ServiceBuilder::new().layer(layer());
    assert_eq!(hammer(above().buffer(16).service(strict())).await, 1000);
    assert_eq!(hammer(above().concurrency_limit(2).service(strict())).await, 1000);
    let rated = above().buffer(16).rate_limit(10, ms(100)).service(strict());
    assert_eq!(hammer(rated).await, 1000);
    let buffered = above().buffer(4).concurrency_limit(1).rate_limit(10, ms(1)).service(strict());
    assert_eq!(hammer(buffered).await, 1000);
    let shed = above().load_shed().concurrency_limit(2).service(Strict::new(true));
    assert!(hammer(shed).await > 0);
}

/// Counts polls, and is never ready, or fails.
#[derive(Clone)]
struct Probe {
    polls: Arc<AtomicUsize>,
    fails: bool,
}

impl Service<Req> for Probe {
    type Response = Response<Full>;
    type Error = BoxError;
    type Future = Ready<Result<Response<Full>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.polls.fetch_add(1, SeqCst);
        if self.fails { Poll::Ready(Err("inner is broken".into())) } else { Poll::Pending }
    }

    fn call(&mut self, _: Req) -> Self::Future {
        unreachable!("it is never ready")
    }
}

fn probe(fails: bool) -> Probe {
    Probe { polls: Arc::default(), fails }
}

#[tokio::test(start_paused = true)]
async fn t1_the_layer_is_always_ready_and_asks_inner_nothing() {
    for fails in [false, true] {
        let probe = probe(fails);
        let mut service = task::spawn(layer().layer(probe.clone()));
        for _ in 0..3 {
            assert_ready_ok!(
                service.enter(|cx, mut service| Service::<Req>::poll_ready(&mut *service, cx))
            );
        }
        assert_eq!(probe.polls.load(SeqCst), 0);
        // Not by a call either: the run's own task asks.
        let mut call = task::spawn(service.call(get("/")));
        assert_pending!(call.poll());
        assert_eq!(probe.polls.load(SeqCst), 0);
        tokio::time::sleep(ms(1)).await;
        assert_eq!(probe.polls.load(SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn t1_an_error_of_readiness_reaches_its_caller() {
    let probe = probe(true);
    let service = layer().layer(probe.clone());
    let results = join_all((0..5).map(|_| service.clone().oneshot(get("/")))).await;
    let errors: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|error| error.to_string() == "inner is broken"));
    assert_eq!(probe.polls.load(SeqCst), 2);
    for response in results.into_iter().flatten() {
        let failure = read(response).await.unwrap().failure.unwrap();
        assert_eq!(failure.report(), Some("inner is broken"));
    }
    // And to those that bypass.
    let mut post = get("/");
    *post.method_mut() = http::Method::POST;
    assert_eq!(service.oneshot(post).await.unwrap_err().to_string(), "inner is broken");
}

#[tokio::test(start_paused = true)]
async fn t2_followers_hold_no_permit() {
    let runs = crate::support::Runs::default();
    let inner = crate::support::numbered(&runs, ms(1000));
    let service = ServiceBuilder::new().layer(layer()).concurrency_limit(1).service(inner);
    // Connections that are idle have polled their service ready.
    let mut idle = vec![service.clone(); 100];
    for service in &mut idle {
        service.ready().await.unwrap();
    }
    let start = tokio::time::Instant::now();
    let first = async {
        let answers = crowd(&[&service], 51, get("/1")).await;
        (answers, start.elapsed())
    };
    let second = async {
        tokio::time::sleep(ms(10)).await;
        (ask(&service, get("/2")).await, start.elapsed())
    };
    let both = async { tokio::join!(first, second) };
    let both = tokio::time::timeout(ms(60_000), both).await.expect("permits are kept from inner");
    let ((answers, one), (second, two)) = both;
    assert!(answers.iter().all(|answer| answer.text() == "run 0"));
    // The followers answer although inner is taken again by then.
    assert_eq!((one, two, second.text()), (ms(1000), Duration::from_secs(2), "run 1"));
    assert_eq!((runs.total(), runs.highest()), (2, 1));
    drop(idle);
}
