/// How a run ended, for its flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Done,
    Private,
    TooLarge,
    Failed,
    TimedOut,
    Lost,
    Stopped,
    Drained,
    Unwanted,
}

impl Ending {
    /// All of them, each in its place.
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; Self::Unwanted as usize + 1] = [
        Self::Done,
        Self::Private,
        Self::TooLarge,
        Self::Failed,
        Self::TimedOut,
        Self::Lost,
        Self::Stopped,
        Self::Drained,
        Self::Unwanted,
    ];

    /// A short name that never changes, fit for a label.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Private => "private",
            Self::TooLarge => "too_large",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Lost => "lost",
            Self::Stopped => "stopped",
            Self::Drained => "drained",
            Self::Unwanted => "unwanted",
        }
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use super::*;

    #[test]
    fn each_is_in_its_place() {
        for (place, ending) in Ending::ALL.into_iter().enumerate() {
            assert_eq!(ending as usize, place);
        }
    }
}
