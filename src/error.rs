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
    /// This process is leaving, and its lease was given up.
    Draining,
    /// The store is away, and the layer is set to refuse then.
    StoreDown,
    /// The shared answer has a form that this caller cannot read: another release's,
    /// or another type's.
    Unreadable,
    /// The run was stopped, for all its callers.
    Stopped,
    /// Its flight, or this process, has as many followers as it may, and the layer is
    /// set to refuse then.
    Crowded,
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

    /// Says what happened, where `Cache-Status` (RFC 9211) is read.
    pub(crate) fn write(&self, headers: &mut http::HeaderMap) {
        let status = format!("tower-singleflight; detail={}", self.kind.name());
        if let Ok(value) = http::HeaderValue::try_from(status) {
            headers.insert("cache-status", value);
        }
    }

    /// True where a time limit was passed.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind, FailureKind::OwnerTimedOut | FailureKind::WaitedTooLong)
    }
}

impl FailureKind {
    /// A short name that never changes, fit for a label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OwnerFailed => "owner_failed",
            Self::OwnerTimedOut => "owner_timed_out",
            Self::OwnerVanished => "owner_vanished",
            Self::WaitedTooLong => "waited_too_long",
            Self::Quarantined => "quarantined",
            Self::Draining => "draining",
            Self::StoreDown => "store_down",
            Self::Unreadable => "unreadable",
            Self::Stopped => "stopped",
            Self::Crowded => "crowded",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnerFailed => "the shared run failed",
            Self::OwnerTimedOut => "the shared run passed its time limit",
            Self::OwnerVanished => "the owner of the shared run vanished",
            Self::WaitedTooLong => "the shared run took longer than this caller may wait",
            Self::Quarantined => "too many owners of this key were lost",
            Self::Draining => "this process is leaving",
            Self::StoreDown => "the store is away",
            Self::Unreadable => "the shared answer cannot be read",
            Self::Stopped => "the shared run was stopped",
            Self::Crowded => "too many callers wait",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        match &self.report {
            Some(report) => write!(f, ": {report}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}
