//! Streams of pieces on a real server: what lies there, what it costs, and what
//! becomes of it where the server or the way to it is not in order.

use std::time::Duration;

use bytes::Bytes;
use tower_singleflight::{
    FlightRef, RedisStore, Store,
    store::{
        Append, Appended, Beat, BeatReply, EndStatus, Finish, Finished, Join, Joined, Pushed, Seal,
        Session, StreamEnd,
    },
};

use super::steps::{KEEP, LEASE, ask_and_go, fresh, key, own};
use crate::support::{self, redis_server::RedisServer};

mod answers;
mod bounds;
mod cost;
mod damage;
mod garbage;
mod hostile;
mod memory_full;
mod plants;
mod releases;
mod ways;

pub(crate) fn name(what: &str, n: u8) -> String {
    format!("ai:flight:{what}:{{{}}}", key(n))
}

pub(crate) fn look(flight: FlightRef) -> Join {
    Join { known: flight.token, look_only: true, ..fresh() }
}

pub(crate) fn append(flight: FlightRef, first: u64, pieces: &[&[u8]]) -> Append {
    let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
    Append { flight, first, pieces, kept_from: 0, keep: KEEP, inline: true, to_come: 0 }
}

pub(crate) fn seal(pieces: u64) -> Seal {
    Seal { pieces, proof: Bytes::from_static(b"\0proof\r\n\xff") }
}

pub(crate) fn sealed(flight: FlightRef, pieces: u64) -> Finish {
    Finish {
        flight,
        status: EndStatus::Done,
        record: None,
        seal: Some(seal(pieces)),
        fresh: Duration::MAX,
        keep: KEEP,
        report: String::new(),
    }
}

pub(crate) fn end(pieces: u64) -> Option<StreamEnd> {
    Some(StreamEnd { status: EndStatus::Done, seal: Some(seal(pieces)) })
}

/// Follows; how many pieces there are.
pub(crate) async fn follow(session: &mut dyn Session, join: &Join) -> u64 {
    match session.join(join.clone()).await {
        Ok(Joined::Follow { pieces, .. }) => pieces,
        other => panic!("not followed: {other:?}"),
    }
}

pub(crate) async fn appended(session: &mut dyn Session, append: Append) {
    let next = append.first + append.pieces.len() as u64;
    assert_eq!(session.append(append).await.unwrap(), Appended::Accepted { next });
}

pub(crate) async fn finished(session: &mut dyn Session, finish: Finish) {
    assert_eq!(session.finish(finish).await.unwrap(), Finished::Accepted);
}

pub(crate) async fn is_streamed(session: &mut dyn Session, flight: FlightRef) -> bool {
    matches!(session.join(look(flight)).await,
        Ok(Joined::Done { flight: f, streamed: true, record: None, .. }) if f == flight)
}

/// The next push that is not the word to look.
pub(crate) async fn pushed(session: &mut dyn Session) -> Pushed {
    loop {
        let next = tokio::time::timeout(Duration::from_secs(5), session.pushed()).await;
        match next.expect("a push") {
            Pushed::Gap => {}
            pushed => return pushed,
        }
    }
}

pub(crate) async fn gap(session: &mut dyn Session) {
    loop {
        let next = tokio::time::timeout(Duration::from_secs(5), session.pushed()).await;
        if matches!(next.expect("a push"), Pushed::Gap) {
            return;
        }
    }
}

pub(crate) async fn renew(store: &RedisStore, n: u8, flight: FlightRef) -> BeatReply {
    let renew = Beat::Renew { key: key(n), flight, lease: LEASE };
    store.heartbeat().beat(&[renew]).await.remove(0).expect("a beat's answer")
}

pub(crate) fn ttls(server: &RedisServer, when: &str) {
    for key in server.lines(&["KEYS", "*"]) {
        let ttl = server.lines(&["PTTL", &key]);
        assert!(ttl != [":-1"] || key.ends_with("owner-seq"), "{when}: {key}");
    }
}
