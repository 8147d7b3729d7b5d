//! Panics of inner (row B1): the caller whose run it was gets the panic, the
//! others a new run.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use futures_util::FutureExt;
use http::Response;
use tokio::{task::JoinSet, time::Instant};
use tower::{Layer, Service, ServiceExt};
use tower_singleflight::{FailureKind, MemoryStore};

use crate::support::{Answer, Full, Req, Runs, ask, get, layer, ms, read, sure, text};

async fn gather(mut callers: JoinSet<Answer>) -> (Vec<String>, Vec<Answer>) {
    let (mut panics, mut answers) = (Vec::new(), Vec::new());
    while let Some(joined) = callers.join_next().await {
        match joined {
            Ok(answer) => answers.push(answer),
            Err(error) => {
                let panic = error.into_panic();
                panics.push((*panic.downcast::<&str>().unwrap()).to_owned());
            }
        }
    }
    (panics, answers)
}

#[tokio::test(start_paused = true)]
async fn b1_a_panic_ends_one_run_and_no_more() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let inner = sure(&runs, ms(100), |run, _| {
        if run == 0 {
            panic!("inner's own words");
        }
        text(format!("run {run}"))
    });
    let nodes = [(); 2].map(|()| layer().store(store.clone()).namespace("tests"));
    let services = nodes.clone().map(|node| node.layer(inner.clone()));
    let (start, mut callers) = (Instant::now(), JoinSet::new());
    for service in &services {
        for _ in 0..5 {
            callers.spawn(ask(service, get("/")));
        }
    }
    let (panics, answers) = gather(callers).await;
    assert!(start.elapsed() < ms(1000));
    assert_eq!(panics, ["inner's own words"]);
    assert_eq!(answers.len(), 9);
    assert!(answers.iter().all(|answer| answer.text() == "run 1"));
    assert_eq!((runs.total(), runs.highest()), (2, 1));

    assert_eq!(ask(&services[0], get("/")).await.text(), "run 2");
    assert!(nodes.iter().all(|node| node.flights().is_empty()));
    tokio::time::sleep(ms(35_000)).await;
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn b1_two_panics_are_told_to_the_others() {
    let runs = Runs::default();
    let inner = sure(&runs, ms(100), |_, _| -> Response<Full> { panic!("again") });
    let service = layer().layer(inner);
    let mut callers = JoinSet::new();
    for _ in 0..5 {
        callers.spawn(ask(&service, get("/")));
    }
    let (panics, answers) = gather(callers).await;
    assert_eq!(panics, ["again", "again"]);
    assert_eq!((answers.len(), runs.total()), (3, 2));
    for answer in answers {
        assert_eq!(answer.status.as_u16(), 503);
        let failure = answer.failure.unwrap();
        assert_eq!(failure.kind(), FailureKind::OwnerFailed);
        assert_eq!(failure.report(), Some("inner panicked"));
    }
}

/// Panics where it is told to, the first time it gets there.
#[derive(Clone)]
struct Panics {
    when: When,
    left: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Ready,
    Call,
    Drop,
}

impl Panics {
    fn at(&self, when: When) {
        if self.when == when && self.left.swap(0, SeqCst) > 0 {
            panic!("as told");
        }
    }
}

impl Service<Req> for Panics {
    type Response = Response<Full>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.at(When::Ready);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Req) -> Answering {
        self.at(When::Call);
        Answering { panics: self.clone(), answer: ready(Ok(text("hello"))) }
    }
}

struct Answering {
    panics: Panics,
    answer: Ready<Result<Response<Full>, Infallible>>,
}

impl Future for Answering {
    type Output = Result<Response<Full>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer).poll(cx)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.panics.at(When::Drop);
    }
}

#[tokio::test(start_paused = true)]
async fn b1_wherever_it_panics() {
    for when in [When::Ready, When::Call] {
        let service = layer().layer(Panics { when, left: Arc::new(1.into()) });
        let mut callers = JoinSet::new();
        for _ in 0..3 {
            callers.spawn(ask(&service, get("/")));
        }
        let (panics, answers) = gather(callers).await;
        assert_eq!(panics, ["as told"], "{when:?}");
        assert_eq!(answers.len(), 2);
        assert!(answers.iter().all(|answer| answer.text() == "hello"), "{when:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn b1_a_future_that_panics_when_it_is_dropped_blocks_nobody() {
    let node = layer();
    let service = node.layer(Panics { when: When::Drop, left: Arc::new(1.into()) });
    let mut callers = JoinSet::new();
    for _ in 0..3 {
        let service = service.clone();
        callers.spawn(async move {
            AssertUnwindSafe(service.oneshot(get("/"))).catch_unwind().await.is_ok()
        });
    }
    let all = tokio::time::timeout(ms(10_000), callers.join_all()).await;
    assert_eq!(all.expect("a caller hangs").len(), 3);
    assert!(node.flights().is_empty());
    assert_eq!(ask(&service, get("/")).await.text(), "hello");
}

#[tokio::test(start_paused = true)]
async fn b1_a_panic_passes_through_the_future_itself() {
    let inner = sure(&Runs::default(), ms(100), |_, _| -> Response<Full> { panic!("caught") });
    let answer = AssertUnwindSafe(layer().layer(inner).oneshot(get("/"))).catch_unwind().await;
    assert_eq!(*answer.unwrap_err().downcast::<&str>().unwrap(), "caught");
}

#[tokio::test(start_paused = true)]
async fn b1_without_followers_the_key_is_free_at_once() {
    let runs = Runs::default();
    let inner = sure(&runs, ms(100), |run, _| {
        if run == 0 {
            panic!("first");
        }
        text("hello")
    });
    let service = layer().layer(inner);
    let first = AssertUnwindSafe(service.clone().oneshot(get("/"))).catch_unwind().await;
    assert!(first.is_err());
    let start = Instant::now();
    let response = service.oneshot(get("/")).await.unwrap();
    assert_eq!(read(response).await.unwrap().text(), "hello");
    assert_eq!(start.elapsed(), ms(100));
}
