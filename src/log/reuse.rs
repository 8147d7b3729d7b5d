use std::time::Duration;

use tokio::time::Instant;

/// For how long an answer may be used again, by its own word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reuse {
    Never,
    /// Until then.
    Until(Instant),
    /// As long as the settings say.
    Unlimited,
}

impl Reuse {
    /// For so long from now on.
    pub(crate) fn lasting(time: Duration) -> Self {
        match time {
            Duration::ZERO => Self::Never,
            Duration::MAX => Self::Unlimited,
            _ => Instant::now().checked_add(time).map_or(Self::Unlimited, Self::Until),
        }
    }

    /// What is left of it now, where it has a limit: zero where nothing is.
    pub(crate) fn left(self) -> Option<Duration> {
        match self {
            Self::Never => Some(Duration::ZERO),
            Self::Until(until) => Some(until.saturating_duration_since(Instant::now())),
            Self::Unlimited => None,
        }
    }

    /// What is left of a limit that others are to be told of.
    pub(crate) fn limit(self) -> Option<Duration> {
        self.left().filter(|_| self != Self::Never)
    }

    /// Whether it may be used again for so long from now on, or at all where `None`.
    pub(crate) fn lasts(self, time: Option<Duration>) -> bool {
        let wanted = time.unwrap_or(Duration::from_nanos(1));
        self.left().is_none_or(|left| left >= wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_left_runs_out() {
        let second = Duration::from_secs(1);
        assert_eq!(Reuse::lasting(Duration::ZERO), Reuse::Never);
        assert!(!Reuse::Never.lasts(None) && Reuse::Never.limit().is_none());
        for unlimited in [Duration::MAX, Duration::MAX - second] {
            let reuse = Reuse::lasting(unlimited);
            assert!(reuse.left().is_none() && reuse.lasts(Some(unlimited)));
        }
        let reuse = Reuse::lasting(second * 2);
        tokio::time::advance(second).await;
        assert_eq!(reuse.left(), Some(second));
        assert!(reuse.lasts(Some(second)) && !reuse.lasts(Some(second * 2)) && reuse.lasts(None));
        tokio::time::advance(second * 2).await;
        assert!(!reuse.lasts(None));
    }
}
