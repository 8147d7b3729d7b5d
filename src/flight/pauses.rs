//! The pauses between tries of a step that the store did not answer.

use std::time::Duration;

/// The shortest of them.
pub(super) const FIRST: Duration = Duration::from_millis(25);
const LONGEST: Duration = Duration::from_millis(400);

/// Each is twice as long as the last, up to a bound.
pub(super) struct Pauses(Duration);

impl Pauses {
    pub(super) fn new() -> Self {
        Self(FIRST)
    }

    /// The next one.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST);
        pause
    }
}
