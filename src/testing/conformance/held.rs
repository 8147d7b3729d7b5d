//! What a process holds of an answer, and for how long it may.

use std::time::Duration;

use super::{
    Place,
    node::{KEEP, Node, STEP, ask, done, ended, is_done, key},
};
use crate::{
    id::{FlightRef, KeyDigest},
    store::{EndStatus, Finish, Held, Join},
};

/// Longer than a test takes: nothing is over by silence alone.
const SILENCE: Duration = Duration::from_secs(60);

/// An owner whose push connection is there, and its flight's answer.
async fn owner(engine: &dyn Place, key: KeyDigest) -> (Node, FlightRef) {
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    owner.finished(&done(flight, "answer")).await;
    (owner, flight)
}

async fn held(node: &mut Node, flight: FlightRef) -> Held {
    node.hold(flight, SILENCE).await.expect("an answer to hold")
}

/// The word of it may be on its way for a moment.
async fn falls(held: &Held) {
    let fallen = async {
        while held.vigil.stands() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(2), fallen).await.expect("word of the change");
}

pub(super) async fn answer_is_held_as_old_as_it_is(engine: &dyn Place) {
    let key = key();
    let (mut owner, flight) = owner(engine, key).await;
    engine.elapse(STEP).await;
    let mut other = Node::new(engine, key).await;
    for node in [&mut owner, &mut other] {
        let held = held(node, flight).await;
        assert!(held.vigil.stands() && held.age >= STEP && held.age < KEEP, "{held:?}");
        assert!(held.fresh >= KEEP, "{held:?}");
        // Whoever uses it again changes nothing.
        is_done(&node.join(&Join { reuse: KEEP, ..ask() }).await, flight, "answer");
        assert!(held.vigil.stands());
    }
}

pub(super) async fn what_no_fresh_caller_gets_is_not_held(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    let flight = node.own(&ask()).await;
    assert!(node.hold(flight, SILENCE).await.is_none(), "it runs");
    node.finished(&ended(flight, EndStatus::Failed)).await;
    assert!(node.hold(flight, SILENCE).await.is_none(), "it failed");

    let mut node = Node::new(engine, key()).await;
    let flight = node.own(&ask()).await;
    node.finished(&Finish { fresh: Duration::ZERO, ..done(flight, "answer") }).await;
    assert!(node.hold(flight, SILENCE).await.is_none(), "it is not reused");

    let mut node = Node::new(engine, key()).await;
    let flight = node.own(&ask()).await;
    node.finished(&Finish { fresh: STEP, ..done(flight, "answer") }).await;
    assert_eq!(held(&mut node, flight).await.fresh, STEP);
    let other = FlightRef { token: flight.token + 1, ..flight };
    assert!(node.hold(other, SILENCE).await.is_none(), "another flight");
    engine.elapse(STEP).await;
    assert!(node.hold(flight, SILENCE).await.is_none(), "it is too old");
}

pub(super) async fn forgotten_answer_is_held_no_longer(engine: &dyn Place) {
    let key = key();
    let (mut owner, flight) = owner(engine, key).await;
    let mut other = Node::new(engine, key).await;
    let both = [held(&mut owner, flight).await, held(&mut other, flight).await];
    other.forget().await;
    for held in &both {
        falls(held).await;
    }
    assert!(owner.hold(flight, SILENCE).await.is_none());
}

pub(super) async fn answer_is_held_until_the_next_flight(engine: &dyn Place) {
    let key = key();
    let (mut owner, flight) = owner(engine, key).await;
    let held = held(&mut owner, flight).await;
    let mut other = Node::new(engine, key).await;
    let next = other.own(&ask()).await;
    falls(&held).await;
    assert!(owner.hold(flight, SILENCE).await.is_none());
    other.finished(&done(next, "newer")).await;
    assert!(owner.hold(flight, SILENCE).await.is_none());
    assert!(owner.hold(next, SILENCE).await.is_some());
}

pub(super) async fn stop_leaves_what_is_held(engine: &dyn Place) {
    let key = key();
    let (mut owner, flight) = owner(engine, key).await;
    let held = held(&mut owner, flight).await;
    Node::new(engine, key).await.stop().await;
    assert!(owner.hold(flight, SILENCE).await.is_some());
    assert!(held.vigil.stands());
}
