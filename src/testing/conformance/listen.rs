//! Owners that want to know who comes to wait.

use std::time::Duration;

use super::{
    Place,
    node::{LEASE, Node, STEP, ask, ask_after, follows, is_missing, key},
    pieces::{append, owner, sealed},
};
use crate::{
    id::{FlightId, FlightRef},
    store::{BeatReply, Loss, Pushed},
};

pub(super) async fn owner_hears_who_comes_to_wait(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    assert_eq!(owner.listened(flight).await, 0);
    owner.not_pushed().await;
    let mut first = Node::new(engine, owner.key).await;
    let (one, two) = (ask(), ask());
    first.follow(&one, flight).await;
    owner.watched(flight).await;
    // It renews on the way: to connect may take some time.
    assert_eq!(owner.renewed(flight).await, 1);
    // The second, and the first again, are no news.
    let mut second = Node::new(engine, owner.key).await;
    second.follow(&two, flight).await;
    first.follow(&one, flight).await;
    follows(&first.watch(&one, LEASE).await, flight);
    owner.not_pushed().await;
    first.leave(one.waiter).await;
    second.leave(two.waiter).await;
    second.follow(&two, flight).await;
    owner.watched(flight).await;
    // Also by a look, and where the marks ran out unseen.
    assert_eq!(owner.renewed(flight).await, 1);
    follows(&second.watch(&two, STEP / 2).await, flight);
    engine.elapse(STEP).await;
    follows(&first.watch(&one, STEP * 4 / 5).await, flight);
    owner.watched(flight).await;
    assert_eq!(owner.renewed(flight).await, 1);
    engine.elapse(STEP).await;
    assert_eq!(owner.renewed(flight).await, 0);
    follows(&first.watch(&one, LEASE).await, flight);
    owner.watched(flight).await;
    owner.not_pushed().await;
    // What grants, and what only finds something, is no wait.
    first.leave(one.waiter).await;
    owner.finished(&sealed(flight, 0)).await;
    let ended = owner.pushed().await;
    assert!(matches!(ended, Pushed::Ended { flight: of, .. } if of == flight), "{ended:?}");
    second.look(&ask_after(flight)).await;
    second.own(&ask()).await;
    owner.not_pushed().await;
}

pub(super) async fn listening_counts_those_who_came_before(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    let mut other = Node::new(engine, owner.key).await;
    let (one, two) = (ask(), ask());
    other.follow(&one, flight).await;
    assert_eq!(owner.listened(flight).await, 1);
    other.follow(&two, flight).await;
    assert_eq!(owner.listened(flight).await, 2);
    owner.not_pushed().await;
    // It renews, as a beat does.
    engine.elapse(STEP).await;
    assert_eq!(owner.listened(flight).await, 2);
    engine.elapse(Duration::from_millis(300)).await;
    owner.renewed(flight).await;
}

pub(super) async fn nobody_comes_unheard(engine: &dyn Place) {
    for _ in 0..20 {
        let (mut owner, flight) = owner(engine).await;
        let mut other = Node::new(engine, owner.key).await;
        let wait = ask();
        let (waiters, _) =
            tokio::join!(owner.listened(flight), async { other.follow(&wait, flight).await });
        if waiters == 0 {
            owner.watched(flight).await;
        }
        // Both ways a piece reaches the one who waits.
        owner.appended(&append(flight, 0, &["a"])).await;
        assert_eq!(other.pushed_piece(flight).await, (0, None));
    }
}

pub(super) async fn listening_for_what_is_not_owned(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    let stranger = FlightRef { id: FlightId::random(), ..flight };
    let lost = owner.listen(stranger).await;
    assert!(matches!(lost, BeatReply::Lost(Loss::Superseded { by }) if by == flight.token));
    owner.finished(&sealed(flight, 0)).await;
    assert!(matches!(owner.listen(flight).await, BeatReply::Over));
    let mut nowhere = Node::new(engine, key()).await;
    assert!(matches!(nowhere.listen(flight).await, BeatReply::Lost(Loss::Missing)));
    is_missing(&nowhere.look(&ask()).await);
}

pub(super) async fn deafened_owner_hears_nothing(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    owner.session.deafen();
    owner.listened(flight).await;
    let mut other = Node::new(engine, owner.key).await;
    let wait = ask();
    other.follow(&wait, flight).await;
    owner.session.deafen();
    owner.not_pushed().await;
    other.leave(wait.waiter).await;
    other.follow(&wait, flight).await;
    owner.not_pushed().await;
    // And hears again where it listens again.
    assert_eq!(owner.listened(flight).await, 1);
    other.leave(wait.waiter).await;
    other.follow(&wait, flight).await;
    owner.watched(flight).await;
}
