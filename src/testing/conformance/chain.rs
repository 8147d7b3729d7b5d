//! What is counted over a chain of flights, so that a bad key costs bounded time.

use std::time::Duration;

use super::{
    Place,
    node::{LAPSE, Node, ask, ask_after, done, ended, is_failed, is_lapsed, key},
};
use crate::{
    id::{FlightRef, KeyDigest},
    store::{EndStatus, Finished, Joined, Pushed},
};

/// Owns after `last`, or as a fresh caller, and ends so.
async fn run(
    engine: &dyn Place,
    key: KeyDigest,
    last: Option<FlightRef>,
    how: EndStatus,
) -> FlightRef {
    let mut node = Node::new(engine, key).await;
    let flight = node.own(&last.map_or_else(ask, ask_after)).await;
    assert_eq!(node.finish(&ended(flight, how)).await, Finished::Accepted);
    flight
}

/// Owns after `last`, or as a fresh caller, and is never heard of again.
async fn lose(engine: &dyn Place, key: KeyDigest, last: Option<FlightRef>) -> FlightRef {
    let mut node = Node::new(engine, key).await;
    let flight = node.own(&last.map_or_else(ask, ask_after)).await;
    engine.elapse(LAPSE).await;
    flight
}

pub(super) async fn two_failed_runs_end_the_chain(engine: &dyn Place) {
    let key = key();
    let first = run(engine, key, None, EndStatus::Failed).await;
    let second = run(engine, key, Some(first), EndStatus::Failed).await;
    let mut follower = Node::new(engine, key).await;
    for known in [first, second] {
        let joined = follower.join(&ask_after(known)).await;
        let report = is_failed(&joined, second, EndStatus::Failed);
        assert_eq!(report, "broken pipe");
        is_failed(&follower.look(&ask_after(known)).await, second, EndStatus::Failed);
    }
}

pub(super) async fn timeouts_count_as_failed_runs(engine: &dyn Place) {
    let key = key();
    let first = run(engine, key, None, EndStatus::Failed).await;
    let second = run(engine, key, Some(first), EndStatus::TimedOut).await;
    let mut follower = Node::new(engine, key).await;
    is_failed(&follower.join(&ask_after(first)).await, second, EndStatus::TimedOut);
}

pub(super) async fn release_of_a_timed_out_run_counts_as_failed(engine: &dyn Place) {
    let key = key();
    let first = run(engine, key, None, EndStatus::Failed).await;
    let mut owner = Node::new(engine, key).await;
    let second = owner.own(&ask_after(first)).await;
    let mut follower = Node::new(engine, key).await;
    follower.follow(&ask(), second).await;
    owner.release_as(second.id, Some(second.token), EndStatus::TimedOut).await;
    let timed_out = |pushed: &Pushed| {
        matches!(pushed,
            Pushed::Ended { flight, status: EndStatus::TimedOut, record: None, seal: None }
                if *flight == second)
    };
    follower.hears(timed_out).await;
    is_failed(&follower.join(&ask_after(first)).await, second, EndStatus::TimedOut);
}

pub(super) async fn fresh_caller_begins_a_new_chain(engine: &dyn Place) {
    let key = key();
    let first = run(engine, key, None, EndStatus::Failed).await;
    let second = run(engine, key, Some(first), EndStatus::Failed).await;
    let third = run(engine, key, None, EndStatus::Failed).await;
    assert!(third.token > second.token);
    // One failed run in this chain: the next in it may still own.
    let fourth = run(engine, key, Some(third), EndStatus::Failed).await;
    let mut follower = Node::new(engine, key).await;
    is_failed(&follower.join(&ask_after(third)).await, fourth, EndStatus::Failed);
}

pub(super) async fn answer_ends_the_chain(engine: &dyn Place) {
    let key = key();
    let mut node = Node::new(engine, key).await;
    let first = run(engine, key, None, EndStatus::Failed).await;
    let second = node.own(&ask_after(first)).await;
    node.finished(&done(second, "answer")).await;
    let third = run(engine, key, None, EndStatus::Failed).await;
    is_lapsed(&node.look(&ask_after(third)).await);
    run(engine, key, Some(third), EndStatus::Failed).await;
}

pub(super) async fn three_lost_owners_quarantine_the_key(engine: &dyn Place) {
    let key = key();
    let mut last = lose(engine, key, None).await;
    for _ in 0..2 {
        last = lose(engine, key, Some(last)).await;
    }
    let mut node = Node::new(engine, key).await;
    // A look grants nothing, and takes no part in the count.
    is_lapsed(&node.look(&ask_after(last)).await);
    let time = Duration::from_secs(5);
    for ask in [ask_after(last), ask(), ask_after(last)] {
        match node.join(&ask).await {
            Joined::Quarantined { left } => assert!(left <= time && left > time / 2, "{left:?}"),
            other => panic!("not Quarantined: {other:?}"),
        }
    }
    assert!(matches!(node.look(&ask()).await, Joined::Quarantined { .. }));
    // The lost owner lets go late: the key rests all the same.
    node.release(last.id, Some(last.token)).await;
    engine.elapse(time - LAPSE * 2).await;
    assert!(matches!(node.join(&ask_after(last)).await, Joined::Quarantined { .. }));
    engine.elapse(LAPSE * 3).await;
    let next = node.own(&ask_after(last)).await;
    assert!(next.token > last.token);
    // And then the count begins anew.
    engine.elapse(LAPSE).await;
    node.own(&ask_after(next)).await;
}

pub(super) async fn released_owners_are_not_lost_ones(engine: &dyn Place) {
    let key = key();
    let mut node = Node::new(engine, key).await;
    let mut last = lose(engine, key, None).await;
    last = lose(engine, key, Some(last)).await;
    for late in [false, true, false] {
        let flight = node.own(&ask_after(last)).await;
        if late {
            engine.elapse(LAPSE).await;
        }
        node.release(flight.id, Some(flight.token)).await;
        last = flight;
    }
    last = node.own(&ask_after(last)).await;
    engine.elapse(LAPSE).await;
    assert!(matches!(node.join(&ask_after(last)).await, Joined::Quarantined { .. }));
}

pub(super) async fn losses_and_failures_are_counted_apart(engine: &dyn Place) {
    let key = key();
    let first = run(engine, key, None, EndStatus::Failed).await;
    let second = lose(engine, key, Some(first)).await;
    let third = lose(engine, key, Some(second)).await;
    let fourth = run(engine, key, Some(third), EndStatus::Failed).await;
    let mut node = Node::new(engine, key).await;
    is_failed(&node.join(&ask_after(first)).await, fourth, EndStatus::Failed);
}
