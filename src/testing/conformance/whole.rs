//! Answers that are not small come back byte for byte.

use bytes::Bytes;

use super::{
    Place,
    node::{KEEP, Node, ask, ask_after, ask_long, done, key},
    pieces::{append, end, sealed},
};
use crate::{
    id::FlightRef,
    store::{Append, Finish, Join, Joined, Pushed},
};

const KIB: usize = 1024;

/// So many bytes, of all values, and no part of them like another.
fn blob(len: usize) -> Bytes {
    let mut word = len as u64;
    let mut all = Vec::with_capacity(len + 8);
    while all.len() < len {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all.extend_from_slice(&word.to_be_bytes());
    }
    all.truncate(len);
    all.into()
}

/// A record that came along is whole; where it did not, it is to be fetched.
#[track_caller]
fn is_whole(record: Option<&Bytes>, all: &Bytes) {
    if let Some(record) = record {
        assert!(record == all, "{} of {} bytes, or others", record.len(), all.len());
    }
}

#[track_caller]
fn has_record(joined: &Joined, of: FlightRef, all: &Bytes) {
    match joined {
        Joined::Done { flight, streamed: false, record, .. } if *flight == of => {
            is_whole(record.as_ref(), all);
        }
        other => panic!("not Done of {of:?}: {other:?}"),
    }
}

pub(super) async fn record_comes_back_byte_for_byte(engine: &dyn Place) {
    let (here, there) = (Node::new(engine, key()).await, Node::new(engine, key()).await);
    for len in [KIB, 4 * KIB, 4 * KIB + 1, 20 * KIB, 20 * KIB + 1, KIB * KIB] {
        let key = key();
        let (mut owner, mut follower) = (here.beside(key), there.beside(key));
        let flight = owner.own(&ask_long()).await;
        follower.follow(&ask(), flight).await;
        let all = blob(len);
        owner.finished(&Finish { record: Some(all.clone()), ..done(flight, "") }).await;
        let ended = |pushed: &Pushed| match pushed {
            Pushed::Ended { flight: of, record, .. } => {
                is_whole(record.as_ref(), &all);
                *of == flight
            }
            _ => false,
        };
        follower.hears(ended).await;
        has_record(&follower.look(&ask_after(flight)).await, flight, &all);
        has_record(&follower.join(&Join { reuse: KEEP, ..ask() }).await, flight, &all);
        let fetched = follower.fetch().await;
        assert!(fetched.is_some(), "there is a record");
        is_whole(fetched.as_ref(), &all);
    }
}

pub(super) async fn pieces_come_back_byte_for_byte(engine: &dyn Place) {
    let mut owner = Node::new(engine, key()).await;
    let flight = owner.own(&ask_long()).await;
    let mut follower = Node::new(engine, owner.key).await;
    follower.follow(&ask(), flight).await;
    let all: Vec<Bytes> = [1, 4 * KIB + 1, 16 * KIB, 20 * KIB + 1, 256 * KIB].map(blob).into();
    for (first, piece) in (0..).zip(&all) {
        let pieces = vec![piece.clone()];
        owner.appended(&Append { pieces, inline: true, ..append(flight, first, &[]) }).await;
        let added = |pushed: &Pushed| match pushed {
            Pushed::Piece { index, piece: pushed, .. } => {
                is_whole(pushed.as_ref(), piece);
                *index == first
            }
            _ => false,
        };
        follower.hears(added).await;
    }
    owner.finished(&sealed(flight, all.len() as u64)).await;
    let (read, ended) = follower.read_all(flight, 0).await;
    assert_eq!((read.len(), ended), (all.len(), end(all.len() as u64)));
    for (read, piece) in read.iter().zip(&all) {
        is_whole(Some(read), piece);
    }
}
