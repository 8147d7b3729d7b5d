//! A layer that is given no store asks for no lease; all else is as with one.

use tokio::task::JoinHandle;
use tower::Layer;
use tower_singleflight::{Config, FailureKind, FlightPhase};

use crate::support::{
    ALONE, Answer, Inner, Runs, ask, crowd, get, layer, ms, numbered, sure, text, until,
};

type Service = tower_singleflight::SingleFlight<Inner, tower_singleflight::HttpKey>;

/// Three callers, once their run has begun.
async fn three(service: &Service, runs: &Runs) -> JoinHandle<Vec<Answer>> {
    let (service, before) = (service.clone(), runs.total());
    let callers = tokio::spawn(async move { crowd(&[&service], 3, get("/")).await });
    until("a run", || runs.total() > before).await;
    callers
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_blocked_loses_no_run() {
    let runs = Runs::default();
    let callers = three(&layer().layer(numbered(&runs, ms(60_000))), &runs).await;
    tokio::time::advance(ms(30_000)).await;
    assert!(callers.await.unwrap().iter().all(|answer| answer.text() == "run 0"));
    assert_eq!((runs.total(), runs.dropped()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_its_grace_and_then_gives_runs_up() {
    for (grace, given_up) in [(ms(1000), false), (ms(100), true)] {
        let (runs, node) = (Runs::default(), layer());
        let callers = three(&node.layer(numbered(&runs, ms(500))), &runs).await;
        node.drain(grace).await;
        assert_eq!(runs.running(), 0);
        for answer in callers.await.unwrap() {
            let failure = answer.failure.map(|failure| failure.kind());
            assert_eq!(failure, given_up.then_some(FailureKind::Draining));
        }
        assert_eq!((runs.total(), node.stats().hand_overs), (1, u64::from(given_up)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_run_is_its_own_callers() {
    let (runs, node) = (Runs::default(), layer());
    let service = node.layer(numbered(&runs, ms(500)));
    let before = three(&service, &runs).await;
    let [flight] = &node.flights()[..] else { panic!("one flight") };
    assert_eq!(flight.phase, FlightPhase::Owning);
    assert!(flight.token.is_some());
    node.forget(&get("/")).await.unwrap();
    let after = three(&service, &runs).await;
    assert!(before.await.unwrap().iter().all(|answer| answer.text() == "run 0"));
    assert!(after.await.unwrap().iter().all(|answer| answer.text() == "run 1"));
    assert!(node.flights().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_private_answer_leaves_its_mark() {
    let (runs, node) = (Runs::default(), layer());
    let service = node.layer(sure(&runs, ms(500), |_, _| {
        let mut response = text("mine");
        response.headers_mut().insert("set-cookie", http::HeaderValue::from_static("a=b"));
        response
    }));
    three(&service, &runs).await.await.unwrap();
    assert_eq!((runs.total(), node.stats().owner), (3, 1));
    // Nobody waits for another while the mark stands.
    let answers = crowd(&[&service], 3, get("/")).await;
    assert!(answers.iter().all(|answer| answer.role == ALONE));
    tokio::time::sleep(ms(60_000)).await;
    assert!(ask(&service, get("/")).await.is_owner());
    assert!(ask(&service, get("/other")).await.is_owner());
}

/// Also where those who share would use answers again, and so would ask for leases.
#[tokio::test(start_paused = true)]
async fn shadow_mode_compares_those_who_would_have_met() {
    for reuse in [ms(0), ms(10_000)] {
        let config = Config::builder().shadow(true).reuse(reuse).build().unwrap();
        let (runs, node) = (Runs::default(), layer().config(config));
        let service = node.layer(numbered(&runs, ms(100)));
        for _ in 0..2 {
            crowd(&[&service], 3, get("/")).await;
            until("all are compared", || node.flights().is_empty()).await;
            // The last to be compared may be a step behind its flight.
            tokio::time::sleep(ms(1)).await;
        }
        let stats = node.stats();
        assert_eq!((runs.total(), stats.shadow_differed, stats.shadow_agreed), (6, 4, 0));
        assert_eq!((stats.shadow_unshareable, stats.shadow_uncompared), (0, 0));
    }
}
