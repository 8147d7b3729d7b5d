//! How flights end, and for how long that stands.

use std::time::Duration;

use super::{
    Place,
    node::{
        self, KEEP, LAPSE, LEASE, Node, STEP, ask, ask_after, done, ended, is_done, is_ended,
        is_failed, is_lapsed, is_missing, key,
    },
};
use crate::store::{Abandoned, BeatReply, EndStatus, Finish, Finished, Join, Joined, Loss, Pushed};

pub(super) async fn finish_twice_is_accepted(engine: &dyn Place) {
    let statuses =
        [EndStatus::Failed, EndStatus::TimedOut, EndStatus::Private, EndStatus::TooLarge];
    for status in statuses {
        let mut node = Node::new(engine, key()).await;
        let flight = node.own(&ask()).await;
        for _ in 0..2 {
            assert_eq!(node.finish(&ended(flight, status)).await, Finished::Accepted);
            let reply = node.renew(flight).await;
            assert!(matches!(reply, BeatReply::Over), "{reply:?}");
        }
    }
    let mut node = Node::new(engine, key()).await;
    let flight = node.own(&ask()).await;
    assert_eq!(node.finish(&done(flight, "answer")).await, Finished::Accepted);
    assert_eq!(node.finish(&done(flight, "answer")).await, Finished::Accepted);
    // Also once the lease would have been over.
    engine.elapse(LAPSE).await;
    assert_eq!(node.finish(&done(flight, "answer")).await, Finished::Accepted);
    assert!(matches!(node.renew(flight).await, BeatReply::Over));
}

pub(super) async fn finish_is_accepted_again_after_the_next_grant(engine: &dyn Place) {
    let key = key();
    let mut old = Node::new(engine, key).await;
    let first = old.own(&ask()).await;
    assert_eq!(old.finish(&done(first, "one")).await, Finished::Accepted);
    let mut new = Node::new(engine, key).await;
    let second = new.own(&ask()).await;
    assert_eq!(old.finish(&done(first, "one")).await, Finished::Accepted);
    assert!(matches!(old.renew(first).await, BeatReply::Over));
    new.renewed(second).await;
}

pub(super) async fn outcome_stands_against_a_second_one(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    let flight = node.own(&ask()).await;
    node.finished(&done(flight, "one")).await;
    node.finished(&done(flight, "two")).await;
    node.finished(&ended(flight, EndStatus::Failed)).await;
    is_done(&node.look(&ask_after(flight)).await, flight, "one");
    assert_eq!(node.fetch().await.as_deref(), Some(&b"one"[..]));
}

pub(super) async fn kept_back_record_is_wanted_when_somebody_waits(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    let mut follower = Node::new(engine, key).await;
    follower.follow(&ask(), flight).await;
    assert_eq!(owner.finish(&ended(flight, EndStatus::Done)).await, Finished::Wanted);
    // Nothing has happened.
    assert_eq!(owner.renewed(flight).await, 1);
    follower.not_pushed().await;
    assert_eq!(owner.finish(&done(flight, "answer")).await, Finished::Accepted);
    is_done(&follower.look(&ask_after(flight)).await, flight, "answer");
}

pub(super) async fn kept_back_record_is_let_go_when_nobody_waits(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let ask = ask();
    let flight = owner.own(&ask).await;
    for _ in 0..2 {
        let finished = owner.finish(&ended(flight, EndStatus::Done)).await;
        assert_eq!(finished, Finished::Accepted);
    }
    assert_eq!(owner.fetch().await, None);
    is_ended(&owner.join(&ask).await, EndStatus::Abandoned);
    let mut other = Node::new(engine, key).await;
    other.own(&node::ask()).await;
}

pub(super) async fn abandon_is_refused_while_a_waiter_is_live(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    let mut nodes = [Node::new(engine, key).await, Node::new(engine, key).await];
    let waits = [ask(), ask()];
    for (node, wait) in nodes.iter_mut().zip(&waits) {
        node.follow(wait, flight).await;
    }
    assert_eq!(owner.abandon(flight).await, Abandoned::Wanted { waiters: 2 });
    nodes[0].leave(waits[0].waiter).await;
    assert_eq!(owner.abandon(flight).await, Abandoned::Wanted { waiters: 1 });
    assert_eq!(owner.renewed(flight).await, 1);
    nodes[1].leave(waits[1].waiter).await;
    assert_eq!(owner.abandon(flight).await, Abandoned::Over);
}

pub(super) async fn abandon_hands_over_at_once(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let ask = ask();
    let flight = owner.own(&ask).await;
    assert_eq!(owner.abandon(flight).await, Abandoned::Over);
    is_ended(&owner.join(&ask).await, EndStatus::Abandoned);
    let mut other = Node::new(engine, key).await;
    let next = other.own(&node::ask()).await;
    let lost = Abandoned::Lost(Loss::Superseded { by: next.token });
    assert_eq!(owner.abandon(flight).await, lost);
    other.renewed(next).await;
}

pub(super) async fn private_mark_frees_all_and_ends(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    let mut follower = Node::new(engine, key).await;
    follower.follow(&ask(), flight).await;
    let mark = Duration::from_secs(2);
    let finish = Finish { keep: mark, ..ended(flight, EndStatus::Private) };
    assert_eq!(owner.finish(&finish).await, Finished::Accepted);
    let private =
        |pushed: &Pushed| matches!(pushed, Pushed::Ended { status: EndStatus::Private, .. });
    follower.hears(private).await;
    // One fresh caller finds out whether it is still so.
    assert!(matches!(follower.join(&ask()).await, Joined::Probe { .. }));
    // For those who followed, for fresh ones, for looks, and well past the lease.
    for ask in [ask(), ask_after(flight), Join { look_only: true, ..ask() }] {
        match follower.join(&ask).await {
            Joined::Private { left } => assert!(left <= mark && left > mark / 2, "{left:?}"),
            other => panic!("not Private: {other:?}"),
        }
    }
    engine.elapse(LEASE * 2).await;
    match owner.join(&ask()).await {
        Joined::Private { left } => assert!(left <= mark - LEASE * 2, "{left:?}"),
        other => panic!("not Private: {other:?}"),
    }
    engine.elapse(LAPSE * 2).await;
    owner.own(&ask()).await;
}

pub(super) async fn one_probe_at_a_time_clears_a_private_mark(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    let finish = Finish { keep: KEEP, ..ended(flight, EndStatus::Private) };
    owner.finished(&finish).await;
    let mut other = Node::new(engine, key).await;
    // Neither those who followed nor a look are asked to find out.
    for ask in [ask_after(flight), Join { look_only: true, ..ask() }] {
        assert!(matches!(other.join(&ask).await, Joined::Private { .. }));
    }
    let mut probe = ask();
    for found in [EndStatus::Abandoned, EndStatus::TimedOut] {
        // Asked again it is the same probe; another caller is none.
        for _ in 0..2 {
            match owner.join(&probe).await {
                Joined::Probe { left } => assert!(left <= KEEP && left > KEEP / 2, "{left:?}"),
                joined => panic!("not Probe: {joined:?}"),
            }
            assert!(matches!(other.join(&ask()).await, Joined::Private { .. }));
        }
        // What it does not find leaves the mark, and the next one may find out.
        owner.release_as(ask().flight, None, EndStatus::Done).await;
        assert!(matches!(other.join(&ask()).await, Joined::Private { .. }), "not its word");
        owner.release_as(probe.flight, None, found).await;
        probe = ask();
    }
    assert!(matches!(owner.join(&probe).await, Joined::Probe { .. }));
    owner.release_as(probe.flight, None, EndStatus::Done).await;
    let next = other.own(&ask()).await;
    assert!(next.token > flight.token);
    owner.follow(&ask(), next).await;
    // Said again, late, it changes nothing; nor does it end a flight that runs.
    for id in [probe.flight, next.id] {
        owner.release_as(id, None, EndStatus::Done).await;
    }
    assert_eq!(other.renewed(next).await, 1);
    assert_eq!(owner.finish(&finish).await, Finished::Accepted, "as it was before");
}

pub(super) async fn reuse_ends_with_its_window(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    owner.finished(&done(flight, "answer")).await;
    let mut other = Node::new(engine, key).await;
    let reuse = Join { reuse: STEP * 2, ..ask() };
    assert!(is_done(&other.join(&reuse).await, flight, "answer"), "reused by a fresh caller");
    let followed = Join { reuse: STEP * 2, ..ask_after(flight) };
    assert!(!is_done(&other.join(&followed).await, flight, "answer"), "not reused by a follower");
    engine.elapse(STEP).await;
    match other.join(&reuse).await {
        Joined::Done { age: Some(age), .. } => assert!(age >= STEP && age < STEP * 2, "{age:?}"),
        joined => panic!("not reused: {joined:?}"),
    }
    engine.elapse(STEP * 3).await;
    is_lapsed(&other.look(&reuse).await);
    // Pure single flight: a fresh caller gets no answer that is there already.
    let next = other.own(&ask()).await;
    other.finished(&done(next, "next")).await;
    owner.own(&ask()).await;
}

pub(super) async fn unmarked_answer_is_not_reused(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    let flight = node.own(&ask()).await;
    node.finished(&Finish { fresh: Duration::ZERO, ..done(flight, "answer") }).await;
    is_done(&node.look(&ask_after(flight)).await, flight, "answer");
    node.own(&Join { reuse: KEEP, ..ask() }).await;
}

/// The shorter of what the caller asks for and what the answer says of itself counts.
pub(super) async fn answer_is_reused_while_it_is_fresh(engine: &dyn Place) {
    let key = key();
    let (mut node, mut other) = (Node::new(engine, key).await, Node::new(engine, key).await);
    let flight = node.own(&ask()).await;
    node.finished(&Finish { fresh: STEP * 2, ..done(flight, "answer") }).await;
    let reuse = Join { reuse: KEEP, ..ask() };
    assert!(is_done(&other.join(&reuse).await, flight, "answer"), "reused by a fresh caller");
    engine.elapse(STEP * 3).await;
    is_lapsed(&other.look(&reuse).await);
    // Who waited has it however old it is.
    is_done(&node.look(&ask_after(flight)).await, flight, "answer");
    other.own(&reuse).await;
}

pub(super) async fn answer_is_kept_for_its_time(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    let flight = node.own(&ask()).await;
    let keep = LEASE * 4;
    node.finished(&Finish { keep, ..done(flight, "answer") }).await;
    engine.elapse(LEASE * 3).await;
    is_done(&node.look(&ask_after(flight)).await, flight, "answer");
    assert_eq!(node.fetch().await.as_deref(), Some(&b"answer"[..]));
    engine.elapse(LAPSE).await;
    is_missing(&node.look(&ask_after(flight)).await);
    assert_eq!(node.fetch().await, None);
}

pub(super) async fn fetch_reads_the_last_record(engine: &dyn Place) {
    let key = key();
    let mut node = Node::new(engine, key).await;
    assert_eq!(node.fetch().await, None);
    let first = node.own(&ask()).await;
    node.finished(&done(first, "one")).await;
    // `join` that grants does not take it away, nor does an end without a record.
    let second = node.own(&ask()).await;
    let mut other = Node::new(engine, key).await;
    assert_eq!(other.fetch().await.as_deref(), Some(&b"one"[..]));
    node.finished(&ended(second, EndStatus::Failed)).await;
    assert_eq!(other.fetch().await.as_deref(), Some(&b"one"[..]));
    let third = node.own(&ask()).await;
    node.finished(&done(third, "three")).await;
    assert_eq!(other.fetch().await.as_deref(), Some(&b"three"[..]));
}

pub(super) async fn too_large_answer_is_nobodys(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let ask = ask();
    let flight = owner.own(&ask).await;
    let mut follower = Node::new(engine, key).await;
    follower.follow(&node::ask(), flight).await;
    owner.finished(&ended(flight, EndStatus::TooLarge)).await;
    let too_large = |pushed: &Pushed| {
        matches!(pushed,
            Pushed::Ended { flight: of, status: EndStatus::TooLarge, record: None, seal: None }
                if *of == flight)
    };
    follower.hears(too_large).await;
    is_ended(&owner.join(&ask).await, EndStatus::TooLarge);
    // Who waited for it and missed the push runs alone; who did not, owns.
    assert!(matches!(follower.join(&ask_after(flight)).await, Joined::Private { .. }));
    follower.own(&node::ask()).await;
}

pub(super) async fn forgotten_flight_publishes_nothing(engine: &dyn Place) {
    // Heard of before the next flight, and after it began.
    for next_first in [false, true] {
        let key = key();
        let mut owner = Node::new(engine, key).await;
        let flight = owner.own(&ask()).await;
        let mut follower = Node::new(engine, key).await;
        follower.follow(&ask(), flight).await;
        follower.forget().await;
        let released =
            |pushed: &Pushed| matches!(pushed, Pushed::Released { flight: of } if *of == flight);
        follower.hears(released).await;
        is_lapsed(&follower.look(&ask_after(flight)).await);
        let next = if next_first { Some(follower.own(&ask_after(flight)).await) } else { None };
        let renewed = owner.renew(flight).await;
        assert!(matches!(renewed, BeatReply::Lost(Loss::Forgotten)), "{renewed:?}");
        for _ in 0..2 {
            let finished = owner.finish(&done(flight, "old")).await;
            assert_eq!(finished, Finished::Lost(Loss::Forgotten));
        }
        let next = match next {
            Some(next) => next,
            None => follower.own(&ask_after(flight)).await,
        };
        assert!(next.token > flight.token);
        follower.finished(&done(next, "new")).await;
        is_done(&owner.look(&ask_after(flight)).await, next, "new");
    }
}

pub(super) async fn forgotten_answer_is_not_reused(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    let flight = node.own(&ask()).await;
    node.finished(&done(flight, "answer")).await;
    node.forget().await;
    // Who followed may still come for it.
    is_done(&node.look(&ask_after(flight)).await, flight, "answer");
    node.own(&Join { reuse: KEEP, ..ask() }).await;
    // Where there is nothing, nothing is to be forgotten.
    Node::new(engine, key()).await.forget().await;
}

pub(super) async fn stopped_flight_is_over_for_all(engine: &dyn Place) {
    // Heard of before the next flight, and after it began, or ended.
    for next in 0..3 {
        let key = key();
        let mut owner = Node::new(engine, key).await;
        let asked = ask();
        let flight = owner.own(&asked).await;
        let mut follower = Node::new(engine, key).await;
        follower.follow(&ask(), flight).await;
        let mut other = Node::new(engine, key).await;
        other.stop().await;
        let stopped = |pushed: &Pushed| {
            matches!(pushed,
                Pushed::Ended { flight: of, status: EndStatus::Stopped, record: None, seal: None }
                    if *of == flight)
        };
        follower.hears(stopped).await;
        // Who comes after begins anew, and is not stopped by what was said before.
        let mut began = None;
        if next > 0 {
            let flight = other.own(&ask()).await;
            assert!(matches!(other.renew(flight).await, BeatReply::Renewed { waiters: 0 }));
            began = Some(flight);
        }
        if let Some(flight) = began.filter(|_| next > 1) {
            other.finished(&done(flight, "new")).await;
        }
        // Who followed, and missed the push.
        is_failed(&follower.look(&ask_after(flight)).await, flight, EndStatus::Stopped);
        is_failed(&follower.join(&ask_after(flight)).await, flight, EndStatus::Stopped);
        for _ in 0..2 {
            let renewed = owner.renew(flight).await;
            assert!(matches!(renewed, BeatReply::Lost(Loss::Stopped)), "{renewed:?}");
            let finished = owner.finish(&done(flight, "old")).await;
            assert_eq!(finished, Finished::Lost(Loss::Stopped));
            assert_eq!(owner.abandon(flight).await, Abandoned::Lost(Loss::Stopped));
        }
        if next != 1 {
            is_ended(&owner.join(&asked).await, EndStatus::Stopped);
        }
        // Its release, late, changes nothing.
        owner.release(flight.id, Some(flight.token)).await;
        match began {
            None => {
                other.own(&ask()).await;
            }
            Some(flight) if next == 1 => {
                follower.follow(&ask(), flight).await;
                other.finished(&done(flight, "new")).await;
            }
            Some(flight) => {
                is_done(&follower.look(&ask_after(flight)).await, flight, "new");
            }
        }
    }
}

pub(super) async fn stop_touches_nothing_that_has_ended(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    // Where there is nothing, nothing is stopped.
    node.stop().await;
    let flight = node.own(&ask()).await;
    node.finished(&Finish { fresh: Duration::MAX, ..done(flight, "answer") }).await;
    node.stop().await;
    is_done(&node.look(&ask_after(flight)).await, flight, "answer");
    is_done(&node.join(&Join { reuse: KEEP, ..ask() }).await, flight, "answer");
}
