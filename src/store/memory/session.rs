//! The protocol's steps, each under the lock of its key's shard.

use std::{future, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    listener::Listener,
    shards::{Entry, Shards},
};
use crate::{
    id::{FlightRef, KeyDigest},
    store::{
        Abandoned, Beat, BeatReply, BoxFuture, Finish, Finished, Heartbeat, Join, Joined, Loss,
        Pushed, Session, StoreError,
    },
};

/// One driver's dealings with one key.
pub(super) struct MemorySession {
    shards: Arc<Shards>,
    key: KeyDigest,
    /// From the first `Follow` on.
    listener: Option<Arc<Listener>>,
}

impl MemorySession {
    pub(super) fn new(shards: Arc<Shards>, key: KeyDigest) -> Self {
        Self { shards, key, listener: None }
    }
}

impl Session for MemorySession {
    fn join(&mut self, join: Join) -> BoxFuture<'_, Result<Joined, StoreError>> {
        Box::pin(
            async move { Ok(self.shards.join(&self.key, &join, None, Some(&mut self.listener))) },
        )
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
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            self.shards.lock(&self.key).unsubscribe(&self.key, listener);
        }
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
            let joined = entry.record.join(ask, mark, now, |floor| self.next_token(floor));
            entry.follow(&joined, listener);
            joined
        };
        let mut shard = self.lock(key);
        let joined = if ask.look_only || mark.is_some() {
            shard.existing(key, now, step).unwrap_or(Joined::Missing)
        } else {
            shard.entry(key, now, step)
        };
        drop(shard);
        if let Joined::Own { token } = joined {
            self.take_turn(token, now);
        }
        joined
    }

    fn fetch(&self, key: &KeyDigest) -> Option<Bytes> {
        let now = Instant::now();
        self.lock(key).existing(key, now, |entry| entry.record.fetch(now)).flatten()
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
