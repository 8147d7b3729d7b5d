//! Answers in pieces: who may add them, who reads them, and how they end.

use std::time::Duration;

use super::{
    Place,
    node::{
        KEEP, LAPSE, LEASE, Node, STEP, ask, ask_after, ask_long, done, is_done, is_missing, key,
    },
    pieces::{append, bytes, end, is_alone, is_streamed, owner, seal, sealed},
};
use crate::{
    id::{FlightId, FlightRef},
    store::{
        Append, Appended, EndStatus, Finish, Finished, Join, Joined, Loss, Pieces, Pushed,
        StreamEnd,
    },
};
use bytes::Bytes;

pub(super) async fn pieces_are_read_in_order(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    let mut other = Node::new(engine, owner.key).await;
    assert_eq!(other.read(flight, 0).await, Pieces::default());
    owner.appended(&append(flight, 0, &["a", ""])).await;
    owner.appended(&append(flight, 2, &["\0c"])).await;
    owner.appended(&append(flight, 3, &[])).await;
    let all = bytes(&["a", "", "\0c"]);
    for from in 0..=3 {
        let read = other.read(flight, from).await;
        let pieces = all[from as usize..].to_vec();
        assert_eq!(read, Pieces { first: from, pieces, end: None });
    }
    assert_eq!(other.fetch().await, None);
}

pub(super) async fn pieces_are_read_in_goes(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    let all: Vec<Bytes> = (0..300).map(|n| Bytes::from(format!("piece {n}"))).collect();
    for (n, pieces) in all.chunks(100).enumerate() {
        let first = n as u64 * 100;
        owner.appended(&Append { pieces: pieces.to_vec(), ..append(flight, first, &[]) }).await;
    }
    let mut other = Node::new(engine, owner.key).await;
    assert!(other.read(flight, 0).await.pieces.len() < all.len(), "one go is bounded");
    for from in [0, 1, 63, 64, 65, 299, 300] {
        let read = other.read_all(flight, from).await;
        assert_eq!(read, (all[from as usize..].to_vec(), None));
    }
    owner.finished(&sealed(flight, 300)).await;
    for from in [0, 64, 172, 299, 300] {
        let read = other.read_all(flight, from).await;
        assert_eq!(read, (all[from as usize..].to_vec(), end(300)));
    }
}

pub(super) async fn pieces_sent_again_are_there_once(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    for _ in 0..3 {
        owner.appended(&append(flight, 0, &["a", "b"])).await;
    }
    owner.appended(&append(flight, 1, &["b", "c"])).await;
    assert_eq!(
        owner.append(&append(flight, 0, &["a"])).await,
        Appended::Accepted { next: 3 },
        "what is there stays"
    );
    assert_eq!(owner.read_all(flight, 0).await, (bytes(&["a", "b", "c"]), None));
}

pub(super) async fn pieces_past_the_next_are_refused(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    assert_eq!(owner.append(&append(flight, 1, &["b"])).await, Appended::Gap { next: 0 });
    owner.appended(&append(flight, 0, &["a", "b"])).await;
    let mut follower = Node::new(engine, owner.key).await;
    follower.follow(&ask(), flight).await;
    assert_eq!(owner.append(&append(flight, 3, &["d"])).await, Appended::Gap { next: 2 });
    follower.not_pushed().await;
    assert_eq!(owner.read_all(flight, 0).await, (bytes(&["a", "b"]), None));
    owner.appended(&append(flight, 2, &["c", "d"])).await;
}

pub(super) async fn ended_flight_takes_no_pieces(engine: &dyn Place) {
    let statuses = [EndStatus::Done, EndStatus::Failed, EndStatus::TimedOut, EndStatus::Private];
    for status in statuses {
        let (mut owner, flight) = owner(engine).await;
        owner.appended(&append(flight, 0, &["a"])).await;
        owner.finished(&Finish { status, ..sealed(flight, 1) }).await;
        for _ in 0..2 {
            assert_eq!(owner.append(&append(flight, 1, &["b"])).await, Appended::Over);
        }
        let (pieces, end) = owner.read_all(flight, 0).await;
        assert_eq!(pieces, bytes(&["a"]));
        assert_eq!(end, Some(StreamEnd { status, seal: Some(seal(1)) }));
    }
    // Nor where the next one runs already.
    let (mut owner, flight) = owner(engine).await;
    owner.finished(&sealed(flight, 0)).await;
    let next = Node::new(engine, owner.key).await.own(&ask()).await;
    assert_eq!(owner.append(&append(flight, 0, &["a"])).await, Appended::Over);
    assert_eq!(owner.read(next, 0).await, Pieces::default());
}

pub(super) async fn only_the_owner_adds_pieces(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    owner.appended(&append(flight, 0, &["a"])).await;
    let own = Loss::Superseded { by: flight.token };
    for other in [
        FlightRef { id: FlightId::random(), ..flight },
        FlightRef { token: flight.token - 1, ..flight },
        FlightRef { token: flight.token + 1, ..flight },
    ] {
        for first in 0..3 {
            let refused = owner.append(&append(other, first, &["x"])).await;
            assert_eq!(refused, Appended::Lost(own));
        }
    }
    assert_eq!(owner.read_all(flight, 0).await, (bytes(&["a"]), None));
    engine.elapse(LAPSE).await;
    assert_eq!(owner.append(&append(flight, 1, &["b"])).await, Appended::Lost(own));
    let mut other = Node::new(engine, owner.key).await;
    let next = other.own(&ask_after(flight)).await;
    let superseded = Appended::Lost(Loss::Superseded { by: next.token });
    assert_eq!(owner.append(&append(flight, 1, &["b"])).await, superseded);
    assert_eq!(other.read(next, 0).await, Pieces::default());
    other.appended(&append(next, 0, &["n"])).await;
    assert_eq!(owner.append(&append(flight, 1, &["b"])).await, superseded);
    assert_eq!(other.read_all(next, 0).await, (bytes(&["n"]), None));
}

pub(super) async fn forgotten_flight_takes_no_pieces(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    owner.appended(&append(flight, 0, &["a"])).await;
    let mut other = Node::new(engine, owner.key).await;
    other.forget().await;
    let forgotten = Appended::Lost(Loss::Forgotten);
    assert_eq!(owner.append(&append(flight, 1, &["b"])).await, forgotten);
    other.own(&ask()).await;
    assert_eq!(owner.append(&append(flight, 1, &["b"])).await, forgotten);
    assert_eq!(owner.finish(&sealed(flight, 1)).await, Finished::Lost(Loss::Forgotten));
}

pub(super) async fn missing_flight_takes_no_pieces(engine: &dyn Place) {
    let mut node = Node::new(engine, key()).await;
    let flight = FlightRef { token: 7, id: FlightId::random() };
    for first in 0..2 {
        let refused = node.append(&append(flight, first, &["a"])).await;
        assert_eq!(refused, Appended::Lost(Loss::Missing));
    }
    assert_eq!(node.read(flight, 0).await, Pieces::default());
    is_missing(&node.look(&ask()).await);
}

pub(super) async fn trimmed_pieces_are_not_read(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    owner.appended(&append(flight, 0, &["a", "b", "c"])).await;
    owner.appended(&Append { kept_from: 2, ..append(flight, 3, &["d"]) }).await;
    for from in 0..=2 {
        let read = owner.read(flight, from).await;
        assert_eq!(read, Pieces { first: 2, pieces: bytes(&["c", "d"]), end: None });
    }
    assert_eq!(owner.read_all(flight, 3).await, (bytes(&["d"]), None));
    // Less than that is no news, and more than there is leaves the next.
    owner.appended(&Append { kept_from: 1, ..append(flight, 4, &["e"]) }).await;
    assert_eq!(owner.read(flight, 0).await.first, 2);
    owner.appended(&Append { kept_from: 9, ..append(flight, 5, &[]) }).await;
    assert_eq!(owner.read_all(flight, 5).await, (vec![], None));
    owner.appended(&append(flight, 5, &["f"])).await;
    assert_eq!(owner.read_all(flight, 5).await, (bytes(&["f"]), None));
    owner.finished(&sealed(flight, 6)).await;
    let read = owner.read(flight, 0).await;
    assert_eq!(read, Pieces { first: 5, pieces: bytes(&["f"]), end: end(6) });
}

pub(super) async fn trimmed_stream_is_for_those_who_know_it(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    let mut first = Node::new(engine, owner.key).await;
    let wait = ask();
    first.follow(&wait, flight).await;
    owner.appended(&Append { kept_from: 1, ..append(flight, 0, &["a", "b"]) }).await;
    let mut late = Node::new(engine, owner.key).await;
    is_alone(&late.join(&ask()).await);
    is_alone(&late.look(&ask()).await);
    is_alone(&late.watch(&ask(), LEASE).await);
    assert_eq!(owner.renewed(flight).await, 1, "who runs alone does not wait");
    let known = Join { known: flight.token, ..wait };
    first.follow(&known, flight).await;
    // Its own flight id, asked again, still owns.
    let again = Join { flight: flight.id, ..ask() };
    assert_eq!(owner.own(&again).await, flight);
    owner.finished(&sealed(flight, 2)).await;
    assert!(!is_streamed(&first.look(&known).await, flight));
    // However long it may be reused: nobody can begin with it.
    late.own(&Join { reuse: KEEP, ..ask() }).await;
}

pub(super) async fn next_flight_begins_without_pieces(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    owner.appended(&Append { kept_from: 1, ..append(flight, 0, &["a", "b"]) }).await;
    owner.release(flight.id, None).await;
    let next = owner.own(&ask_after(flight)).await;
    let mut follower = Node::new(engine, owner.key).await;
    follower.follows_with(next, 0).await;
    assert_eq!(follower.read(next, 0).await, Pieces::default());
    owner.appended(&append(next, 0, &["n"])).await;
    assert_eq!(follower.read_all(next, 0).await, (bytes(&["n"]), None));
    owner.finished(&done(next, "a record after all")).await;
    is_done(&follower.look(&ask_after(next)).await, next, "a record after all");
}

pub(super) async fn followers_hear_how_many_pieces_there_are(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    let mut follower = Node::new(engine, owner.key).await;
    follower.follows_with(flight, 0).await;
    owner.appended(&append(flight, 0, &["a", "b"])).await;
    follower.follows_with(flight, 2).await;
    owner.appended(&append(flight, 2, &["c"])).await;
    match follower.watch(&ask_after(flight), LEASE).await {
        Joined::Follow { pieces: 3, .. } => {}
        other => panic!("{other:?}"),
    }
}

pub(super) async fn pieces_are_pushed(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    let mut follower = Node::new(engine, owner.key).await;
    follower.follow(&ask(), flight).await;
    let small = |first, pieces| Append { inline: true, ..append(flight, first, pieces) };
    owner.appended(&small(0, &["a"])).await;
    let a = Some(Bytes::from_static(b"a"));
    assert_eq!(follower.pushed_piece(flight).await, (0, a));
    // An empty one is there, too.
    owner.appended(&small(1, &[""])).await;
    assert_eq!(follower.pushed_piece(flight).await, (1, Some(Bytes::new())));
    // More than one are to be read, and so is one that may not be pushed.
    owner.appended(&small(2, &["c", "d"])).await;
    assert_eq!(follower.pushed_piece(flight).await, (2, None));
    owner.appended(&append(flight, 4, &["e"])).await;
    assert_eq!(follower.pushed_piece(flight).await, (4, None));
    // What was there already is no news.
    owner.appended(&small(3, &["d", "e"])).await;
    owner.appended(&small(5, &[])).await;
    follower.not_pushed().await;
    owner.appended(&small(3, &["d", "e", "f"])).await;
    let f = Some(Bytes::from_static(b"f"));
    assert_eq!(follower.pushed_piece(flight).await, (5, f));
}

pub(super) async fn pieces_are_pushed_in_order_and_before_the_end(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    let mut follower = Node::new(engine, owner.key).await;
    follower.follow(&ask(), flight).await;
    for first in 0..20 {
        owner.appended(&append(flight, first, &["x"])).await;
    }
    owner.finished(&sealed(flight, 20)).await;
    for index in 0..20 {
        assert_eq!(follower.pushed_piece(flight).await, (index, None));
    }
    match follower.pushed().await {
        Pushed::Ended { flight: of, status: EndStatus::Done, record: None, seal: Some(found) } => {
            assert_eq!((of, found), (flight, seal(20)));
        }
        other => panic!("{other:?}"),
    }
}

pub(super) async fn stream_lasts_as_long_as_its_lease(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    owner.appended(&Append { keep: STEP, ..append(flight, 0, &["a"]) }).await;
    for _ in 0..4 {
        owner.renewed(flight).await;
        engine.elapse(STEP).await;
    }
    assert_eq!(owner.listened(flight).await, 0);
    engine.elapse(STEP).await;
    owner.appended(&Append { keep: STEP, ..append(flight, 1, &["b"]) }).await;
    assert_eq!(owner.read_all(flight, 0).await, (bytes(&["a", "b"]), None));
}

pub(super) async fn pieces_stay_for_their_time(engine: &dyn Place) {
    let mut owner = Node::new(engine, key()).await;
    let flight = owner.own(&ask_long()).await;
    // Which begins anew with each: the first would be gone by then.
    let keep = LAPSE;
    owner.appended(&Append { keep, ..append(flight, 0, &["a"]) }).await;
    engine.elapse(STEP).await;
    owner.appended(&Append { keep, ..append(flight, 1, &["b"]) }).await;
    engine.elapse(STEP * 3 / 2).await;
    assert_eq!(owner.read_all(flight, 0).await, (bytes(&["a", "b"]), None));
}

pub(super) async fn stream_that_is_gone_is_sent_again(engine: &dyn Place) {
    let (mut owner, flight) = owner(engine).await;
    let keep = Duration::from_millis(50);
    owner.appended(&Append { keep, kept_from: 1, ..append(flight, 0, &["a", "b"]) }).await;
    engine.elapse(keep * 2).await;
    assert_eq!(owner.append(&append(flight, 2, &["c"])).await, Appended::Gap { next: 0 });
    assert_eq!(owner.finish(&sealed(flight, 2)).await, Finished::Gap { next: 0 });
    let mut other = Node::new(engine, owner.key).await;
    owner.appended(&append(flight, 0, &["a"])).await;
    // From its start, so that anybody may begin with it.
    other.follows_with(flight, 1).await;
    owner.appended(&append(flight, 1, &["b", "c"])).await;
    owner.finished(&sealed(flight, 3)).await;
    assert_eq!(other.read_all(flight, 0).await, (bytes(&["a", "b", "c"]), end(3)));
}
