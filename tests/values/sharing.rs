//! Who gets what (rows B2, C6, T4).

use std::convert::Infallible;

use futures_util::future::join_all;
use tower::{Layer, ServiceExt};
use tower_singleflight::{Config, FlightError};

use crate::support::{Report, Runs, ask, crowd, layer, ms, nodes, reports};

#[tokio::test(start_paused = true)]
async fn b2_one_run_for_callers_of_two_processes() {
    let runs = Runs::default();
    let nodes = nodes::<Report, 2>();
    let [here, there] = [0, 1].map(|n| nodes[n].layer(reports::<Infallible>(&runs, ms(200))));
    let reports = crowd(&[&here, &there], 20, "Rome").await;
    assert_eq!(runs.total(), 1);
    let reports: Vec<_> = reports.into_iter().map(Result::unwrap).collect();
    assert!(reports.iter().all(|report| (report.run, &*report.text) == (0, "Rome in run 0")));
    // One has inner's own value, with what is no part of its written form.
    let own: Vec<_> =
        reports.iter().enumerate().filter(|(_, report)| report.own.is_some()).collect();
    assert!(matches!(own[..], [(caller, report)] if report.own == Some(caller)), "{own:?}");
    let [here, there] = nodes.map(|node| node.stats());
    assert_eq!((here.owner + there.owner, here.bypass + there.bypass), (1, 0));
    assert_eq!(here.follower_local + here.follower_remote, 19);
    assert_eq!(there.follower_local + there.follower_remote, 20);
}

#[tokio::test(start_paused = true)]
async fn keys_are_told_apart_and_no_key_means_alone() {
    let (runs, node) = (Runs::default(), layer());
    let service = node.layer(reports::<Infallible>(&runs, ms(100)));
    let cities = ["Rome", "rome", "Oslo", "", ""];
    let asked = cities.map(|city| service.clone().oneshot(ask(city, 0)));
    let reports: Vec<_> = join_all(asked).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(runs.total(), 4);
    assert_eq!(reports[0].run, reports[1].run);
    assert!(reports[2].text.starts_with("Oslo") && reports[3].text.starts_with(" in"));
    assert_eq!(node.stats().bypass, 2);
}

#[tokio::test(start_paused = true)]
async fn a_later_caller_begins_anew_unless_told_otherwise() {
    for (reuse, total) in [(0, 2), (5000, 1)] {
        let runs = Runs::default();
        let config = Config::builder().reuse(ms(reuse)).build().unwrap();
        let [here, there] = nodes()
            .map(|node| node.config(config.clone()).layer(reports::<Infallible>(&runs, ms(1))));
        here.oneshot(ask("Rome", 0)).await.unwrap();
        tokio::time::sleep(ms(100)).await;
        let report = there.oneshot(ask("Rome", 1)).await.unwrap();
        assert_eq!((runs.total(), report.run), (total, total - 1));
    }
}

/// Larger than is shared: its own caller has it, others run their own.
#[tokio::test(start_paused = true)]
async fn b4_a_large_value_stays_with_its_caller() {
    let runs = Runs::default();
    let config = Config::builder().max_share_bytes(100).build().unwrap();
    let large = || {
        crate::support::inner(&runs, ms(100), |run, question| {
            Ok::<_, Infallible>(Report { run, text: "x".repeat(101), own: Some(question.caller) })
        })
    };
    let [here, there] = nodes().map(|node| node.config(config.clone()).layer(large()));
    let reports: Vec<Result<_, FlightError<_>>> = crowd(&[&here, &there], 3, "Rome").await;
    assert_eq!(runs.total(), 6);
    for (caller, report) in reports.into_iter().enumerate() {
        assert_eq!(report.unwrap().own, Some(caller));
    }
}

#[tokio::test(start_paused = true)]
async fn forgotten_values_are_made_anew() {
    let (runs, node) = (Runs::default(), layer());
    let service = node.layer(reports::<Infallible>(&runs, ms(100)));
    let first = tokio::spawn(service.clone().oneshot(ask("Rome", 0)));
    tokio::time::sleep(ms(10)).await;
    node.forget(&ask("ROME", 1)).await.unwrap();
    let second = service.oneshot(ask("Rome", 2)).await.unwrap();
    assert_eq!((first.await.unwrap().unwrap().run, second.run, runs.total()), (0, 1, 2));
}
