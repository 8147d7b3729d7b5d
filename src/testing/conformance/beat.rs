//! What a keeper asks in one go.

use super::{
    Place,
    node::{LEASE, Node, ask_after, ask_long, done, follows, is_done, is_lapsed, key},
};
use crate::{
    id::{FlightId, FlightRef},
    store::{Beat, BeatReply, EndStatus, Join, Loss},
};

pub(super) async fn beat_answers_each_in_order(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    let mut other = Node::new(engine, node.key).await;
    // Owned here: one that is waited for, one that is not, one to let go, one that ended.
    let waited = node.own(&ask_long()).await;
    other.follow(&ask_long(), waited).await;
    let (mut lone, mut freed) = (node.beside(key()), node.beside(key()));
    let alone = lone.own(&ask_long()).await;
    let free = freed.own(&ask_long()).await;
    let mut over = node.beside(key());
    let ended = over.own(&ask_long()).await;
    over.finished(&done(ended, "answer")).await;
    // Owned elsewhere: one to wait for, one to leave.
    let (mut theirs, mut left) = (other.beside(key()), other.beside(key()));
    let (wait, leave) = (ask_long(), ask_long());
    let runs = theirs.own(&ask_long()).await;
    node.beside(theirs.key).follow(&wait, runs).await;
    let leaves = left.own(&ask_long()).await;
    node.beside(left.key).follow(&leave, leaves).await;

    let lease = LEASE * 8;
    let nowhere = FlightRef { token: 7, id: FlightId::random() };
    let renew = |key, flight| Beat::Renew { key, flight, lease };
    let watch = |key, ask: Join| {
        let join = Join { look_only: true, ..ask };
        Beat::Watch { key, join, mark: lease }
    };
    let status = EndStatus::Abandoned;
    let beats = [
        renew(node.key, waited),
        watch(theirs.key, wait),
        Beat::Release { key: freed.key, flight: free.id, token: Some(free.token), status },
        renew(lone.key, alone),
        Beat::Leave { key: left.key, waiter: leave.waiter },
        watch(over.key, ask_after(ended)),
        renew(key(), nowhere),
        renew(over.key, ended),
    ];
    match &node.beats(&beats).await[..] {
        [
            BeatReply::Renewed { waiters: 1 },
            BeatReply::Watched(followed),
            BeatReply::Gone,
            BeatReply::Renewed { waiters: 0 },
            BeatReply::Gone,
            BeatReply::Watched(found),
            BeatReply::Lost(Loss::Missing),
            BeatReply::Over,
        ] => {
            follows(followed, runs);
            is_done(found, ended, "answer");
        }
        other => panic!("not each its own, in order: {other:?}"),
    }
    // And each was done.
    is_lapsed(&freed.look(&ask_after(free)).await);
    assert_eq!(left.renewed(leaves).await, 0);
    assert_eq!(theirs.renewed(runs).await, 1);
    assert!(node.beats(&[]).await.is_empty());
}
