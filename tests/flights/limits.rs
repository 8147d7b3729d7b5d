//! Time limits of callers and of runs.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tower_singleflight::{Config, FailureKind, MemoryStore};

use crate::rig::*;

#[tokio::test(start_paused = true)]
async fn d2_a_callers_own_limit_ends_that_caller_only() {
    let counts = Arc::<Counts>::default();
    let node = Node::new(MemoryStore::new(), &slow(&counts, ms(2000)), Config::default());
    let owner = node.call("/a");
    until(|| counts.calls() == 1).await;
    let hasty = tokio::time::timeout(ms(100), node.call("/a")).await;
    assert!(hasty.is_err());
    let patient = node.call("/a");
    assert_eq!(owner.await.text(), "run 0");
    assert_eq!(patient.await.text(), "run 0");
    assert_eq!(counts.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn d4_callers_that_give_up_do_not_begin_the_work_anew() {
    let counts = Arc::<Counts>::default();
    let node = Node::new(MemoryStore::new(), &slow(&counts, ms(300)), Config::default());
    let mut callers = Vec::new();
    for _ in 0..60 {
        let call = node.call("/a");
        callers.push(tokio::spawn(tokio::time::timeout(ms(100), call)));
        tokio::time::sleep(ms(50)).await;
    }
    let answers = join_all(callers).await;
    let answered = answers.into_iter().filter(|answer| answer.as_ref().unwrap().is_ok()).count();
    assert!(counts.calls() <= 11, "{}", counts.calls());
    assert_eq!(counts.dropped(), 0);
    assert!(answered >= 10, "{answered}");
}

#[tokio::test(start_paused = true)]
async fn a_followers_wait_limit_does_not_touch_the_run() {
    let counts = Arc::<Counts>::default();
    let config = Config::builder().wait_limit(ms(200)).build().unwrap();
    let node = Node::new(MemoryStore::new(), &slow(&counts, ms(1000)), config);
    let owner = node.call("/a");
    until(|| counts.calls() == 1).await;
    let follower = node.call("/a").await;
    assert_eq!((follower.status, follower.took), (504, ms(200)));
    assert_eq!(follower.kind(), Some(FailureKind::WaitedTooLong));
    assert_eq!(owner.await.text(), "run 0");
}

#[tokio::test(start_paused = true)]
async fn b4_a_run_over_its_limit_is_tried_once_more_then_fails() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = slow(&counts, Duration::from_secs(3600));
    let config = Config::builder().hard_timeout(ms(1000)).build().unwrap();
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, config.clone()));
    let calls: Vec<_> = (0..10).map(|nth| [&a, &b][nth % 2].call("/a")).collect();
    for answer in join_all(calls).await {
        assert_eq!(answer.status, 504);
        assert_eq!(answer.kind(), Some(FailureKind::OwnerTimedOut));
        assert!(answer.took <= ms(3000), "{:?}", answer.took);
    }
    assert_eq!((counts.calls(), counts.dropped()), (2, 2));
    // The key is free.
    let next = a.call("/a");
    until(|| counts.calls() == 3).await;
    drop(next);
}

#[tokio::test(start_paused = true)]
async fn a_failing_inner_fails_all_callers_after_two_runs() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = inner(&counts, |nth| async move {
        tokio::time::sleep(ms(500)).await;
        if nth < 100 { panic!("run {nth} fails") } else { answer("never") }
    });
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
    let calls: Vec<_> = (0..20).map(|nth| [&a, &b][nth % 2].call("/a")).collect();
    let mut panicked = 0;
    for call in calls {
        // The two whose requests were run see the panic of their own run.
        match tokio::spawn(call).await {
            Err(_) => panicked += 1,
            Ok(answer) => {
                assert_eq!(answer.status, 503);
                assert_eq!(answer.kind(), Some(FailureKind::OwnerFailed));
                assert!(answer.took <= ms(1500), "{:?}", answer.took);
            }
        }
    }
    assert_eq!((counts.calls(), panicked), (2, 2));
}
