//! Who may own, and what an owner that is none any more can do: nothing.

use tokio::task::JoinSet;

use super::{
    Place,
    node::{
        self, LAPSE, LEASE, Node, STEP, ask, ask_after, ask_long, done, ended, follows, is_ended,
        is_lapsed, is_missing, key,
    },
};
use crate::{
    id::{FlightId, FlightRef},
    store::{Abandoned, BeatReply, EndStatus, Finished, Join, Joined, Loss, Pushed},
};

pub(super) async fn fresh_caller_is_granted(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    let flight = node.own(&ask()).await;
    assert!(flight.token > 0);
    assert_eq!(node.renewed(flight).await, 0, "an owner is no waiter");
}

/// All at once, from several processes; the flight that one of them owns and the others
/// follow, and how many had joined before each of those.
async fn join_all(callers: &mut Vec<(Node, Join)>) -> (FlightRef, Vec<u32>) {
    let mut joining = JoinSet::new();
    for (mut node, ask) in callers.drain(..) {
        joining.spawn(async move {
            let joined = node.join(&ask).await;
            (node, ask, joined)
        });
    }
    let (mut owned, mut others) = (Vec::new(), Vec::new());
    while let Some(asked) = joining.join_next().await {
        let (node, ask, joined) = asked.expect("join");
        match joined {
            Joined::Own { token } => owned.push(FlightRef { token, id: ask.flight }),
            other => others.push(other),
        }
        callers.push((node, ask));
    }
    assert_eq!(owned.len(), 1, "owners of {} at once: {owned:?}", callers.len());
    (owned[0], others.iter().map(|joined| follows(joined, owned[0]).1).collect())
}

pub(super) async fn of_many_at_once_one_owns(engine: &dyn Place) {
    let key = key();
    let mut callers = Vec::new();
    for _ in 0..4 {
        let node = Node::new(engine, key).await;
        let others = [node.beside(key), node.beside(key), node.beside(key)];
        callers.extend([node].into_iter().chain(others).map(|node| (node, ask_long())));
    }
    let (first, mut ranks) = join_all(&mut callers).await;
    ranks.sort_unstable();
    assert!(ranks.iter().copied().eq(0..15), "{ranks:?}");
    assert_eq!(callers[0].0.renewed(first).await, 15);
    // And again, when they know of a flight that was let go.
    callers[0].0.release(first.id, Some(first.token)).await;
    for (_, ask) in &mut callers {
        (ask.flight, ask.known) = (FlightId::random(), first.token);
    }
    let (second, _) = join_all(&mut callers).await;
    assert!(second.token > first.token);
    assert_eq!(callers[0].0.renewed(second).await, 15);
}

pub(super) async fn join_asked_again_is_owned_again(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    let ask = ask();
    let first = node.own(&ask).await;
    engine.elapse(STEP).await;
    assert_eq!(node.own(&ask).await, first);
    // The answer to the second one began the lease anew.
    engine.elapse(STEP + STEP / 2).await;
    assert_eq!(node.renewed(first).await, 0);
}

pub(super) async fn late_duplicate_never_owns(engine: &dyn Place) {
    let key = key();
    for how in [EndStatus::Failed, EndStatus::TimedOut, EndStatus::Abandoned] {
        let mut node = Node::new(engine, key).await;
        let ask = ask();
        let flight = node.own(&ask).await;
        match how {
            EndStatus::Abandoned => node.release(flight.id, None).await,
            how => assert_eq!(node.finish(&ended(flight, how)).await, Finished::Accepted),
        }
        is_ended(&node.join(&ask).await, how);
        is_ended(&node.look(&ask).await, how);
    }
}

pub(super) async fn late_duplicate_of_the_flight_before_never_owns(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    let (first, second) = (ask(), ask());
    let flight = node.own(&first).await;
    node.finished(&ended(flight, EndStatus::Failed)).await;
    let flight = node.own(&second).await;
    node.release(flight.id, Some(flight.token)).await;
    is_ended(&node.join(&first).await, EndStatus::Failed);
    is_ended(&node.join(&second).await, EndStatus::Abandoned);
}

pub(super) async fn tokens_grow(engine: &dyn Place) {
    let key = key();
    let mut tokens = Vec::new();
    for round in 0..8 {
        let mut node = Node::new(engine, key).await;
        let flight = node.own(&ask()).await;
        tokens.push(flight.token);
        match round % 4 {
            0 => node.finished(&done(flight, "answer")).await,
            1 => node.finished(&ended(flight, EndStatus::Failed)).await,
            2 => node.release(flight.id, Some(flight.token)).await,
            _ => engine.elapse(LAPSE).await,
        }
    }
    // Nothing of the key is left but the token source.
    engine.elapse(2 * LEASE + node::KEEP).await;
    let mut node = Node::new(engine, key).await;
    tokens.push(node.own(&ask()).await.token);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

pub(super) async fn token_is_above_what_the_caller_knows(engine: &dyn Place) {
    let key = key();
    let mut node = Node::new(engine, key).await;
    let token = node.own(&ask()).await.token;
    // Known from before the data was lost: what is there is older, and no hindrance.
    let known = token + 1_000_000_000;
    let mut other = Node::new(engine, key).await;
    let newer = other.own(&Join { known, ..ask() }).await;
    assert!(newer.token > known);
    assert_eq!(other.renewed(newer).await, 0);
    other.release(newer.id, None).await;
    assert!(node.own(&ask()).await.token > newer.token);
}

pub(super) async fn lease_lasts_as_long_as_it_is_renewed(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    for _ in 0..4 {
        engine.elapse(STEP).await;
        owner.renewed(flight).await;
    }
    let mut other = Node::new(engine, key).await;
    let (left, _) = other.follow(&ask(), flight).await;
    assert!(left <= LEASE && left > STEP, "{left:?}");
    engine.elapse(LAPSE).await;
    other.own(&ask_after(flight)).await;
}

pub(super) async fn lease_that_ran_out_is_not_own(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    let flight = node.own(&ask()).await;
    engine.elapse(LAPSE).await;
    assert!(matches!(node.renew(flight).await, BeatReply::Lost(_)));
    assert!(matches!(node.finish(&done(flight, "late")).await, Finished::Lost(_)));
    assert!(matches!(node.abandon(flight).await, Abandoned::Lost(_)));
    assert_eq!(node.fetch().await, None);
    is_lapsed(&node.look(&ask_after(flight)).await);
}

pub(super) async fn renew_never_creates(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    let flight = FlightRef { token: 7, id: FlightId::random() };
    for _ in 0..2 {
        let reply = node.renew(flight).await;
        assert!(matches!(reply, BeatReply::Lost(Loss::Missing)), "{reply:?}");
        assert_eq!(node.finish(&done(flight, "x")).await, Finished::Lost(Loss::Missing));
        assert_eq!(node.abandon(flight).await, Abandoned::Lost(Loss::Missing));
        node.release(flight.id, Some(flight.token)).await;
    }
    assert_eq!(node.fetch().await, None);
    is_missing(&node.look(&ask()).await);
    node.own(&ask()).await;
}

pub(super) async fn superseded_owner_publishes_nothing(engine: &dyn Place) {
    let key = key();
    let mut old = Node::new(engine, key).await;
    let first = old.own(&ask()).await;
    engine.elapse(LAPSE).await;
    let mut new = Node::new(engine, key).await;
    let second = new.own(&ask_after(first)).await;
    let mut follower = Node::new(engine, key).await;
    follower.follow(&ask_after(first), second).await;

    let loss = Loss::Superseded { by: second.token };
    let reply = old.renew(first).await;
    assert!(matches!(reply, BeatReply::Lost(why) if why == loss), "{reply:?}");
    assert_eq!(old.finish(&done(first, "old")).await, Finished::Lost(loss));
    assert_eq!(old.finish(&ended(first, EndStatus::Private)).await, Finished::Lost(loss));
    assert_eq!(old.abandon(first).await, Abandoned::Lost(loss));
    assert_eq!(old.fetch().await, None);
    follower.not_pushed().await;

    assert_eq!(new.finish(&done(second, "new")).await, Finished::Accepted);
    assert_eq!(old.finish(&done(first, "old")).await, Finished::Lost(loss));
    assert_eq!(new.fetch().await.as_deref(), Some(&b"new"[..]));
}

pub(super) async fn superseded_owner_releases_nothing(engine: &dyn Place) {
    let key = key();
    let mut old = Node::new(engine, key).await;
    let first = old.own(&ask()).await;
    engine.elapse(LAPSE).await;
    let mut new = Node::new(engine, key).await;
    let second = new.own(&ask_after(first)).await;
    old.release(first.id, Some(first.token)).await;
    old.release(first.id, None).await;
    new.renewed(second).await;
}

pub(super) async fn other_flight_id_with_the_same_token_changes_nothing(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    let mut other = Node::new(engine, key).await;
    // The same token, given out twice by a server that lost its data.
    let twin = FlightRef { id: FlightId::random(), ..flight };
    // And the same id, under a token that it never had.
    let ghost = FlightRef { token: flight.token - 1, ..flight };
    for wrong in [twin, ghost] {
        assert!(matches!(other.renew(wrong).await, BeatReply::Lost(Loss::Superseded { .. })));
        assert!(matches!(other.finish(&done(wrong, "x")).await, Finished::Lost(_)));
        assert!(matches!(other.abandon(wrong).await, Abandoned::Lost(_)));
        other.release(wrong.id, Some(wrong.token)).await;
    }
    assert_eq!(owner.renewed(flight).await, 0);
    assert_eq!(owner.finish(&done(flight, "answer")).await, Finished::Accepted);
}

pub(super) async fn release_hands_over_at_once(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let mut other = Node::new(engine, key).await;
    for token_is_known in [true, false] {
        let flight = owner.own(&ask()).await;
        other.follow(&ask(), flight).await;
        owner.release(flight.id, token_is_known.then_some(flight.token)).await;
        is_lapsed(&other.look(&ask_after(flight)).await);
        let next = other.own(&ask_after(flight)).await;
        assert!(matches!(other.finish(&ended(next, EndStatus::Failed)).await, Finished::Accepted));
    }
}

pub(super) async fn release_frees_a_lease_that_ran_out_too(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let ask = ask();
    let flight = owner.own(&ask).await;
    let mut other = Node::new(engine, key).await;
    other.follow(&node::ask(), flight).await;
    engine.elapse(LAPSE).await;
    owner.release(flight.id, Some(flight.token)).await;
    let released =
        |pushed: &Pushed| matches!(pushed, Pushed::Released { flight: of } if *of == flight);
    other.hears(released).await;
    is_ended(&owner.join(&ask).await, EndStatus::Abandoned);
}

pub(super) async fn release_of_an_ended_flight_changes_nothing(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    owner.finished(&done(flight, "answer")).await;
    owner.release(flight.id, Some(flight.token)).await;
    let joined = owner.look(&ask_after(flight)).await;
    node::is_done(&joined, flight, "answer");
}

pub(super) async fn keys_are_apart(engine: &dyn Place) {
    let mut one = Node::new(engine, key()).await;
    let mut two = Node::new(engine, key()).await;
    let ask = ask();
    let first = one.own(&ask).await;
    let second = two.own(&ask).await;
    one.release(first.id, None).await;
    two.renewed(second).await;
    follows(&two.join(&node::ask()).await, second);
}
