//! Steps of a flight that tests of all kinds of servers begin with.

use std::time::Duration;

use tower_singleflight::{
    FlightId, FlightRef, KeyDigest, WaiterId,
    store::{Join, Joined, Session},
};

pub(crate) const LEASE: Duration = Duration::from_secs(3);
pub(crate) const KEEP: Duration = Duration::from_secs(30);

pub(crate) fn key(n: u8) -> KeyDigest {
    KeyDigest::from_bytes([n; 32])
}

/// Of a process that knows of no flight yet.
pub(crate) fn fresh() -> Join {
    Join {
        flight: FlightId::random(),
        waiter: WaiterId::random(),
        known: 0,
        lease: LEASE,
        reuse: Duration::ZERO,
        retention: KEEP,
        look_only: false,
    }
}

pub(crate) async fn own(session: &mut dyn Session, join: &Join) -> FlightRef {
    match session.join(join.clone()).await {
        Ok(Joined::Own { token }) => FlightRef { token, id: join.flight },
        other => panic!("not owned: {other:?}"),
    }
}
