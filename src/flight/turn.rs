//! When a follower asks to own: once the lease that it waits for has run out, in line
//! with the others.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::step::{Sighting, Step};

/// Between one waiting process's attempt to take over and the next one's.
const STEP: Duration = Duration::from_millis(50);
/// The most that an attempt is held back, jitter included.
const SPREAD: Duration = Duration::from_millis(500);
/// So many try to take over before the others do: those wait a beat for one of them.
const FIRST_IN_LINE: u32 = 3;

/// How long a process with `rank` others before it holds back: the first tries at
/// once, no two at the same moment.
pub(super) fn hold_back(rank: u32) -> Duration {
    if rank == 0 {
        return Duration::ZERO;
    }
    let jitter = STEP.mul_f64(rand::random::<f64>());
    (STEP * rank + jitter).min(SPREAD - STEP + jitter)
}

/// A follower's turn to own.
pub(super) struct Turn {
    /// When the lease runs out that is waited for; in line, when it is this one's turn.
    due: Instant,
    rank: u32,
    in_line: bool,
    /// What others need to say or do something with their next beat.
    patience: Duration,
    /// Each is waited for once.
    waited_for_owner: bool,
    waited_for_first: bool,
}

impl Turn {
    pub(super) fn new(seen: &Sighting, beat: Duration) -> Self {
        Self {
            due: Instant::now() + seen.left,
            rank: seen.rank,
            in_line: false,
            patience: beat * 3 / 2,
            waited_for_owner: false,
            waited_for_first: false,
        }
    }

    /// The owner lives.
    pub(super) fn put_off(&mut self, seen: &Sighting) {
        (self.due, self.rank, self.in_line) = (Instant::now() + seen.left, seen.rank, false);
    }

    /// The store has lost the flight's record: its owner hears of it at its next beat and
    /// owns again.
    pub(super) fn wait_for_owner(&mut self) {
        if !std::mem::replace(&mut self.waited_for_owner, true) {
            self.wait();
        }
    }

    /// The lease has run out.
    pub(super) fn get_in_line(&mut self) {
        if self.in_line {
            return;
        }
        // One of the first owns by the next look, or they are gone too.
        if self.rank >= FIRST_IN_LINE && !std::mem::replace(&mut self.waited_for_first, true) {
            return self.wait();
        }
        // Somebody before us in line may be done by then.
        (self.due, self.in_line) = (Instant::now() + hold_back(self.rank), true);
    }

    fn wait(&mut self) {
        self.due = self.due.max(Instant::now() + self.patience);
        self.in_line = false;
    }

    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Waits for what is to be done where nothing else happens. Cancel-safe.
    pub(super) async fn comes(&self) -> Step {
        sleep_until(self.due).await;
        if self.in_line { Step::Elect } else { Step::TakeOver }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_in_line_tries_at_once_and_all_within_half_a_second() {
        assert_eq!(hold_back(0), Duration::ZERO);
        for rank in 1..100 {
            let wait = hold_back(rank);
            assert!(wait >= STEP && wait <= SPREAD, "{rank}: {wait:?}");
        }
    }
}
