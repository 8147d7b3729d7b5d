use std::{sync::LazyLock, time::Instant};

/// Nanoseconds since this process took its first print. Of use within the process only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    // Not the runtime's clock, which can stand still: what comes later is to be greater.
    pub(crate) fn now() -> Self {
        static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
        Self(u64::try_from(FIRST.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }
}
