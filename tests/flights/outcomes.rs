//! What each end of a flight means to its callers.

use std::{io, sync::Arc};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::timeout;
use tower_singleflight::{Bypass, Config, Delivery, FailureKind, MemoryStore, Stats};

use crate::rig::*;

#[tokio::test(start_paused = true)]
async fn b3_errors_of_inner_are_answers() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    for (nth, code) in [400, 404, 410, 429, 500, 503].into_iter().enumerate() {
        let inner = inner(&counts, move |_| async move {
            tokio::time::sleep(ms(100)).await;
            let mut response = status(code);
            response.headers_mut().insert("x-why", HeaderValue::from_static("a"));
            response.headers_mut().insert("retry-after", HeaderValue::from_static("7"));
            response
        });
        let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
        let path = format!("/{code}");
        for answer in join_all((0..10).map(|nth| [&a, &b][nth % 2].call(&path))).await {
            assert_eq!((answer.status, answer.text()), (code, "a"));
            assert_eq!(answer.headers["x-why"], "a");
            assert_eq!(answer.headers["retry-after"], "7");
        }
        assert_eq!(counts.calls(), nth + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn f5_l3_a_private_answer_frees_all_at_its_head() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = inner(&counts, |nth| async move {
        tokio::time::sleep(ms(500)).await;
        let mut response = answer(format!("run {nth}"));
        response.headers_mut().insert("cache-control", HeaderValue::from_static("no-store"));
        response
    });
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
    let answers = join_all((0..20).map(|nth| [&a, &b][nth % 2].call("/a"))).await;
    let mut bodies: Vec<_> = answers.iter().map(|answer| answer.text().to_owned()).collect();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 20, "each its own");
    assert!(answers.iter().all(|answer| answer.took <= ms(1010)));
    assert_eq!(counts.calls(), 20);
    // For a while nobody waits for nothing.
    let later = join_all((0..5).map(|nth| [&a, &b][nth % 2].call("/a"))).await;
    assert!(later.iter().all(|answer| answer.took <= ms(510)), "{later:?}");
    // After it, one is tried first.
    tokio::time::sleep(ms(6000)).await;
    let after = join_all((0..5).map(|nth| [&a, &b][nth % 2].call("/a"))).await;
    assert_eq!(after.iter().filter(|answer| answer.took > ms(900)).count(), 4);
}

#[tokio::test(start_paused = true)]
async fn b4_an_answer_over_the_limit_goes_to_its_own_caller() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = inner(&counts, |nth| async move {
        tokio::time::sleep(ms(500)).await;
        answer(vec![b'a' + nth as u8; 2000])
    });
    let config = Config::builder().max_share_bytes(1000).build().unwrap();
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, config.clone()));
    let answers = join_all((0..10).map(|nth| [&a, &b][nth % 2].call("/a"))).await;
    for answer in &answers {
        assert_eq!(answer.body.as_ref().unwrap().len(), 2000);
        assert!(answer.took <= ms(1010), "in parallel: {:?}", answer.took);
    }
    assert_eq!(counts.calls(), 10);
}

/// Whoever looks at the numbers knows which of the ends it was.
#[tokio::test(start_paused = true)]
async fn b4_each_way_to_end_has_a_number_of_its_own() {
    let store = MemoryStore::new();
    let config = Config::builder().max_share_bytes(1000).hard_timeout(ms(1000));
    let config = config.delivery(Delivery::Buffered).build().unwrap();
    for (path, ends) in [("/fails", [1, 0, 0, 0]), ("/hangs", [2, 2, 0, 0])].into_iter().chain([
        ("/private", [0, 0, 1, 0]),
        ("/large", [0, 0, 0, 1]),
        ("/fits", [0, 0, 0, 0]),
    ]) {
        let counts = Arc::<Counts>::default();
        let inner = inner(&counts, move |nth| async move {
            tokio::time::sleep(ms(if path == "/hangs" { 3_600_000 } else { 500 })).await;
            assert!(path != "/fails" || nth > 0, "the first run fails");
            let mut response = answer(vec![b'a'; if path == "/large" { 1001 } else { 1000 }]);
            if path == "/private" {
                response.headers_mut().insert("set-cookie", HeaderValue::from_static("a"));
            }
            response
        });
        let nodes = [(); 2].map(|()| Node::new(store.clone(), &inner, config.clone()));
        let owner = tokio::spawn(nodes[0].call(path));
        until(|| counts.calls() == 1).await;
        let others = join_all((0..10).map(|nth| nodes[nth % 2].call(path))).await;
        assert_eq!(owner.await.is_err(), path == "/fails");
        let sum = |of: fn(&Stats) -> u64| nodes.iter().map(|node| of(&node.layer.stats())).sum();
        let told: [u64; 4] = [
            sum(|stats| stats.failed_runs),
            sum(|stats| stats.timed_out_runs),
            sum(|stats| stats.private_runs),
            sum(|stats| stats.large_runs),
        ];
        assert_eq!(told, ends, "{path}");
        let status = if path == "/hangs" { 504 } else { 200 };
        assert!(others.iter().all(|answer| answer.status == status), "{path}");
        let alone = sum(|stats| stats.bypassed(Bypass::Unshared));
        assert_eq!(alone, if ["/private", "/large"].contains(&path) { 10 } else { 0 }, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn b1_a_panic_is_its_callers_and_the_others_elect_anew() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = inner(&counts, |nth| async move {
        tokio::time::sleep(ms(100)).await;
        if nth == 0 { panic!("the first run fails") } else { answer(format!("run {nth}")) }
    });
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
    let first = a.call("/a");
    until(|| counts.calls() == 1).await;
    let others: Vec<_> = (0..10).map(|nth| [&a, &b][nth % 2].call("/a")).collect();
    assert!(tokio::spawn(first).await.is_err_and(|error| error.is_panic()));
    for answer in join_all(others).await {
        assert_eq!(answer.text(), "run 1");
        assert!(answer.took <= ms(1000));
    }
    assert_eq!(a.call("/a").await.text(), "run 2");
    until(|| a.in_air() + b.in_air() == 0).await;
}

/// Fresh callers are none of those who have waited: with each the store begins to count
/// anew. Whoever waits counts too.
#[tokio::test(start_paused = true)]
async fn b5_who_waits_is_told_after_two_failed_runs_whoever_comes_between() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = inner(&counts, |_| async {
        tokio::time::sleep(ms(500)).await;
        panic!("each run fails")
    });
    let line = Line::new(&store);
    let waiting = Node::new(line.clone(), &inner, Config::default());
    let others = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
    let mut fresh = vec![tokio::spawn(others[0].call("/a"))];
    until(|| counts.calls() == 1).await;
    let follower = waiting.call("/a");
    until(|| waiting.in_air() == 1).await;
    tokio::time::sleep(ms(100)).await;
    line.slow(ms(100));
    for run in 1..6 {
        // Here before those who wait.
        until(|| counts.dropped() == run).await;
        fresh.push(tokio::spawn(others[run % 2].call("/a")));
    }
    let answer = follower.await;
    assert_eq!((answer.status, answer.kind()), (503, Some(FailureKind::OwnerFailed)));
    assert!(answer.took <= ms(1250), "{:?}", answer.took);
    drop(fresh);
}

/// It looks once a beat, and is shown one flight after the other.
#[tokio::test(start_paused = true)]
async fn b5_who_hears_nothing_does_not_wait_for_ever_while_runs_fail_elsewhere() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = inner(&counts, |_| async {
        tokio::time::sleep(ms(310)).await;
        let broken = async { Err::<Frame<Bytes>, _>(io::Error::other("each run fails")) };
        Response::new(StreamBody::new(futures_util::stream::once(broken)).boxed_unsync())
    });
    let line = Line::new(&store);
    line.deafen();
    let waiting = Node::new(line, &inner, Config::default());
    let other = Node::new(store, &inner, Config::default());
    let crowd = (0..3).map(|n: u64| {
        let other = other.clone();
        tokio::spawn(async move {
            tokio::time::sleep(ms(37 * n)).await;
            loop {
                other.call("/a").await;
            }
        })
    });
    let crowd: Vec<_> = crowd.collect();
    tokio::time::sleep(ms(200)).await;
    let answer = timeout(ms(15_000), waiting.call("/a")).await.expect("an answer");
    assert!(answer.body.is_err(), "its own");
    crowd.iter().for_each(tokio::task::JoinHandle::abort);
}
