//! What a simulated process does with an answer in pieces.

use std::time::Duration;

use bytes::Bytes;

use super::{
    Place,
    node::{KEEP, LEASE, Node, ask, ended, key},
};
use crate::{
    id::FlightRef,
    store::{
        Append, Appended, BeatReply, EndStatus, Finish, Joined, Pieces, Pushed, Seal, StreamEnd,
    },
};

impl Node {
    pub(super) async fn append(&mut self, append: &Append) -> Appended {
        self.session.append(append.clone()).await.expect("append")
    }

    /// Appends, and must be accepted.
    pub(super) async fn appended(&mut self, append: &Append) {
        let next = append.first + append.pieces.len() as u64;
        assert_eq!(self.append(append).await, Appended::Accepted { next });
    }

    pub(super) async fn read(&mut self, flight: FlightRef, from: u64) -> Pieces {
        self.session.read(flight, from).await.expect("read")
    }

    /// Reads all pieces there are, from one on, and the end.
    pub(super) async fn read_all(
        &mut self,
        flight: FlightRef,
        from: u64,
    ) -> (Vec<Bytes>, Option<StreamEnd>) {
        let mut all = Vec::new();
        loop {
            let next = from + all.len() as u64;
            let Pieces { first, pieces, end } = self.read(flight, next).await;
            assert_eq!(first, next, "no hole");
            if end.is_some() || pieces.is_empty() {
                all.extend(pieces);
                return (all, end);
            }
            all.extend(pieces);
        }
    }

    pub(super) async fn listen(&mut self, flight: FlightRef) -> BeatReply {
        self.session.listen(flight, LEASE).await.expect("listen")
    }

    /// Listens, and must still own; how many wait.
    pub(super) async fn listened(&mut self, flight: FlightRef) -> u32 {
        match self.listen(flight).await {
            BeatReply::Renewed { waiters } => waiters,
            other => panic!("not Renewed: {other:?}"),
        }
    }

    /// Joins afresh, and must follow a flight that has so many pieces.
    pub(super) async fn follows_with(&mut self, owner: FlightRef, count: u64) {
        match self.join(&ask()).await {
            Joined::Follow { flight, pieces, .. } if flight == owner => assert_eq!(pieces, count),
            other => panic!("not Follow of {owner:?}: {other:?}"),
        }
    }

    /// Somebody must have come to wait for this flight.
    pub(super) async fn watched(&mut self, of: FlightRef) {
        let pushed = self.pushed().await;
        assert!(matches!(pushed, Pushed::Watched { flight } if flight == of), "{pushed:?}");
    }

    /// The next push must be of a piece: its number, and the piece.
    pub(super) async fn pushed_piece(&mut self, of: FlightRef) -> (u64, Option<Bytes>) {
        match self.pushed().await {
            Pushed::Piece { flight, index, piece } if flight == of => (index, piece),
            other => panic!("not a piece of {of:?}: {other:?}"),
        }
    }
}

pub(super) fn append(flight: FlightRef, first: u64, pieces: &[&'static str]) -> Append {
    let pieces = bytes(pieces);
    Append { flight, first, pieces, kept_from: 0, keep: KEEP, inline: false, to_come: 0 }
}

pub(super) fn bytes(pieces: &[&'static str]) -> Vec<Bytes> {
    pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect()
}

pub(super) fn seal(pieces: u64) -> Seal {
    Seal { pieces, proof: Bytes::from_static(b"\0proof\xff") }
}

/// An end with this many pieces that fresh callers may have.
pub(super) fn sealed(flight: FlightRef, pieces: u64) -> Finish {
    let seal = Some(seal(pieces));
    Finish { seal, fresh: Duration::MAX, ..ended(flight, EndStatus::Done) }
}

pub(super) fn end(pieces: u64) -> Option<StreamEnd> {
    Some(StreamEnd { status: EndStatus::Done, seal: Some(seal(pieces)) })
}

/// Must be this flight's end, with its stream; whether it was reused.
#[track_caller]
pub(super) fn is_streamed(joined: &Joined, of: FlightRef) -> bool {
    match joined {
        Joined::Done { flight, streamed: true, record: None, age } if *flight == of => {
            age.is_some()
        }
        other => panic!("not Done of {of:?}: {other:?}"),
    }
}

#[track_caller]
pub(super) fn is_alone(joined: &Joined) {
    assert!(
        matches!(joined, Joined::Private { left } if left.is_zero()),
        "not sent off alone: {joined:?}"
    );
}

/// An owner, and its flight.
pub(super) async fn owner(engine: &dyn Place) -> (Node, FlightRef) {
    let mut node = Node::new(engine, key()).await;
    let flight = node.own(&ask()).await;
    (node, flight)
}
