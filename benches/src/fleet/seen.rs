//! A store that counts what is asked of the one inside.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tower_singleflight::{
    FlightRef, KeyDigest, RedisStore,
    store::{
        Abandoned, Append, Appended, Beat, BeatReply, BoxFuture, Finish, Finished, Heartbeat, Join,
        Joined, Pieces, Pushed, Session, Store, StoreError, StoreErrorKind, StoreState,
    },
};

/// What was asked so far.
#[derive(Debug, Default)]
pub struct Seen {
    owned: AtomicU64,
    followed: AtomicU64,
    takeovers: AtomicU64,
    beats: AtomicU64,
    renewed: Mutex<HashMap<KeyDigest, Instant>>,
    gap: Mutex<Duration>,
}

impl Seen {
    /// Leases that were granted.
    pub fn owned(&self) -> u64 {
        self.owned.load(Ordering::Relaxed)
    }

    /// Waits that were registered.
    pub fn followed(&self) -> u64 {
        self.followed.load(Ordering::Relaxed)
    }

    /// Attempts to own by somebody who had waited: granted, or answered by who was first.
    pub fn takeovers(&self) -> u64 {
        self.takeovers.load(Ordering::Relaxed)
    }

    /// Batches of beats.
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// The longest time from one renewal of a lease to its next.
    pub fn longest_gap(&self) -> Duration {
        *self.gap.lock().expect("a lock")
    }

    /// Waits until so much has been seen.
    pub async fn until(&self, what: impl Fn(&Self) -> u64, count: u64) {
        let end = Instant::now() + Duration::from_secs(60);
        while what(self) < count {
            assert!(Instant::now() < end, "seen {} of {count}", what(self));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn joined(&self, join: &Join, joined: &Joined) {
        let tried = matches!(joined, Joined::Own { .. } | Joined::Follow { .. });
        if join.known > 0 && !join.look_only && tried {
            self.takeovers.fetch_add(1, Ordering::Relaxed);
        }
        match joined {
            Joined::Own { .. } => self.owned.fetch_add(1, Ordering::Relaxed),
            Joined::Follow { .. } if join.known == 0 => {
                self.followed.fetch_add(1, Ordering::Relaxed)
            }
            _ => 0,
        };
    }

    fn beaten(&self, batch: &[Beat], replies: &[Result<BeatReply, StoreError>]) {
        self.beats.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut renewed = self.renewed.lock().expect("a lock");
        let mut gap = self.gap.lock().expect("a lock");
        for (beat, reply) in batch.iter().zip(replies) {
            if let (Beat::Renew { key, .. }, Ok(BeatReply::Renewed { .. })) = (beat, reply)
                && let Some(before) = renewed.insert(*key, now)
            {
                *gap = (*gap).max(now - before);
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Watched {
    store: RedisStore,
    seen: Arc<Seen>,
}

impl Watched {
    pub(super) fn new(store: RedisStore, seen: Arc<Seen>) -> Self {
        Self { store, seen }
    }
}

impl Store for Watched {
    fn session(&self, key: KeyDigest) -> Box<dyn Session> {
        Box::new(WatchedSession { session: self.store.session(key), seen: Arc::clone(&self.seen) })
    }

    fn heartbeat(&self) -> Box<dyn Heartbeat> {
        Box::new(WatchedBeat { line: self.store.heartbeat(), seen: Arc::clone(&self.seen) })
    }

    fn is_remote(&self) -> bool {
        self.store.is_remote()
    }

    fn state(&self) -> StoreState {
        self.store.state()
    }

    fn errors(&self) -> Vec<(StoreErrorKind, u64)> {
        self.store.errors()
    }
}

struct WatchedBeat {
    line: Box<dyn Heartbeat>,
    seen: Arc<Seen>,
}

impl Heartbeat for WatchedBeat {
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>> {
        Box::pin(async move {
            let replies = self.line.beat(batch).await;
            self.seen.beaten(batch, &replies);
            replies
        })
    }
}

struct WatchedSession {
    session: Box<dyn Session>,
    seen: Arc<Seen>,
}

impl Session for WatchedSession {
    fn join(&mut self, join: Join) -> BoxFuture<'_, Result<Joined, StoreError>> {
        Box::pin(async move {
            let joined = self.session.join(join.clone()).await;
            if let Ok(joined) = &joined {
                self.seen.joined(&join, joined);
            }
            joined
        })
    }

    fn pushed(&mut self) -> BoxFuture<'_, Pushed> {
        self.session.pushed()
    }

    fn fetch(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        self.session.fetch()
    }

    fn append(&mut self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        self.session.append(append)
    }

    fn read(&mut self, flight: FlightRef, from: u64) -> BoxFuture<'_, Result<Pieces, StoreError>> {
        self.session.read(flight, from)
    }

    fn listen(
        &mut self,
        flight: FlightRef,
        lease: Duration,
    ) -> BoxFuture<'_, Result<BeatReply, StoreError>> {
        self.session.listen(flight, lease)
    }

    fn hear(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.session.hear(flight)
    }

    fn deafen(&mut self) {
        self.session.deafen();
    }

    fn finish(&mut self, finish: Finish) -> BoxFuture<'_, Result<Finished, StoreError>> {
        self.session.finish(finish)
    }

    fn abandon(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<Abandoned, StoreError>> {
        self.session.abandon(flight)
    }

    fn forget(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.session.forget()
    }

    fn stop(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.session.stop()
    }
}
