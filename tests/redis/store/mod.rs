//! The Redis store alone, against a real server.

use std::time::Duration;

use bytes::Bytes;
use tower_singleflight::{
    FlightRef, RedisStore, Store,
    store::{Beat, BeatReply, EndStatus, Finish, Join, Joined, Pushed, Session},
};

use super::steps::{KEEP, LEASE, ask_and_go, fresh, key, own};

mod beats;
mod damage;
mod faults;
mod life;
mod setting_up;

pub(super) fn done(flight: FlightRef, record: Option<&[u8]>) -> Finish {
    Finish {
        flight,
        status: EndStatus::Done,
        record: record.map(Bytes::copy_from_slice),
        seal: None,
        fresh: Duration::MAX,
        keep: KEEP,
        report: String::new(),
    }
}

pub(super) async fn follow(session: &mut dyn Session, join: &Join) -> FlightRef {
    match session.join(join.clone()).await {
        Ok(Joined::Follow { flight, .. }) => flight,
        other => panic!("not followed: {other:?}"),
    }
}

pub(super) async fn pushed(session: &mut dyn Session) -> Pushed {
    tokio::time::timeout(Duration::from_secs(5), session.pushed()).await.expect("a push")
}

/// The next push that is not the word to look.
pub(super) async fn pushed_end(session: &mut dyn Session) -> (FlightRef, EndStatus, Option<Bytes>) {
    loop {
        match pushed(session).await {
            Pushed::Ended { flight, status, record, .. } => return (flight, status, record),
            Pushed::Gap => {}
            other => panic!("another push: {other:?}"),
        }
    }
}

pub(super) fn renew(n: u8, flight: FlightRef) -> Beat {
    Beat::Renew { key: key(n), flight, lease: LEASE }
}

pub(super) async fn beat(store: &RedisStore, beat: Beat) -> BeatReply {
    let mut replies = store.heartbeat().beat(&[beat]).await;
    assert_eq!(replies.len(), 1);
    replies.remove(0).expect("a beat's answer")
}

pub(super) fn key_text(n: u8) -> String {
    key(n).to_string()
}
