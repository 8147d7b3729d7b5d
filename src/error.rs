//! How a flight can fail its callers.

use std::{fmt, sync::Arc};

/// Why a caller gets no answer of a shared run.
///
/// The HTTP codec turns it into a response, 503 or 504, and leaves it in the
/// response's extensions. It names what happened to the run; nothing of any
/// request is in it but the text of inner's own error.
#[derive(Clone, Debug)]
pub struct Failure {
    kind: FailureKind,
    report: Option<Arc<str>>,
}

/// The kinds of [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The run ended in an error or a panic, and so did the one after it.
    OwnerFailed,
    /// The run passed its time limit, and so did the one after it.
    OwnerTimedOut,
    /// The owner vanished, and nobody could take over.
    OwnerVanished,
    /// This caller waited as long as it may.
    WaitedTooLong,
    /// Too many owners of this key were lost in a row.
    Quarantined,
    /// The store is away, and the layer is set to refuse then.
    StoreDown,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, report: Option<&str>) -> Self {
        Self { kind, report: report.filter(|text| !text.is_empty()).map(Into::into) }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// The text of inner's error, where there was one.
    #[must_use]
    pub fn report(&self) -> Option<&str> {
        self.report.as_deref()
    }

    /// True where a time limit was passed.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind, FailureKind::OwnerTimedOut | FailureKind::WaitedTooLong)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            FailureKind::OwnerFailed => "the shared run failed",
            FailureKind::OwnerTimedOut => "the shared run passed its time limit",
            FailureKind::OwnerVanished => "the owner of the shared run vanished",
            FailureKind::WaitedTooLong => "the shared run took longer than this caller may wait",
            FailureKind::Quarantined => "too many owners of this key were lost",
            FailureKind::StoreDown => "the store is away",
        })?;
        match &self.report {
            Some(report) => write!(f, ": {report}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}
