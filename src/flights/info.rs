use std::time::Duration;

use crate::{
    id::KeyDigest,
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
};

/// A flight in the air in this process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlightInfo {
    /// The digest of its key.
    pub key: KeyDigest,
    /// This process's part in it.
    pub phase: FlightPhase,
    /// The token of the running owner, where one is known.
    pub token: Option<u64>,
    /// Since its first caller here.
    pub age: Duration,
    /// Callers here, the one whose request is run among them.
    pub callers: usize,
}

/// A process's part in a flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlightPhase {
    /// Asking the store who runs.
    Joining,
    /// Running, under a lease.
    Owning,
    /// Waiting for another process.
    Following,
    /// Running without a lease.
    Local,
    /// Telling the store of the outcome.
    Ending,
}

/// Where a flight is, for those who look.
#[derive(Debug, Default)]
pub(super) struct Position {
    phase: AtomicU8,
    token: AtomicU64,
}

const PHASES: [FlightPhase; 5] = [
    FlightPhase::Joining,
    FlightPhase::Owning,
    FlightPhase::Following,
    FlightPhase::Local,
    FlightPhase::Ending,
];

impl Position {
    pub(super) fn set(&self, phase: FlightPhase, token: u64) {
        self.token.store(token, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> (FlightPhase, Option<u64>) {
        let phase = usize::from(self.phase.load(Ordering::Relaxed));
        let token = self.token.load(Ordering::Relaxed);
        (PHASES.get(phase).copied().unwrap_or(FlightPhase::Joining), (token > 0).then_some(token))
    }
}
