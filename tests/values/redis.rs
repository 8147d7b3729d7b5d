//! Two processes that meet on a real server.

#[path = "../support/mod.rs"]
mod common;

use std::io;

use common::{eventually, redis_server::RedisServer};
use tokio::sync::watch;
use tower::{Layer as _, ServiceExt};
use tower_singleflight::{FailureKind, FlightError, RedisStore};

use crate::support::{Layer, Question, Report, Runs, ask, inner, layer, ms};

type Given = Result<Report, FlightError<io::Error>>;

async fn process(server: &RedisServer) -> Layer<Report> {
    let store = RedisStore::connect(&server.url()).await.unwrap();
    layer().store(store).namespace("tests")
}

/// What twelve callers of two processes get: none is answered before all wait.
async fn twelve<F>(runs: &Runs, answer: F) -> Vec<Given>
where
    F: Fn(usize, Question) -> io::Result<Report> + Clone + Send + Sync + 'static,
{
    let server = RedisServer::start();
    let (gate, gated) = watch::channel(false);
    let service = inner(runs, ms(0), answer).map_future(move |run| {
        let mut gated = gated.clone();
        async move {
            gated.wait_for(|open| *open).await.unwrap();
            run.await
        }
    });
    let nodes = [process(&server).await, process(&server).await];
    let mut callers = Vec::new();
    for node in &nodes {
        let service = node.layer(service.clone());
        for _ in 0..6 {
            callers.push(tokio::spawn(service.clone().oneshot(ask("Rome", callers.len()))));
        }
        eventually("they wait", async || {
            matches!(&node.flights()[..], [one] if one.callers == 6 && one.token.is_some())
        })
        .await;
    }
    gate.send_replace(true);
    let mut answers = Vec::new();
    for caller in callers {
        answers.push(caller.await.unwrap());
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b2_one_run_for_callers_of_two_processes() {
    // With the first answer, in a push, and as a large body of its own.
    for size in [10, 10_000, 1_000_000] {
        let runs = Runs::default();
        let answers = twelve(&runs, move |run, question| {
            let text = question.city.repeat(size / question.city.len());
            Ok(Report { run, text, own: Some(question.caller) })
        });
        let answers: Vec<_> = answers.await.into_iter().map(Result::unwrap).collect();
        assert_eq!(runs.total(), 1, "{size}");
        let text = "Rome".repeat(size / 4);
        assert!(answers.iter().all(|answer| answer.run == 0 && answer.text == text));
        assert_eq!(answers.iter().filter(|answer| answer.own.is_some()).count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b5_owners_have_the_error_and_followers_are_told_of_it() {
    let runs = Runs::default();
    let answers = twelve(&runs, |run, _| Err(io::Error::other(format!("disk {run} is full"))));
    let (mut own, mut told) = (Vec::new(), 0);
    for answer in answers.await {
        match answer.unwrap_err() {
            FlightError::Inner(error) => own.push(error.to_string()),
            FlightError::Failure(failure) => {
                assert_eq!(failure.kind(), FailureKind::OwnerFailed);
                assert_eq!(failure.report(), Some("disk 1 is full"));
                told += 1;
            }
        }
    }
    own.sort_unstable();
    assert_eq!((own, told), (vec!["disk 0 is full".to_owned(), "disk 1 is full".into()], 10));
    assert_eq!(runs.total(), 2);
}
