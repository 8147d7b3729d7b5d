//! What those who wait hear, find, and count for.

use std::time::Duration;

use super::{
    Place,
    node::{
        LAPSE, LEASE, Node, STEP, ask, ask_after, done, ended, follows, is_done, is_lapsed,
        is_missing, key, polled_once,
    },
    pieces::{append, sealed},
};
use crate::{
    id::{FlightId, FlightRef},
    store::{BeatReply, EndStatus, Finished, Join, Loss, Pushed},
};

async fn pair(engine: &dyn Place) -> (Node, FlightRef, Node, Join) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    let mut follower = Node::new(engine, key).await;
    let wait = ask();
    follower.follow(&wait, flight).await;
    (owner, flight, follower, wait)
}

#[track_caller]
fn is_end(pushed: &Pushed, of: FlightRef, how: EndStatus, text: Option<&str>) {
    match pushed {
        Pushed::Ended { flight, status, record, seal: None }
            if *flight == of && *status == how && record.as_deref() == text.map(str::as_bytes) => {}
        other => panic!("not the end of {of:?} as {how:?}: {other:?}"),
    }
}

pub(super) async fn follower_gets_push_with_record(engine: &dyn Place) {
    let (mut owner, flight, mut follower, _) = pair(engine).await;
    let wait = async {
        is_end(&follower.pushed().await, flight, EndStatus::Done, Some("answer"));
    };
    let finish = async {
        tokio::task::yield_now().await;
        assert_eq!(owner.finish(&done(flight, "answer")).await, Finished::Accepted);
    };
    tokio::join!(wait, finish);
    follower.not_pushed().await;
}

pub(super) async fn push_between_join_and_wait_is_kept(engine: &dyn Place) {
    let (mut owner, flight, mut follower, _) = pair(engine).await;
    owner.finished(&done(flight, "answer")).await;
    engine.elapse(Duration::from_millis(50)).await;
    is_end(&follower.pushed().await, flight, EndStatus::Done, Some("answer"));
}

pub(super) async fn push_outlives_a_wait_that_was_dropped(engine: &dyn Place) {
    let (mut owner, flight, mut follower, _) = pair(engine).await;
    for _ in 0..3 {
        follower.not_pushed().await;
    }
    owner.renewed(flight).await;
    owner.finished(&done(flight, "answer")).await;
    is_end(&follower.pushed().await, flight, EndStatus::Done, Some("answer"));
}

pub(super) async fn look_for_a_push_loses_none(engine: &dyn Place) {
    let (mut owner, flight, mut follower, _) = pair(engine).await;
    assert!(polled_once(follower.session.pushed()).await.is_none());
    for first in 0..3 {
        owner.appended(&append(flight, first, &["x"])).await;
    }
    owner.finished(&sealed(flight, 3)).await;
    for next in 0..3 {
        let pushed = follower.glimpsed().await;
        assert!(matches!(pushed, Pushed::Piece { index, .. } if index == next), "{pushed:?}");
    }
    let pushed = follower.glimpsed().await;
    assert!(matches!(pushed, Pushed::Ended { flight: of, .. } if of == flight), "{pushed:?}");
}

pub(super) async fn pushes_begin_with_the_first_follow(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    let mut other = Node::new(engine, key).await;
    other.not_pushed().await;
    owner.finished(&done(flight, "one")).await;
    let second = owner.own(&ask()).await;
    other.follow(&ask(), second).await;
    other.not_pushed().await;
    owner.finished(&done(second, "two")).await;
    is_end(&other.pushed().await, second, EndStatus::Done, Some("two"));
}

pub(super) async fn release_is_pushed(engine: &dyn Place) {
    let (mut owner, flight, mut follower, wait) = pair(engine).await;
    owner.release(flight.id, Some(flight.token)).await;
    let pushed = follower.pushed().await;
    assert!(matches!(pushed, Pushed::Released { flight: of } if of == flight), "{pushed:?}");
    // The wait goes on: its next flight's end is heard too.
    let next = owner.own(&ask()).await;
    follower.follow(&Join { known: flight.token, ..wait.clone() }, next).await;
    follower.leave(wait.waiter).await;
    owner.abandon(next).await;
    let pushed = follower.pushed().await;
    assert!(matches!(pushed, Pushed::Released { flight: of } if of == next), "{pushed:?}");
}

pub(super) async fn failure_is_pushed(engine: &dyn Place) {
    for how in [EndStatus::Failed, EndStatus::TimedOut] {
        let (mut owner, flight, mut follower, _) = pair(engine).await;
        owner.finished(&ended(flight, how)).await;
        is_end(&follower.pushed().await, flight, how, None);
    }
}

pub(super) async fn rank_counts_those_who_joined_before(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    let waits = [ask(), ask(), ask()];
    for (place, wait) in (0..).zip(&waits) {
        let mut node = Node::new(engine, key).await;
        assert_eq!(node.follow(wait, flight).await.1, place);
        // Asked again, it keeps its place.
        assert_eq!(node.follow(wait, flight).await.1, place);
    }
    let mut node = Node::new(engine, key).await;
    node.leave(waits[0].waiter).await;
    assert_eq!(node.follow(&waits[2], flight).await.1, 1);
    assert_eq!(owner.renewed(flight).await, 2);
}

pub(super) async fn waiter_mark_runs_out(engine: &dyn Place) {
    let (mut owner, flight, _follower, _) = pair(engine).await;
    // The mark lasts for the rest of the lease and one more.
    for _ in 0..3 {
        assert_eq!(owner.renewed(flight).await, 1);
        engine.elapse(STEP).await;
    }
    for _ in 0..2 {
        owner.renewed(flight).await;
        engine.elapse(STEP).await;
    }
    assert_eq!(owner.renewed(flight).await, 0);
    assert_eq!(owner.finish(&ended(flight, EndStatus::Done)).await, Finished::Accepted);
}

pub(super) async fn watch_keeps_the_mark(engine: &dyn Place) {
    let (mut owner, flight, mut follower, wait) = pair(engine).await;
    for _ in 0..6 {
        engine.elapse(STEP).await;
        assert_eq!(owner.renewed(flight).await, 1);
        let (left, rank) = follows(&follower.watch(&wait, STEP * 2).await, flight);
        assert!(left > STEP && left <= LEASE, "{left:?}");
        assert_eq!(rank, 0);
    }
    engine.elapse(STEP).await;
    assert_eq!(owner.renewed(flight).await, 1);
    owner.finished(&done(flight, "answer")).await;
    is_done(&follower.watch(&ask_after(flight), STEP * 2).await, flight, "answer");
}

pub(super) async fn watch_mark_is_as_long_as_asked(engine: &dyn Place) {
    let (mut owner, flight, mut follower, wait) = pair(engine).await;
    follows(&follower.watch(&wait, STEP / 2).await, flight);
    assert_eq!(owner.renewed(flight).await, 1);
    engine.elapse(STEP).await;
    assert_eq!(owner.renewed(flight).await, 0);
}

pub(super) async fn leave_ends_one_wait(engine: &dyn Place) {
    let (mut owner, flight, mut follower, wait) = pair(engine).await;
    follower.follow(&ask(), flight).await;
    assert_eq!(owner.renewed(flight).await, 2);
    for _ in 0..2 {
        follower.leave(wait.waiter).await;
        assert_eq!(owner.renewed(flight).await, 1);
    }
}

pub(super) async fn waiters_outlive_a_takeover(engine: &dyn Place) {
    let (mut owner, flight, mut first, wait) = pair(engine).await;
    let key = first.key;
    let mut second = Node::new(engine, key).await;
    second.follow(&ask(), flight).await;
    owner.release(flight.id, Some(flight.token)).await;
    // Who takes over waits no more; the other still does.
    let take = Join { flight: FlightId::random(), known: flight.token, ..wait };
    let next = first.own(&take).await;
    assert_eq!(first.renewed(next).await, 1);
    assert_eq!(first.finish(&ended(next, EndStatus::Done)).await, Finished::Wanted);
}

pub(super) async fn look_never_grants(engine: &dyn Place) {
    let key = key();
    let mut node = Node::new(engine, key).await;
    is_missing(&node.look(&ask()).await);
    is_missing(&node.watch(&ask(), LEASE).await);
    let flight = node.own(&ask()).await;
    engine.elapse(LAPSE).await;
    is_lapsed(&node.look(&ask_after(flight)).await);
    is_lapsed(&node.watch(&ask_after(flight), LEASE).await);
    let next = node.own(&ask_after(flight)).await;
    node.finished(&ended(next, EndStatus::Failed)).await;
    is_lapsed(&node.watch(&ask_after(next), LEASE).await);
    node.own(&ask_after(next)).await;
}

pub(super) async fn follower_gets_the_outcome_whose_push_it_missed(engine: &dyn Place) {
    let (mut owner, flight, follower, _) = pair(engine).await;
    let key = follower.key;
    drop(follower);
    owner.finished(&done(flight, "answer")).await;
    let mut again = Node::new(engine, key).await;
    for _ in 0..2 {
        assert!(!is_done(&again.join(&ask_after(flight)).await, flight, "answer"));
    }
}

pub(super) async fn follower_gets_the_outcome_under_the_next_owner(engine: &dyn Place) {
    let (mut owner, flight, mut follower, wait) = pair(engine).await;
    owner.finished(&done(flight, "answer")).await;
    let next = owner.own(&ask()).await;
    let look = Join { known: flight.token, ..wait };
    is_done(&follower.join(&look).await, flight, "answer");
    is_done(&follower.watch(&look, LEASE).await, flight, "answer");
    // A fresh caller follows the one that runs.
    follower.follow(&ask(), next).await;
}

pub(super) async fn follower_never_gets_older_outcome(engine: &dyn Place) {
    let (mut owner, old, mut follower, wait) = pair(engine).await;
    owner.finished(&done(old, "old")).await;
    let next = owner.own(&ask()).await;
    let wait = Join { known: next.token, ..wait };
    // While the next one runs, when its lease is over, and when it was let go.
    follower.follow(&wait, next).await;
    engine.elapse(LAPSE).await;
    is_lapsed(&follower.look(&wait).await);
    owner.release(next.id, Some(next.token)).await;
    is_lapsed(&follower.look(&wait).await);
    // Nor where only the old one's end came through a failover.
    let newer = Join { known: next.token + 5, ..ask() };
    let third = owner.own(&newer).await;
    owner.finished(&done(third, "third")).await;
    is_missing(&follower.look(&Join { known: third.token + 1, ..ask() }).await);
    is_done(&follower.look(&Join { known: third.token, ..ask() }).await, third, "third");
}

pub(super) async fn owner_of_lost_data_is_told_so(engine: &dyn Place) {
    let (mut owner, flight, _follower, _) = pair(engine).await;
    // One lease of grace, in which the record still says who owned.
    engine.elapse(LEASE * 2 + STEP).await;
    let reply = owner.renew(flight).await;
    assert!(matches!(reply, BeatReply::Lost(Loss::Missing)), "{reply:?}");
    assert_eq!(owner.finish(&done(flight, "late")).await, Finished::Lost(Loss::Missing));
}
