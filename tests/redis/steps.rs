//! Steps of a flight that tests of all kinds of servers begin with.

use std::{future::Future, pin::pin, time::Duration};

use futures_util::FutureExt;
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

/// Asks, and is gone when that is on its way: who drops it before never asked.
pub(crate) async fn ask_and_go(asked: impl Future) {
    let mut asked = pin!(asked);
    assert!(asked.as_mut().now_or_never().is_none());
    // The connection's own task writes it.
    tokio::task::yield_now().await;
}

pub(crate) async fn own(session: &mut dyn Session, join: &Join) -> FlightRef {
    match session.join(join.clone()).await {
        Ok(Joined::Own { token }) => FlightRef { token, id: join.flight },
        other => panic!("not owned: {other:?}"),
    }
}
