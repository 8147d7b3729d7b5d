//! The times of leases, and the ticks at which they are renewed.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::Config;

/// What two tries take that nobody answers, by a store's default limit.
const TRIES: Duration = Duration::from_millis(500);

/// The times of a layer's leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    pub(crate) beat: Duration,
    pub(crate) margin: Duration,
    pub(crate) hard_timeout: Duration,
    pub(crate) idle_timeout: Duration,
}

impl Terms {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            lease: config.lease(),
            beat: config.heartbeat(),
            margin: config.margin(),
            hard_timeout: config.hard_timeout,
            idle_timeout: config.idle_timeout,
        }
    }

    /// How long a lease stands for its owner.
    pub(crate) fn stands(&self) -> Duration {
        self.lease - self.margin
    }

    /// How long a waiter's mark lasts from one watch on.
    pub(crate) fn mark(&self) -> Duration {
        self.beat * 5 / 2
    }

    /// When what was sent then is due again: at a tick, a beat later or sooner, so that
    /// what goes on for long is sent all at once. What was sent a little before a tick is
    /// not due again with that one.
    pub(super) fn tick_after(&self, sent: Instant, first: Instant) -> Instant {
        self.last_tick(sent + self.beat + self.soon(), first)
    }

    /// When what was asked for then is due first: at the tick next to a beat later, where a
    /// miss leaves time for more than one other try, also of such as nobody answers.
    pub(super) fn first_tick_after(&self, asked: Instant, first: Instant) -> Instant {
        let latest = asked + self.beat * 3 / 2;
        let left = self.stands().saturating_sub(self.beat * 3 / 2);
        let in_time = left >= (self.beat / 2).max(TRIES);
        if in_time { self.last_tick(latest, first) } else { asked + self.beat }
    }

    fn last_tick(&self, latest: Instant, first: Instant) -> Instant {
        let past = latest.saturating_duration_since(first).as_nanos() % self.beat.as_nanos().max(1);
        // Less than a beat.
        latest - Duration::from_nanos(u64::try_from(past).unwrap_or(0))
    }

    /// What falls due so soon goes along with what is sent.
    pub(super) fn soon(&self) -> Duration {
        self.beat / 8
    }
}
