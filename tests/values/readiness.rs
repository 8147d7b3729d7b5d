//! Inner's readiness (row T1).

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use futures_util::future::join_all;
use tokio_test::{assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use crate::support::{Question, ask, crowd, layer, ms, nodes, reports};

/// Panics when it is called on an instance that was not polled ready.
#[derive(Default)]
struct Strict {
    ready: bool,
    polled: bool,
    calls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false, polled: false, calls: self.calls.clone() }
    }
}

impl Service<Question> for Strict {
    type Response = String;
    type Error = Infallible;
    type Future = Ready<Result<String, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Not at the first time.
        if !std::mem::replace(&mut self.polled, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, question: Question) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        self.polled = false;
        self.calls.fetch_add(1, SeqCst);
        ready(Ok(question.city))
    }
}

#[tokio::test(start_paused = true)]
async fn t1_each_call_has_its_own_ready() {
    let strict = Strict::default();
    let [here, there] = nodes().map(|node| node.layer(strict.clone()));
    let mut clones: Vec<_> =
        (0..10).map(|n| if n % 2 == 0 { here.clone() } else { there.clone() }).collect();
    let mut calls = Vec::new();
    for number in 0..1000 {
        let clone = &mut clones[number % 10];
        let city = match number % 3 {
            0 => "shared".to_owned(),
            1 => String::new(),
            _ => format!("city {number}"),
        };
        let call = clone.ready().await.unwrap().call(ask(&city, number));
        calls.push(async move { (city, call.await) });
    }
    for (city, answer) in join_all(calls).await {
        assert_eq!(answer.unwrap(), city);
    }
    let calls = strict.calls.load(SeqCst);
    assert!((666..1000).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn t1_the_layer_is_always_ready() {
    let mut service = task::spawn(layer().layer(Strict::default()));
    for _ in 0..3 {
        assert_ready_ok!(service.enter(|cx, mut service| service.poll_ready(cx)));
    }
}

#[tokio::test(start_paused = true)]
async fn t2_followers_hold_no_permit() {
    let runs = crate::support::Runs::default();
    let inner = reports::<Infallible>(&runs, ms(1000));
    let service = ServiceBuilder::new().layer(layer()).concurrency_limit(1).service(inner);
    let start = tokio::time::Instant::now();
    let (rome, oslo) = tokio::join!(crowd(&[&service], 50, "Rome"), crowd(&[&service], 50, "Oslo"));
    assert!(rome.iter().chain(&oslo).all(Result::is_ok));
    assert_eq!((runs.total(), start.elapsed()), (2, ms(2000)));
}
