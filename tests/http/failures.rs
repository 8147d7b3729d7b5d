//! Errors of inner (row B5), and what followers are told.

use std::fmt;

use futures_util::future::join_all;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_singleflight::{Config, Failure, FailureKind, ResponseBody};

use crate::support::{Answer, Full, Inner, Runs, crowd, get, inner, layer, ms, nodes, read, text};

/// An error that cannot be cloned, nor shared between threads.
#[derive(Debug)]
struct Own(std::cell::Cell<usize>);

impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disk {} is full", self.0.get())
    }
}

fn failing(runs: &Runs, times: usize) -> Inner<Full, Own> {
    inner(runs, ms(100), move |run, _| {
        if run < times { Err(Own(run.into())) } else { Ok(text(format!("run {run}"))) }
    })
}

type Given = Result<Response<ResponseBody<Full>>, Own>;

async fn sort(results: Vec<Given>) -> (Vec<Own>, Vec<Answer>) {
    let (mut errors, mut answers) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(response) => answers.push(read(response).await.unwrap()),
            Err(error) => errors.push(error),
        }
    }
    (errors, answers)
}

#[tokio::test(start_paused = true)]
async fn b5_one_failed_run_means_one_more() {
    let runs = Runs::default();
    let [here, there] = nodes().map(|node| node.layer(failing(&runs, 1)));
    let callers =
        (0..12).map(|n| if n < 6 { &here } else { &there }).map(|s| s.clone().oneshot(get("/")));
    let (errors, answers) = sort(join_all(callers).await).await;
    assert_eq!((runs.total(), runs.highest()), (2, 1));
    assert_eq!(errors.iter().map(|error| error.0.get()).collect::<Vec<_>>(), [0]);
    assert_eq!(answers.len(), 11);
    assert!(answers.iter().all(|answer| answer.text() == "run 1"));
    assert_eq!(answers.iter().filter(|answer| answer.is_owner()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn b5_followers_are_told_what_failed() {
    let (runs, start) = (Runs::default(), Instant::now());
    let nodes = nodes::<2>();
    let [here, there] = [0, 1].map(|n| nodes[n].layer(failing(&runs, usize::MAX)));
    let callers =
        (0..12).map(|n| if n < 6 { &here } else { &there }).map(|s| s.clone().oneshot(get("/")));
    let (errors, answers) = sort(join_all(callers).await).await;
    // Two runs, whatever the number of callers: their own callers have the errors.
    assert_eq!((runs.total(), errors.len(), answers.len()), (2, 2, 10));
    assert!(start.elapsed() <= ms(300), "{:?}", start.elapsed());
    for answer in &answers {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.headers.contains_key("retry-after"));
        let failure = answer.failure.as_ref().unwrap();
        assert_eq!(failure.kind(), FailureKind::OwnerFailed);
        assert_eq!(failure.report(), Some("disk 1 is full"));
        assert!(failure.to_string().contains("disk 1 is full"), "{failure}");
        assert_eq!(answer.headers["cache-status"], "tower-singleflight; detail=owner_failed");
        // Clients are told no more than that.
        assert_eq!(answer.text(), "the shared run failed\n");
    }
    let failed: u64 = nodes.iter().map(|node| node.stats().failed).sum();
    assert_eq!(failed, 10);
}

#[tokio::test(start_paused = true)]
async fn b5_a_persistent_failure_costs_bounded_time() {
    let runs = Runs::default();
    let service = layer().layer(failing(&runs, usize::MAX));
    for round in 1..4 {
        let start = Instant::now();
        let results = join_all((0..50).map(|_| service.clone().oneshot(get("/")))).await;
        let (errors, answers) = sort(results).await;
        assert_eq!((errors.len(), answers.len()), (2, 48));
        assert!(start.elapsed() <= ms(300), "{:?}", start.elapsed());
        assert_eq!(runs.total(), round * 2);
    }
}

#[tokio::test(start_paused = true)]
async fn b5_a_lone_caller_gets_its_own_error() {
    let runs = Runs::default();
    let service = layer().layer(failing(&runs, usize::MAX));
    let error = service.oneshot(get("/")).await.unwrap_err();
    assert_eq!(error.0.get(), 0);
    assert_eq!(runs.total(), 1);
}

#[tokio::test(start_paused = true)]
async fn b5_a_timed_out_owner_is_told_apart() {
    let runs = Runs::default();
    let config = Config::builder().hard_timeout(ms(1000)).build().unwrap();
    let slow: Inner<Full, Own> = inner(&runs, ms(60_000), |_, _| Ok(text("late")));
    let [here, there] = nodes().map(|node| node.config(config.clone()).layer(slow.clone()));
    let start = Instant::now();
    let answers = crowd(&[&here, &there], 6, get("/")).await;
    assert!(start.elapsed() < ms(3000), "{:?}", start.elapsed());
    assert_eq!((runs.total(), runs.dropped()), (2, 2));
    for answer in answers {
        assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(answer.failure.unwrap().kind(), FailureKind::OwnerTimedOut);
    }
}

#[tokio::test(start_paused = true)]
async fn b5_a_follower_that_may_not_wait_longer() {
    let runs = Runs::default();
    let config = Config::builder().wait_limit(ms(200)).build().unwrap();
    let slow: Inner<Full, Own> = inner(&runs, ms(1000), |_, _| Ok(text("hello")));
    let service = layer().config(config).layer(slow);
    let start = Instant::now();
    let owner = tokio::spawn(service.clone().oneshot(get("/")));
    tokio::task::yield_now().await;
    let follower = service.oneshot(get("/")).await.unwrap();
    assert_eq!(start.elapsed(), ms(200));
    assert_eq!(follower.status(), StatusCode::GATEWAY_TIMEOUT);
    let failure = follower.extensions().get::<Failure>().unwrap();
    assert_eq!(failure.kind(), FailureKind::WaitedTooLong);
    // The run goes on, and its own caller has no such limit.
    let owner = owner.await.unwrap().unwrap().into_body().collect().await.unwrap();
    assert_eq!(owner.to_bytes(), "hello");
    assert_eq!((start.elapsed(), runs.total()), (ms(1000), 1));
}
