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

    /// What is left of it now.
    pub(crate) fn left(self) -> Duration {
        match self {
            Self::Never => Duration::ZERO,
            Self::Until(until) => until.saturating_duration_since(Instant::now()),
            Self::Unlimited => Duration::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_left_runs_out() {
        let second = Duration::from_secs(1);
        assert_eq!(Reuse::lasting(Duration::ZERO), Reuse::Never);
        assert_eq!(Reuse::Never.left(), Duration::ZERO);
        for unlimited in [Duration::MAX, Duration::MAX - second] {
            assert_eq!(Reuse::lasting(unlimited).left(), Duration::MAX);
        }
        let reuse = Reuse::lasting(second * 2);
        tokio::time::advance(second).await;
        assert_eq!(reuse.left(), second);
        tokio::time::advance(second * 2).await;
        assert_eq!(reuse.left(), Duration::ZERO);
    }
}
