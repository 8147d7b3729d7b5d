//! When to stop asking a store that does not answer. No clock, no I/O.

use std::time::{Duration, Instant};

const FAILURES: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// A probe that says nothing for so long is gone, with the runtime it was on.
const PATIENCE: Duration = Duration::from_secs(2);

/// Open after three failures in a row; then one probe at a time.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: State,
}

#[derive(Debug)]
enum State {
    Closed {
        failures: u32,
    },
    /// The next probe may go at `until`. A server that refused is there: that it answers
    /// something else is no news.
    Open {
        until: Instant,
        wait: Duration,
        refused: bool,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

/// Whether an operation may go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// As usual.
    Pass,
    /// It is the one probe.
    Probe,
    /// Not now.
    Refused,
}

impl Breaker {
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    pub(super) fn admit(&mut self, now: Instant) -> Admission {
        match &mut self.state {
            State::Closed { .. } => Admission::Pass,
            State::Open { until, .. } if now >= *until => {
                *until = now + PATIENCE;
                Admission::Probe
            }
            State::Open { .. } => Admission::Refused,
        }
    }

    /// True where this closed it.
    pub(super) fn success(&mut self, probe: bool) -> bool {
        let was_open = self.is_open();
        if matches!(self.state, State::Open { refused: true, .. }) && !probe {
            return false;
        }
        self.state = State::default();
        was_open
    }

    /// True where this opened it; `refused` where the server is there and says no.
    /// Whatever went out before it opened and fails later is no news.
    pub(super) fn failure(&mut self, probe: bool, refused: bool, now: Instant) -> bool {
        match &mut self.state {
            State::Closed { failures } => {
                *failures += 1;
                if *failures < FAILURES {
                    return false;
                }
                let until = now + FIRST_WAIT;
                self.state = State::Open { until, wait: FIRST_WAIT, refused };
                true
            }
            State::Open { until, wait, refused: before } => {
                if probe {
                    *before = refused;
                    *wait = (*wait * 2).min(LONGEST_WAIT);
                    *until = now + *wait;
                }
                false
            }
        }
    }

    /// The probe was dropped before it knew: the next one may go at once.
    pub(super) fn forgo(&mut self, now: Instant) {
        if let State::Open { until, .. } = &mut self.state {
            *until = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::default();
        assert!(!breaker.failure(false, false, now));
        assert!(!breaker.failure(false, false, now));
        assert!(breaker.failure(false, false, now));
        breaker
    }

    #[test]
    fn three_failures_in_a_row_open_it() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        breaker.failure(false, false, now);
        breaker.failure(false, false, now);
        assert!(!breaker.success(false));
        breaker.failure(false, false, now);
        breaker.failure(false, false, now);
        assert_eq!(breaker.admit(now), Admission::Pass);
        assert!(breaker.failure(false, false, now));
        assert_eq!(breaker.admit(now), Admission::Refused);
    }

    #[test]
    fn one_probe_at_a_time_and_longer_waits() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        for wait in [200, 400, 800, 1600, 2000, 2000] {
            assert_eq!(breaker.admit(now), Admission::Refused);
            now += Duration::from_millis(wait - 1);
            assert_eq!(breaker.admit(now), Admission::Refused);
            now += Duration::from_millis(1);
            assert_eq!(breaker.admit(now), Admission::Probe);
            assert_eq!(breaker.admit(now), Admission::Refused);
            assert!(!breaker.failure(false, false, now), "a late failure is no news");
            assert_eq!(breaker.admit(now), Admission::Refused);
            assert!(!breaker.failure(true, false, now));
        }
        assert!(breaker.success(false));
        assert_eq!(breaker.admit(now), Admission::Pass);
    }

    #[test]
    fn a_dropped_probe_makes_way() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        now += Duration::from_millis(200);
        assert_eq!(breaker.admit(now), Admission::Probe);
        breaker.forgo(now);
        assert_eq!(breaker.admit(now), Admission::Probe);
    }

    fn refuse(breaker: &mut Breaker, now: Instant) {
        for _ in 0..FAILURES {
            breaker.failure(false, true, now);
        }
    }

    /// A keeper's renewals work where new flights are refused.
    #[test]
    fn what_is_refused_is_asked_for_by_the_probe_alone() {
        let mut now = Instant::now();
        let mut breaker = Breaker::default();
        refuse(&mut breaker, now);
        assert!(!breaker.success(false) && breaker.is_open());
        now += FIRST_WAIT;
        assert_eq!(breaker.admit(now), Admission::Probe);
        // It went away altogether: whatever comes back is news.
        breaker.failure(true, false, now);
        assert!(breaker.success(false) && !breaker.is_open());
        refuse(&mut breaker, now);
        assert!(breaker.success(true) && !breaker.is_open());
    }

    /// Its runtime went away before it was ever polled, or rests.
    #[test]
    fn a_probe_that_never_comes_back_makes_way_after_a_while() {
        let start = Instant::now();
        let (mut breaker, now) = (opened(start), start + FIRST_WAIT);
        assert_eq!(breaker.admit(now), Admission::Probe);
        assert_eq!(breaker.admit(now + PATIENCE - Duration::from_millis(1)), Admission::Refused);
        assert_eq!(breaker.admit(now + PATIENCE), Admission::Probe);
        assert_eq!(breaker.admit(now + PATIENCE), Admission::Refused);
    }
}
