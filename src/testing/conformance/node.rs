//! One simulated process at one key, and what it asks for.

use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;

use super::Place;
use crate::{
    id::{FlightId, FlightRef, KeyDigest, WaiterId},
    store::{
        Abandoned, Badge, Beat, BeatReply, EndStatus, Finish, Finished, Heartbeat, Held, Join,
        Joined, KeyView, Pushed, Session, Store,
    },
};

/// The lease of all tests. A step that must come inside it leaves 200 ms for slow
/// machines.
pub(crate) const LEASE: Duration = Duration::from_millis(500);
/// Surely over, where `LEASE` began before.
pub(crate) const LAPSE: Duration = Duration::from_millis(600);
/// Well inside a lease.
pub(crate) const STEP: Duration = Duration::from_millis(250);
/// How long ends are kept.
pub(crate) const KEEP: Duration = Duration::from_secs(3);

/// A key that no other test uses.
pub(crate) fn key() -> KeyDigest {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&FlightId::random().as_u128().to_be_bytes());
    bytes[16..].copy_from_slice(&FlightId::random().as_u128().to_be_bytes());
    KeyDigest::from_bytes(bytes)
}

/// What a fresh caller asks.
pub(crate) fn ask() -> Join {
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

/// What a fresh caller asks whose lease, and whose mark, outlast all that a test does
/// without letting time pass.
pub(super) fn ask_long() -> Join {
    Join { lease: LEASE * 8, ..ask() }
}

/// What a caller asks who knows this flight.
pub(crate) fn ask_after(flight: FlightRef) -> Join {
    Join { known: flight.token, ..ask() }
}

/// One driver of one process, with the process's keeper.
pub(crate) struct Node {
    pub(super) key: KeyDigest,
    pub(super) store: Arc<dyn Store>,
    pub(super) session: Box<dyn Session>,
    keeper: Box<dyn Heartbeat>,
    pushes: bool,
}

impl Node {
    pub(crate) async fn new(engine: &dyn Place, key: KeyDigest) -> Self {
        let store = engine.node().await;
        let (session, keeper) = (store.session(key), store.heartbeat());
        Self { key, store, session, keeper, pushes: engine.pushes() }
    }

    /// Another driver of the same process, at this key.
    pub(super) fn beside(&self, key: KeyDigest) -> Self {
        let (session, keeper) = (self.store.session(key), self.store.heartbeat());
        Self { key, store: Arc::clone(&self.store), session, keeper, pushes: self.pushes }
    }

    pub(crate) fn introduce(&mut self, badge: Badge) {
        self.session.introduce(badge);
    }

    /// What the store tells of the key.
    pub(crate) async fn view(&mut self) -> Option<KeyView> {
        self.store.inspect(self.key).await.expect("a view")
    }

    pub(crate) async fn join(&mut self, ask: &Join) -> Joined {
        self.session.join(ask.clone()).await.expect("join")
    }

    /// Joins, and must own.
    pub(crate) async fn own(&mut self, ask: &Join) -> FlightRef {
        match self.join(ask).await {
            Joined::Own { token } => FlightRef { token, id: ask.flight },
            other => panic!("not Own: {other:?}"),
        }
    }

    /// Joins, and must follow; what is left of the lease, and the rank.
    pub(crate) async fn follow(&mut self, ask: &Join, owner: FlightRef) -> (Duration, u32) {
        let joined = self.join(ask).await;
        follows(&joined, owner)
    }

    /// Joins without asking for a lease.
    pub(crate) async fn look(&mut self, ask: &Join) -> Joined {
        self.join(&Join { look_only: true, ..ask.clone() }).await
    }

    pub(crate) async fn watch(&mut self, ask: &Join, mark: Duration) -> Joined {
        let join = Join { look_only: true, ..ask.clone() };
        match self.beat(Beat::Watch { key: self.key, join, mark }).await {
            BeatReply::Watched(joined) => joined,
            other => panic!("not Watched: {other:?}"),
        }
    }

    pub(crate) async fn renew(&mut self, flight: FlightRef) -> BeatReply {
        self.beat(Beat::Renew { key: self.key, flight, lease: LEASE }).await
    }

    /// Renews, and must still own; how many wait.
    pub(crate) async fn renewed(&mut self, flight: FlightRef) -> u32 {
        match self.renew(flight).await {
            BeatReply::Renewed { waiters } => waiters,
            other => panic!("not Renewed: {other:?}"),
        }
    }

    pub(crate) async fn release(&mut self, flight: FlightId, token: Option<u64>) {
        self.release_as(flight, token, EndStatus::Abandoned).await;
    }

    pub(crate) async fn release_as(
        &mut self,
        flight: FlightId,
        token: Option<u64>,
        status: EndStatus,
    ) {
        match self.beat(Beat::Release { key: self.key, flight, token, status }).await {
            BeatReply::Gone => {}
            other => panic!("not Gone: {other:?}"),
        }
    }

    pub(crate) async fn forget(&mut self) {
        self.session.forget().await.expect("forgotten");
    }

    pub(crate) async fn stop(&mut self) {
        self.session.stop().await.expect("stopped");
    }

    /// Asks to hold this flight's answer, for so long in silence.
    pub(crate) async fn hold(&mut self, flight: FlightRef, silence: Duration) -> Option<Held> {
        self.session.hold(flight, silence).await.expect("hold")
    }

    pub(crate) async fn leave(&mut self, waiter: WaiterId) {
        match self.beat(Beat::Leave { key: self.key, waiter }).await {
            BeatReply::Gone => {}
            other => panic!("not Gone: {other:?}"),
        }
    }

    pub(crate) async fn abandon(&mut self, flight: FlightRef) -> Abandoned {
        self.session.abandon(flight).await.expect("abandon")
    }

    pub(crate) async fn finish(&mut self, finish: &Finish) -> Finished {
        self.session.finish(finish.clone()).await.expect("finish")
    }

    /// Finishes, and must be accepted.
    pub(crate) async fn finished(&mut self, finish: &Finish) {
        assert_eq!(self.finish(finish).await, Finished::Accepted);
    }

    pub(crate) async fn fetch(&mut self) -> Option<Bytes> {
        self.session.fetch().await.expect("fetch")
    }

    /// The next push, which must come.
    pub(crate) async fn pushed(&mut self) -> Pushed {
        tokio::time::timeout(Duration::from_secs(2), self.session.pushed()).await.expect("a push")
    }

    /// The next push, for which it looks now and again and does not wait in between.
    pub(super) async fn glimpsed(&mut self) -> Pushed {
        for _ in 0..25 {
            if let Some(pushed) = polled_once(self.session.pushed()).await {
                return pushed;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.pushed().await
    }

    /// The next push must be this, where there are pushes.
    pub(crate) async fn hears(&mut self, expected: impl Fn(&Pushed) -> bool) {
        if self.pushes {
            let pushed = self.pushed().await;
            assert!(expected(&pushed), "{pushed:?}");
        }
    }

    /// No push may come for a while.
    pub(crate) async fn not_pushed(&mut self) {
        let pushed = tokio::time::timeout(Duration::from_millis(50), self.session.pushed()).await;
        assert!(pushed.is_err(), "pushed: {pushed:?}");
    }

    async fn beat(&mut self, beat: Beat) -> BeatReply {
        self.beats(&[beat]).await.remove(0)
    }

    /// All in one go.
    pub(super) async fn beats(&mut self, beats: &[Beat]) -> Vec<BeatReply> {
        let replies = self.keeper.beat(beats).await;
        assert_eq!(replies.len(), beats.len(), "one answer for each operation");
        replies.into_iter().map(|reply| reply.expect("beat")).collect()
    }
}

/// What a future has at once; else it is dropped.
pub(super) async fn polled_once<T>(mut future: impl Future<Output = T> + Unpin) -> Option<T> {
    poll_fn(|cx| match Pin::new(&mut future).poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// An end with an answer that fresh callers may have.
pub(crate) fn done(flight: FlightRef, record: &'static str) -> Finish {
    let record = Some(Bytes::from_static(record.as_bytes()));
    Finish { record, fresh: Duration::MAX, ..ended(flight, EndStatus::Done) }
}

/// An end without a record.
pub(crate) fn ended(flight: FlightRef, status: EndStatus) -> Finish {
    let report = if status == EndStatus::Failed { "broken pipe" } else { "" }.to_owned();
    Finish { flight, status, record: None, seal: None, fresh: Duration::ZERO, keep: KEEP, report }
}

#[track_caller]
pub(crate) fn follows(joined: &Joined, owner: FlightRef) -> (Duration, u32) {
    match joined {
        Joined::Follow { flight, left, rank, .. } if *flight == owner => (*left, *rank),
        other => panic!("not Follow of {owner:?}: {other:?}"),
    }
}

/// Must be this flight's end, with this record; whether it was reused.
#[track_caller]
pub(crate) fn is_done(joined: &Joined, of: FlightRef, text: &str) -> bool {
    match joined {
        Joined::Done { flight, streamed: false, record: Some(record), age }
            if *flight == of && record == text.as_bytes() =>
        {
            age.is_some()
        }
        other => panic!("not Done of {of:?}: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn is_ended(joined: &Joined, how: EndStatus) {
    match joined {
        Joined::Ended { status } if *status == how => {}
        other => panic!("not Ended as {how:?}: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn is_missing(joined: &Joined) {
    assert!(matches!(joined, Joined::Missing), "not Missing: {joined:?}");
}

pub(crate) fn is_lapsed(joined: &Joined) {
    assert!(matches!(joined, Joined::Lapsed), "not Lapsed: {joined:?}");
}

/// Must be a failed chain's end: its last flight, how, and the error's text.
#[track_caller]
pub(crate) fn is_failed(joined: &Joined, of: FlightRef, how: EndStatus) -> String {
    match joined {
        Joined::Failed { flight, status, report } if *flight == of && *status == how => {
            report.clone()
        }
        other => panic!("not Failed of {of:?} as {how:?}: {other:?}"),
    }
}
