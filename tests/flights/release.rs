//! Callers that are let go together, and how fast they enter inner.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderValue, Response, header::SET_COOKIE};
use tokio::time::Instant;
use tower::{limit::ConcurrencyLimit, util::BoxCloneSyncService};
use tower_singleflight::{Config, ConfigBuilder, Delivery, FailureKind, MemoryStore};

use crate::rig::{Call, Counts, InnerService, Node, Reply, answer, inner, ms, until};

/// When each run entered inner.
type Entered = Arc<Mutex<Vec<Instant>>>;

const FIRST: Duration = ms(1000);

/// The first run takes a second, and all say this of their answer.
fn service(counts: &Arc<Counts>, entered: &Entered, say: fn(&mut Response<Reply>)) -> InnerService {
    let entered = Arc::clone(entered);
    inner(counts, move |nth| {
        entered.lock().unwrap().push(Instant::now());
        async move {
            if nth == 0 {
                tokio::time::sleep(FIRST).await;
            }
            let mut answer = answer(format!("run {nth}"));
            say(&mut answer);
            answer
        }
    })
}

fn private(answer: &mut Response<Reply>) {
    answer.headers_mut().insert(SET_COOKIE, HeaderValue::from_static("a=b"));
}

fn node(change: impl FnOnce(ConfigBuilder) -> ConfigBuilder) -> (Node, Arc<Counts>, Entered) {
    let (counts, entered) = <(Arc<Counts>, Entered)>::default();
    let config = change(Config::builder()).build().unwrap();
    let node = Node::new(MemoryStore::new(), &service(&counts, &entered, private), config);
    (node, counts, entered)
}

/// A caller whose request runs, and so many that wait for it.
async fn herd(node: &Node, counts: &Counts, waiters: usize) -> (Call, Vec<Call>) {
    let owner = node.call("/a");
    until(|| counts.calls() == 1).await;
    let calls = (0..waiters).map(|_| node.call("/a")).collect();
    until(|| node.layer.flights()[0].callers == waiters + 1).await;
    (owner, calls)
}

#[tokio::test(start_paused = true)]
async fn l3_let_go_at_a_rate_they_enter_in_turn() {
    let (node, counts, entered) = node(|config| config.release_rate(100));
    let (owner, calls) = herd(&node, &counts, 1000).await;
    assert_eq!(owner.await.text(), "run 0");
    for (at, call) in calls.into_iter().enumerate() {
        // Who came first enters first.
        assert_eq!(call.await.text(), format!("run {}", at + 1));
    }
    let entered = entered.lock().unwrap();
    for (at, entered_at) in entered[1..].iter().enumerate() {
        let due = entered[0] + FIRST + ms(10) * at as u32;
        assert_eq!(*entered_at, due, "the {at}th");
    }
    let stats = node.layer.stats();
    assert_eq!((stats.owner, stats.bypass, stats.failed), (1, 1000, 0));
}

#[tokio::test(start_paused = true)]
async fn l3_by_default_all_enter_at_once() {
    let (node, counts, entered) = node(|config| config);
    let (_owner, calls) = herd(&node, &counts, 1000).await;
    for call in calls {
        assert_eq!(call.await.status, 200);
    }
    let entered = entered.lock().unwrap();
    assert!(entered[1..].iter().all(|at| *at == entered[0] + FIRST));
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_line_gives_its_turn_to_the_next() {
    let (node, counts, entered) = node(|config| config.release_rate(10));
    let (owner, mut calls) = herd(&node, &counts, 100).await;
    owner.await;
    let stays = calls.split_off(90);
    until(|| counts.calls() == 2).await;
    let began = entered.lock().unwrap()[1];
    // All but one of those before them: that one has entered.
    calls.into_iter().for_each(Call::hang_up);
    for call in stays {
        assert_eq!(call.await.status, 200);
    }
    let entered = entered.lock().unwrap();
    assert_eq!(entered.len(), 12);
    for (at, entered_at) in entered[1..].iter().enumerate() {
        assert_eq!(*entered_at, began + ms(100) * at as u32);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_line_is_a_wait() {
    let limit = FIRST + ms(450);
    let (node, counts, _) = node(|config| config.release_rate(10).wait_limit(limit));
    let (_owner, calls) = herd(&node, &counts, 20).await;
    for (at, call) in calls.into_iter().enumerate() {
        let answer = call.await;
        if at < 5 {
            assert_eq!(answer.status, 200, "{at}");
        } else {
            assert_eq!(answer.kind(), Some(FailureKind::WaitedTooLong), "{at}");
            assert!(answer.took >= limit && answer.took < limit + ms(10), "{:?}", answer.took);
        }
    }
    assert_eq!((counts.calls(), node.layer.stats().failed), (6, 15));
}

#[tokio::test(start_paused = true)]
async fn in_line_nobody_holds_a_permit_of_inner_and_others_pass() {
    let (counts, entered) = <(Arc<Counts>, Entered)>::default();
    let one = ConcurrencyLimit::new(service(&counts, &entered, private), 1);
    let config = Config::builder().release_rate(1).build().unwrap();
    let node = Node::new(MemoryStore::new(), &BoxCloneSyncService::new(one), config);
    let (owner, calls) = herd(&node, &counts, 5).await;
    owner.await;
    until(|| counts.calls() == 2).await;
    // Another key, and callers who have waited for nothing: the key is marked.
    for path in ["/b", "/a", "/a"] {
        let began = Instant::now();
        assert_eq!(node.call(path).await.status, 200);
        assert!(began.elapsed() < ms(50), "{path}: {:?}", began.elapsed());
    }
    assert_eq!(counts.calls(), 5);
    for call in calls {
        assert_eq!(call.await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn callers_elsewhere_are_bounded_by_their_own_setting() {
    let store = MemoryStore::new();
    let (counts, entered) = <(Arc<Counts>, Entered)>::default();
    let inner = service(&counts, &entered, private);
    let slow = Config::builder().release_rate(10).build().unwrap();
    let [one, two, three] = [Config::default(), slow, Config::default()]
        .map(|config| Node::new(store.clone(), &inner, config));
    let owner = one.call("/a");
    until(|| counts.calls() == 1).await;
    let [two, three] = [two, three].map(|node| (0..5).map(|_| node.call("/a")).collect::<Vec<_>>());
    owner.await;
    for call in three {
        assert!(call.await.took < FIRST + ms(50));
    }
    for (at, call) in (0..).zip(two) {
        let (took, due) = (call.await.took, FIRST + ms(100 * at));
        assert!(took + ms(50) > due && took < due + ms(50), "{at}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_kinds_of_being_let_go_are_bounded() {
    let (counts, entered) = <(Arc<Counts>, Entered)>::default();
    let inner = service(&counts, &entered, |_| {});
    let config = Config::builder()
        .release_rate(10)
        .delivery(Delivery::Buffered)
        .max_share_bytes(4)
        .build()
        .unwrap();
    let node = Node::new(MemoryStore::new(), &inner, config);
    let (_owner, calls) = herd(&node, &counts, 5).await;
    for call in calls {
        assert_eq!(call.await.status, 200);
    }
    let entered = entered.lock().unwrap();
    for (at, entered_at) in entered[1..].iter().enumerate() {
        assert_eq!(*entered_at, entered[0] + FIRST + ms(100) * at as u32, "too large");
    }
}

#[test]
fn a_rate_of_nothing_is_refused() {
    let refused = Config::builder().release_rate(0).build().unwrap_err();
    assert_eq!(refused.to_string(), "release_rate (0) must be more than zero");
}
