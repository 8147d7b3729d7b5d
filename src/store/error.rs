use std::{borrow::Cow, fmt};

/// Why a store could not do what it was asked.
///
/// Carries no key, header value or body.
#[derive(Clone, Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: Cow<'static, str>,
}

/// The kinds of [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// A setting cannot work; the message names it and its value.
    Setting,
    /// The address is not one, or names something that is not supported.
    Address,
    /// No connection could be made.
    Connect,
    /// The server refused the credentials, or the user lacks a right.
    Denied,
    /// The server lacks something that is needed.
    Unsupported,
    /// No answer came in time.
    TimedOut,
    /// The connection broke.
    Disconnected,
    /// The breaker is open: the store was not asked.
    Open,
    /// The server answered with an error.
    Server,
    /// The answer could not be understood.
    Reply,
}

impl StoreError {
    /// An error of this kind; `message` says what it was about, and must not hold
    /// anything of a request.
    #[must_use]
    pub fn new(kind: StoreErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}
