//! Errors of inner (rows B4, B5): its own caller has the error, others are told.

use std::{cell::Cell, error::Error, fmt};

use tokio::time::Instant;
use tower::{BoxError, Layer, ServiceExt};
use tower_singleflight::{Config, Failure, FailureKind, FlightError};

use crate::support::{Report, Runs, ask, crowd, inner, layer, ms, nodes, report, reports};

/// An error that cannot be cloned, nor shared between threads.
#[derive(Debug)]
pub(crate) struct Full(Cell<usize>);

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disk {} is full", self.0.get())
    }
}

type Given<E> = Result<Report, FlightError<E>>;

/// Values, inner's own errors, and what others were told.
fn sort<E: fmt::Debug>(results: Vec<Given<E>>) -> (Vec<Report>, Vec<E>, Vec<Failure>) {
    let (mut values, mut errors, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(FlightError::Inner(error)) => errors.push(error),
            Err(FlightError::Failure(failure)) => failures.push(failure),
        }
    }
    (values, errors, failures)
}

#[tokio::test(start_paused = true)]
async fn b5_owners_have_the_error_and_followers_are_told_of_it() {
    let (runs, start) = (Runs::default(), Instant::now());
    let nodes = nodes::<Report, 2>();
    let failing = || inner(&runs, ms(100), |run, _| Err(Full(run.into())));
    let [here, there] = [0, 1].map(|n| nodes[n].layer(failing()));
    let (values, errors, failures) = sort(crowd(&[&here, &there], 6, "Rome").await);
    // Two runs, whatever the number of callers: their own callers have the errors.
    assert_eq!((values.len(), errors.len(), failures.len()), (0, 2, 10));
    assert_eq!(errors.iter().map(|error| error.0.get()).collect::<Vec<_>>(), [0, 1]);
    for failure in &failures {
        assert_eq!(failure.kind(), FailureKind::OwnerFailed);
        assert_eq!(failure.report(), Some("disk 1 is full"));
        assert_eq!(failure.to_string(), "the shared run failed: disk 1 is full");
    }
    assert_eq!(runs.total(), 2);
    assert!(start.elapsed() <= ms(300), "{:?}", start.elapsed());
    let failed: u64 = nodes.iter().map(|node| node.stats().failed).sum();
    assert_eq!(failed, 10);
}

#[tokio::test(start_paused = true)]
async fn b5_one_failed_run_means_one_more() {
    let runs = Runs::default();
    let failing_once = || {
        inner(&runs, ms(100), |run, q| if run == 0 { Err(Full(0.into())) } else { report(run, &q) })
    };
    let [here, there] = nodes().map(|node| node.layer(failing_once()));
    let (values, errors, failures) = sort(crowd(&[&here, &there], 6, "Rome").await);
    assert_eq!((values.len(), errors.len(), failures.len(), runs.total()), (11, 1, 0, 2));
    assert!(values.iter().all(|value| value.run == 1));
}

#[tokio::test(start_paused = true)]
async fn b4_a_run_that_takes_too_long_is_told_apart() {
    let runs = Runs::default();
    let config = Config::builder().hard_timeout(ms(1000)).build().unwrap();
    let [here, there] =
        nodes().map(|node| node.config(config.clone()).layer(reports::<Full>(&runs, ms(60_000))));
    let (_, errors, failures) = sort(crowd(&[&here, &there], 6, "Rome").await);
    assert_eq!((errors.len(), failures.len(), runs.total()), (0, 12, 2));
    for failure in failures {
        assert_eq!((failure.kind(), failure.report()), (FailureKind::OwnerTimedOut, None));
        assert!(failure.is_timeout());
    }
}

#[tokio::test(start_paused = true)]
async fn b4_a_follower_that_may_not_wait_longer() {
    let runs = Runs::default();
    let config = Config::builder().wait_limit(ms(200)).build().unwrap();
    let service = layer().config(config).layer(reports::<Full>(&runs, ms(1000)));
    let (values, _, failures) = sort(crowd(&[&service], 3, "Rome").await);
    assert_eq!((values.len(), failures.len()), (1, 2));
    assert!(failures.iter().all(|failure| failure.kind() == FailureKind::WaitedTooLong));
    assert_eq!(values[0].own, Some(0));
}

#[tokio::test(start_paused = true)]
async fn b5_who_asks_alone_has_its_own_error() {
    let runs = Runs::default();
    let service = layer::<Report>().layer(inner(&runs, ms(1), |_, _| Err(Full(7.into()))));
    for city in ["Rome", ""] {
        let error = service.clone().oneshot(ask(city, 0)).await.unwrap_err();
        assert_eq!(error.inner().map(|error| error.0.get()), Some(7));
        assert!(error.failure().is_none());
        assert_eq!(error.to_string(), "disk 7 is full");
        assert_eq!(error.into_inner().unwrap().0.get(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn a_boxed_error_keeps_what_is_behind_it() {
    let runs = Runs::default();
    let broken = || {
        let cause = std::io::Error::other("the cause");
        BoxError::from(std::io::Error::other(cause))
    };
    let service =
        layer::<Report>().layer(inner(&runs, ms(1), move |_, _| Err::<_, BoxError>(broken())));
    let error = service.oneshot(ask("Rome", 0)).await.unwrap_err();
    // `io::Error` shows its cause's text, and so do both.
    assert_eq!(error.to_string(), broken().to_string());
    assert_eq!(sources(&error), sources(&*broken()));
    let boxed: BoxError = error.into();
    let error = *boxed.downcast::<FlightError<BoxError>>().unwrap();
    assert!(error.into_inner().unwrap().is::<std::io::Error>());
}

fn sources(error: &(dyn Error + 'static)) -> usize {
    std::iter::successors(error.source(), |error| (*error).source()).count()
}
