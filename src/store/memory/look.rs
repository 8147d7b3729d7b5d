//! Looking at what there is.

use std::sync::Arc;

use tokio::time::Instant;

use super::{meta::after, record::Record, shards::Shards};
use crate::{
    id::KeyDigest,
    store::{BoxFuture, EndStatus, KeyStatus, KeyView, Page, Scan, StoreError},
};

/// So many keys are on a page.
const KEYS: usize = 64;

impl Record {
    /// What there is of a key.
    fn view(&self, key: KeyDigest, now: Instant) -> Option<KeyView> {
        let meta = self.meta.as_ref().filter(|meta| now < meta.expires)?;
        let status = match &meta.end {
            _ if meta.quarantine.is_some() => KeyStatus::Quarantined,
            Some(end) => KeyStatus::Ended(end.status),
            None if now < meta.lease_end => KeyStatus::Running,
            None => KeyStatus::Lapsed,
        };
        let mut view = KeyView::new(key, meta.owner, status);
        let lease_left = meta.lease_end.saturating_duration_since(now);
        view.owner = Arc::clone(&meta.badge.owner);
        view.age = now.saturating_duration_since(meta.since);
        view.lease_left = view.is_in_air().then_some(lease_left);
        let renewed = after(now, meta.lease).saturating_duration_since(meta.lease_end);
        view.heartbeat = view.is_in_air().then_some(renewed);
        view.ended = meta.end.as_ref().map(|end| now.saturating_duration_since(end.at));
        view.mark_left = match status {
            KeyStatus::Quarantined => meta.quarantine.map(|end| end.saturating_duration_since(now)),
            KeyStatus::Ended(EndStatus::Private) => Some(meta.expires - now),
            _ => None,
        };
        view.waiters = meta.live(now);
        let stored = self.kept.result.as_ref().filter(|stored| now < stored.expires);
        view.stored_bytes = stored.map(|stored| stored.record.len() as u64);
        view.pieces = self.kept.next(meta.owner);
        Some(view)
    }
}

impl Shards {
    /// What there is of a key.
    pub(super) fn view(&self, key: &KeyDigest) -> Option<KeyView> {
        let now = Instant::now();
        self.lock(key).existing(key, now, |entry| entry.record.view(*key, now)).flatten()
    }
}

/// A walk over all shards.
pub(super) struct MemoryScan {
    shards: Arc<Shards>,
    next: usize,
    /// Found, and not yet looked at.
    found: Vec<KeyDigest>,
}

impl MemoryScan {
    pub(super) fn new(shards: Arc<Shards>) -> Self {
        Self { shards, next: 0, found: Vec::new() }
    }

    fn page(&mut self) -> Option<Page> {
        let mut looked = 0;
        while self.found.is_empty() {
            self.found = self.shards.keys(self.next)?;
            self.next += 1;
            looked += self.found.len() as u64;
        }
        let keys = self.found.split_off(self.found.len().saturating_sub(KEYS));
        Some(Page::new(keys.iter().filter_map(|key| self.shards.view(key)).collect(), looked))
    }
}

impl Scan for MemoryScan {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>, StoreError>> {
        // Done when it is polled, in one go.
        Box::pin(async { Ok(self.page()) })
    }
}
