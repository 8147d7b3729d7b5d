//! What a store tells of its keys to who looks. Plain data.

use std::{fmt, sync::Arc, time::Duration};

use super::{BoxFuture, EndStatus, StoreError};
use crate::{
    id::{FlightRef, KeyDigest},
    trace::TraceParent,
};

/// The longest name of an owner.
const OWNER: usize = 64;

/// What an owner leaves of itself beside its flight, for those who look and those who
/// follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Badge {
    /// The name of its process: printable ASCII, 64 bytes at most; empty where it has none.
    pub owner: Arc<str>,
    /// Where the owner is in its trace, for followers to be linked to it.
    pub trace: Option<TraceParent>,
}

impl Badge {
    /// Of a process of this name. What is not printable ASCII becomes `?`, and what is too
    /// long is cut.
    #[must_use]
    pub fn new(owner: &str) -> Self {
        let plain = |letter: char| if letter.is_ascii_graphic() { letter } else { '?' };
        let owner = owner.chars().take(OWNER).map(plain).collect::<String>().into();
        Self { owner, trace: None }
    }
}

/// What a store has of one key: see [`Store::inspect`](super::Store::inspect).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyView {
    /// The digest of the key.
    pub key: KeyDigest,
    /// Its last flight.
    pub flight: FlightRef,
    /// Where that flight is.
    pub status: KeyStatus,
    /// Who owns it, or did, by the name of its process; empty where that is not known.
    pub owner: Arc<str>,
    /// Since its lease was granted.
    pub age: Duration,
    /// What is left of its lease by the store's clock, while it runs.
    pub lease_left: Option<Duration>,
    /// How long ago its owner last renewed that lease, or was granted it, while it runs.
    pub heartbeat: Option<Duration>,
    /// How long ago it ended, where it has.
    pub ended: Option<Duration>,
    /// For how long the key is still marked private, or in quarantine.
    pub mark_left: Option<Duration>,
    /// How many processes have left word that they wait for it, beside its owner; each may
    /// have many callers. The word is renewed by heartbeats, and one that is not runs out:
    /// a process that is gone without leaving is counted for two leases at most. A store
    /// may stop to count at 10,000.
    pub waiters: u32,
    /// The bytes of the answer that is stored as a record, of this flight or one before.
    pub stored_bytes: Option<u64>,
    /// How many pieces the flight's stream has had.
    pub pieces: u64,
}

impl KeyView {
    /// A view that says no more than this.
    #[must_use]
    pub fn new(key: KeyDigest, flight: FlightRef, status: KeyStatus) -> Self {
        Self {
            key,
            flight,
            status,
            owner: Arc::default(),
            age: Duration::ZERO,
            lease_left: None,
            heartbeat: None,
            ended: None,
            mark_left: None,
            waiters: 0,
            stored_bytes: None,
            pieces: 0,
        }
    }

    /// Whether the flight runs, or waits for who takes it over.
    #[must_use]
    pub fn is_in_air(&self) -> bool {
        matches!(self.status, KeyStatus::Running | KeyStatus::Lapsed)
    }
}

/// Where a key's last flight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyStatus {
    /// Its owner runs.
    Running,
    /// Its lease ran out, and nobody has taken over yet.
    Lapsed,
    /// It ended.
    Ended(EndStatus),
    /// Too many of its owners were lost: nobody runs for a while.
    Quarantined,
}

impl KeyStatus {
    /// A short name that never changes, fit for a label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Lapsed => "lapsed",
            Self::Ended(status) => status.name(),
            Self::Quarantined => "quarantined",
        }
    }
}

impl fmt::Display for KeyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Looks through all keys of a store, page by page: see [`Store::scan`](super::Store::scan).
pub trait Scan: Send {
    /// The next page; none after the last. A page may be empty, and a key may be on two.
    ///
    /// Cancel-safe: what a dropped future had read is read again. After an error it goes
    /// on where it was.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>, StoreError>>;
}

/// Some keys of a store.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// What was found.
    pub keys: Vec<KeyView>,
    /// How many entries of the store were looked at for it, about.
    pub looked: u64,
}

impl Page {
    /// A page with these.
    #[must_use]
    pub fn new(keys: Vec<KeyView>, looked: u64) -> Self {
        Self { keys, looked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_badge_is_short_and_plain() {
        assert_eq!(&*Badge::new("7@host").owner, "7@host");
        assert_eq!(&*Badge::new("a b\u{1b}[2Jé").owner, "a?b?[2J?");
        assert_eq!(Badge::new(&"x".repeat(1000)).owner.len(), OWNER);
    }
}
