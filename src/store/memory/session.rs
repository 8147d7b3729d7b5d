//! The protocol's steps, each under the lock of its key's shard.

use std::{fmt, future, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    listener::Listener,
    shards::{Entry, Shards},
};
use crate::{
    id::{FlightRef, KeyDigest},
    store::{
        Abandoned, Append, Appended, Badge, Beat, BeatReply, BoxFuture, Finish, Finished,
        Heartbeat, Held, Join, Joined, Loss, Pieces, Pushed, Session, StoreError, Vigil,
    },
};

/// One driver's dealings with one key.
pub(super) struct MemorySession {
    shards: Arc<Shards>,
    key: KeyDigest,
    /// From the first `Follow`, or from `listen` on.
    listener: Option<Arc<Listener>>,
    badge: Badge,
}

impl MemorySession {
    pub(super) fn new(shards: Arc<Shards>, key: KeyDigest) -> Self {
        Self { shards, key, listener: None, badge: Badge::default() }
    }
}

impl Session for MemorySession {
    fn introduce(&mut self, badge: Badge) {
        self.badge = badge;
    }

    fn join(&mut self, join: Join) -> BoxFuture<'_, Result<Joined, StoreError>> {
        Box::pin(async move {
            let joined = self.shards.join(&self.key, &join, None, Some(&mut self.listener));
            if let Joined::Own { token } = joined {
                self.shards.badge(&self.key, token, &self.badge);
            }
            Ok(joined)
        })
    }

    fn pushed(&mut self) -> BoxFuture<'_, Pushed> {
        Box::pin(async {
            match &self.listener {
                Some(listener) => listener.next().await,
                None => future::pending().await,
            }
        })
    }

    fn fetch(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(async { Ok(self.shards.fetch(&self.key)) })
    }

    fn append(&mut self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        Box::pin(async move { Ok(self.shards.append(&self.key, append)) })
    }

    fn read(&mut self, flight: FlightRef, from: u64) -> BoxFuture<'_, Result<Pieces, StoreError>> {
        Box::pin(async move { Ok(self.shards.read(&self.key, flight, from)) })
    }

    fn listen(
        &mut self,
        flight: FlightRef,
        lease: Duration,
    ) -> BoxFuture<'_, Result<BeatReply, StoreError>> {
        Box::pin(
            async move { Ok(self.shards.listen(&self.key, flight, lease, &mut self.listener)) },
        )
    }

    fn deafen(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.shards.lock(&self.key).unsubscribe(&self.key, &listener);
        }
    }

    fn finish(&mut self, finish: Finish) -> BoxFuture<'_, Result<Finished, StoreError>> {
        Box::pin(async move { Ok(self.shards.finish(&self.key, finish)) })
    }

    fn abandon(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<Abandoned, StoreError>> {
        Box::pin(async move { Ok(self.shards.abandon(&self.key, flight)) })
    }

    fn forget(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.shards.forget(&self.key);
        Box::pin(future::ready(Ok(())))
    }

    fn stop(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.shards.stop(&self.key);
        Box::pin(future::ready(Ok(())))
    }

    fn hold(
        &mut self,
        flight: FlightRef,
        _silence: Duration,
    ) -> BoxFuture<'_, Result<Option<Held>, StoreError>> {
        Box::pin(async move {
            let held = self.shards.fresh(&self.key, flight);
            Ok(held.map(|(age, fresh)| {
                let (shards, key) = (Arc::clone(&self.shards), self.key);
                Held { age, fresh, vigil: Box::new(MemoryVigil { shards, key, flight }) }
            }))
        })
    }
}

/// Looks at the record itself, which is as near as what is held of it.
struct MemoryVigil {
    shards: Arc<Shards>,
    key: KeyDigest,
    flight: FlightRef,
}

impl Vigil for MemoryVigil {
    fn stands(&self) -> bool {
        self.shards.fresh(&self.key, self.flight).is_some()
    }
}

impl fmt::Debug for MemoryVigil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryVigil").field("flight", &self.flight).finish_non_exhaustive()
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.deafen();
    }
}

/// The keeper's line: there is nothing to connect to.
pub(super) struct MemoryHeartbeat {
    shards: Arc<Shards>,
}

impl MemoryHeartbeat {
    pub(super) fn new(shards: Arc<Shards>) -> Self {
        Self { shards }
    }
}

impl Heartbeat for MemoryHeartbeat {
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>> {
        Box::pin(async move { batch.iter().map(|beat| Ok(self.shards.beat(beat))).collect() })
    }
}

impl Shards {
    /// `join`, or `watch` where there is a `mark`.
    fn join(
        &self,
        key: &KeyDigest,
        ask: &Join,
        mark: Option<Duration>,
        listener: Option<&mut Option<Arc<Listener>>>,
    ) -> Joined {
        let now = Instant::now();
        let step = |entry: &mut Entry| {
            let unwatched = entry.record.live(now) == 0;
            let joined = entry.record.join(ask, mark, now, |floor| self.next_token(floor));
            if let Joined::Follow { flight, .. } = joined {
                entry.publish(unwatched.then_some(Pushed::Watched { flight }));
                if let Some(place) = listener {
                    entry.subscribe(place);
                }
            }
            joined
        };
        let mut shard = self.lock(key);
        let joined = if ask.look_only || mark.is_some() {
            shard.existing(key, now, step).unwrap_or(Joined::Missing)
        } else {
            self.use_records();
            shard.entry(key, now, step)
        };
        drop(shard);
        if let Joined::Own { token } = joined {
            self.take_turn(token, now);
        }
        joined
    }

    /// Leaves this beside a flight that was granted.
    fn badge(&self, key: &KeyDigest, token: u64, badge: &Badge) {
        self.lock(key).existing(key, Instant::now(), |entry| {
            let own = entry.record.meta.as_mut().filter(|meta| meta.owner.token == token);
            own.into_iter().for_each(|meta| meta.badge = badge.clone());
        });
    }

    fn fetch(&self, key: &KeyDigest) -> Option<Bytes> {
        let now = Instant::now();
        self.lock(key).existing(key, now, |entry| entry.record.fetch(now)).flatten()
    }

    fn fresh(&self, key: &KeyDigest, flight: FlightRef) -> Option<(Duration, Duration)> {
        let now = Instant::now();
        self.lock(key).existing(key, now, |entry| entry.record.fresh(flight, now)).flatten()
    }

    fn append(&self, key: &KeyDigest, append: Append) -> Appended {
        let now = Instant::now();
        self.lock(key)
            .existing(key, now, |entry| {
                let (answer, pushed) = entry.record.append(append, now);
                entry.publish(pushed);
                answer
            })
            .unwrap_or(Appended::Lost(Loss::Missing))
    }

    fn read(&self, key: &KeyDigest, flight: FlightRef, from: u64) -> Pieces {
        let now = Instant::now();
        let read = |entry: &mut Entry| entry.record.read(flight, from, now);
        self.lock(key).existing(key, now, read).unwrap_or_default()
    }

    fn listen(
        &self,
        key: &KeyDigest,
        flight: FlightRef,
        lease: Duration,
        place: &mut Option<Arc<Listener>>,
    ) -> BeatReply {
        let now = Instant::now();
        self.lock(key)
            .existing(key, now, |entry| {
                entry.subscribe(place);
                entry.record.renew(flight, lease, now)
            })
            .unwrap_or(BeatReply::Lost(Loss::Missing))
    }

    fn finish(&self, key: &KeyDigest, finish: Finish) -> Finished {
        let now = Instant::now();
        self.lock(key)
            .existing(key, now, |entry| {
                let (answer, pushed) = entry.record.finish(finish, now);
                entry.publish(pushed);
                answer
            })
            .unwrap_or(Finished::Lost(Loss::Missing))
    }

    fn abandon(&self, key: &KeyDigest, flight: FlightRef) -> Abandoned {
        let now = Instant::now();
        self.lock(key)
            .existing(key, now, |entry| {
                let (answer, pushed) = entry.record.abandon(flight, now);
                entry.publish(pushed);
                answer
            })
            .unwrap_or(Abandoned::Lost(Loss::Missing))
    }

    fn forget(&self, key: &KeyDigest) {
        let now = Instant::now();
        self.lock(key).existing(key, now, |entry| {
            let pushed = entry.record.forget(now);
            entry.publish(pushed);
        });
    }

    fn stop(&self, key: &KeyDigest) {
        let now = Instant::now();
        self.lock(key).existing(key, now, |entry| {
            let pushed = entry.record.stop(now);
            entry.publish(pushed);
        });
    }

    fn beat(&self, beat: &Beat) -> BeatReply {
        let now = Instant::now();
        match beat {
            Beat::Renew { key, flight, lease } => self
                .lock(key)
                .existing(key, now, |entry| entry.record.renew(*flight, *lease, now))
                .unwrap_or(BeatReply::Lost(Loss::Missing)),
            Beat::Watch { key, join, mark } => {
                BeatReply::Watched(self.join(key, join, Some(*mark), None))
            }
            Beat::Release { key, flight, token, status } => {
                self.lock(key).existing(key, now, |entry| {
                    let pushed = entry.record.release(*flight, *token, *status, now);
                    entry.publish(pushed);
                });
                BeatReply::Gone
            }
            Beat::Leave { key, waiter } => {
                self.lock(key).existing(key, now, |entry| entry.record.leave(*waiter));
                BeatReply::Gone
            }
        }
    }
}
