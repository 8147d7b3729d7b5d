//! Answers in pieces that are whole: how they are sealed, and for how long they are found.

use super::{
    Place,
    node::{
        KEEP, LAPSE, LEASE, Node, STEP, ask, ask_after, done, ended, is_done, is_lapsed, is_missing,
    },
    pieces::{append, bytes, end, is_streamed, owner, seal, sealed},
};
use crate::{
    id::FlightRef,
    store::{Append, BeatReply, EndStatus, Finish, Finished, Join, Pieces, Pushed, StreamEnd},
};

/// Whether this is the word that a flight's first piece is to be read.
fn is_piece(pushed: &Pushed, of: FlightRef) -> bool {
    matches!(pushed, Pushed::Piece { flight, index: 0, piece: None } if *flight == of)
}

pub(super) async fn sealed_end_wants_all_pieces(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    let mut follower = Node::new(engine, owner.key).await;
    follower.follow(&ask(), flight).await;
    assert_eq!(owner.finish(&sealed(flight, 1)).await, Finished::Gap { next: 0 });
    owner.appended(&append(flight, 0, &["a", "b"])).await;
    follower.hears(|pushed| is_piece(pushed, flight)).await;
    for pieces in [0, 1, 3] {
        let statuses = [EndStatus::Done, EndStatus::Failed, EndStatus::TimedOut];
        for status in statuses {
            let finish = Finish { status, ..sealed(flight, pieces) };
            assert_eq!(owner.finish(&finish).await, Finished::Gap { next: 2 });
        }
    }
    // Nothing has happened.
    follower.not_pushed().await;
    assert_eq!(owner.renewed(flight).await, 1);
    assert_eq!(owner.read_all(flight, 0).await, (bytes(&["a", "b"]), None));
    owner.appended(&append(flight, 2, &["c"])).await;
    for _ in 0..2 {
        owner.finished(&sealed(flight, 3)).await;
        assert!(matches!(owner.renew(flight).await, BeatReply::Over));
    }
    // The outcome stands.
    owner.finished(&sealed(flight, 7)).await;
    owner.finished(&ended(flight, EndStatus::Failed)).await;
    assert_eq!(follower.read_all(flight, 0).await, (bytes(&["a", "b", "c"]), end(3)));
}

pub(super) async fn failed_stream_is_sealed_too(engine: &dyn Place) {
    for status in [EndStatus::Failed, EndStatus::TimedOut, EndStatus::TooLarge] {
        let (mut owner, flight) = owner(engine).await;
        let mut follower = Node::new(engine, owner.key).await;
        follower.follow(&ask(), flight).await;
        owner.appended(&append(flight, 0, &["a"])).await;
        follower.hears(|pushed| is_piece(pushed, flight)).await;
        owner.finished(&Finish { status, ..sealed(flight, 1) }).await;
        let is_end = |pushed: &Pushed| {
            matches!(pushed,
                Pushed::Ended { flight: of, status: how, record: None, seal: Some(found) }
                    if *of == flight && *how == status && *found == seal(1))
        };
        follower.hears(is_end).await;
        let end = StreamEnd { status, seal: Some(seal(1)) };
        assert_eq!(follower.read_all(flight, 0).await, (bytes(&["a"]), Some(end)));
        // It is no answer.
        let reuse = Join { reuse: KEEP, ..ask() };
        follower.own(&reuse).await;
    }
}

pub(super) async fn end_without_a_seal_ends_the_stream(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    owner.appended(&append(flight, 0, &["a"])).await;
    owner.finished(&ended(flight, EndStatus::Failed)).await;
    let end = StreamEnd { status: EndStatus::Failed, seal: None };
    assert_eq!(owner.read_all(flight, 0).await, (bytes(&["a"]), Some(end)));
}

pub(super) async fn streamed_answer_is_found_late(engine: &dyn Place) {
    for count in [0, 2] {
        let (mut owner, flight) = owner(engine).await;
        if count > 0 {
            owner.appended(&append(flight, 0, &["a", "b"])).await;
        }
        owner.finished(&sealed(flight, count as u64)).await;
        let mut other = Node::new(engine, owner.key).await;
        assert!(!is_streamed(&other.join(&ask_after(flight)).await, flight));
        assert!(!is_streamed(&other.watch(&ask_after(flight), LEASE).await, flight));
        let again = Join { flight: flight.id, ..ask() };
        assert!(!is_streamed(&other.look(&again).await, flight));
        assert!(is_streamed(&other.join(&Join { reuse: KEEP, ..ask() }).await, flight));
        let all = bytes(&["a", "b"][..count]);
        assert_eq!(other.read_all(flight, 0).await, (all, end(count as u64)));
        // Without reuse a fresh caller begins a flight.
        is_lapsed(&other.look(&ask()).await);
        other.own(&ask()).await;
    }
}

pub(super) async fn streamed_answer_is_reused_inside_its_window(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    owner.appended(&append(flight, 0, &["a"])).await;
    owner.finished(&sealed(flight, 1)).await;
    let mut other = Node::new(engine, owner.key).await;
    let reuse = Join { reuse: STEP * 2, ..ask() };
    assert!(is_streamed(&other.look(&reuse).await, flight));
    engine.elapse(STEP * 3).await;
    is_lapsed(&other.look(&reuse).await);
    other.forget().await;
    is_lapsed(&other.look(&Join { reuse: KEEP, ..ask() }).await);
    assert!(!is_streamed(&other.look(&ask_after(flight)).await, flight));
}

pub(super) async fn streamed_answer_is_found_under_the_next_owner(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    let mut follower = Node::new(engine, owner.key).await;
    follower.follow(&ask(), flight).await;
    owner.appended(&append(flight, 0, &["a", "b"])).await;
    owner.finished(&sealed(flight, 2)).await;
    let next = owner.own(&ask()).await;
    owner.appended(&append(next, 0, &["n"])).await;
    assert!(!is_streamed(&follower.join(&ask_after(flight)).await, flight));
    assert!(!is_streamed(&follower.watch(&ask_after(flight), LEASE).await, flight));
    assert_eq!(follower.read_all(flight, 0).await, (bytes(&["a", "b"]), end(2)));
    assert_eq!(follower.read_all(next, 0).await, (bytes(&["n"]), None));
    follower.follow(&ask(), next).await;
    follower.follow(&ask_after(next), next).await;
    // It outlives a lost owner of the next one, and goes with the one after it.
    engine.elapse(LAPSE).await;
    let third = owner.own(&ask_after(next)).await;
    assert!(!is_streamed(&follower.look(&ask_after(flight)).await, flight));
    assert_eq!(follower.read_all(flight, 0).await, (bytes(&["a", "b"]), end(2)));
    owner.finished(&sealed(third, 0)).await;
    let last = owner.own(&ask()).await;
    assert!(!is_streamed(&follower.look(&ask_after(flight)).await, third));
    assert_eq!(follower.read(flight, 0).await, Pieces::default());
    owner.renewed(last).await;
}

pub(super) async fn record_and_stream_do_not_mix(engine: &dyn Place) {
    let (mut owner, first) = owner(engine).await;
    owner.finished(&done(first, "one")).await;
    let second = owner.own(&ask()).await;
    owner.appended(&append(second, 0, &["two"])).await;
    is_done(&owner.look(&ask_after(first)).await, first, "one");
    owner.finished(&sealed(second, 1)).await;
    assert!(!is_streamed(&owner.look(&ask_after(first)).await, second));
    let third = owner.own(&ask()).await;
    assert!(!is_streamed(&owner.look(&ask_after(second)).await, second));
    owner.finished(&done(third, "three")).await;
    is_done(&owner.look(&ask_after(second)).await, third, "three");
    let fourth = owner.own(&ask()).await;
    is_done(&owner.look(&ask_after(second)).await, third, "three");
    owner.renewed(fourth).await;
}

pub(super) async fn stream_is_kept_for_its_time(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    let keep = LEASE * 4;
    owner.appended(&Append { keep: STEP, ..append(flight, 0, &["a"]) }).await;
    owner.finished(&Finish { keep, ..sealed(flight, 1) }).await;
    engine.elapse(LEASE * 3).await;
    assert!(!is_streamed(&owner.look(&ask_after(flight)).await, flight));
    assert_eq!(owner.read_all(flight, 0).await, (bytes(&["a"]), end(1)));
    engine.elapse(LAPSE).await;
    is_missing(&owner.look(&ask_after(flight)).await);
    assert_eq!(owner.read(flight, 0).await, Pieces::default());
}
