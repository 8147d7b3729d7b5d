use std::{borrow::Cow, fmt};

/// Why a store could not do what it was asked.
///
/// Carries no key, header value or body.
#[derive(Clone, Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: Cow<'static, str>,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// The kinds of [`StoreError`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum StoreErrorKind {
            $($(#[$doc])* $kind,)*
        }

        impl StoreErrorKind {
            /// All kinds that this version knows.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// A short name that never changes, fit for a label.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// A setting cannot work; the message names it and its value.
    Setting = "setting",
    /// The address is not one, or names something that is not supported.
    Address = "address",
    /// No connection could be made.
    Connect = "connect",
    /// The server refused the credentials, or the user lacks a right.
    Denied = "denied",
    /// The server lacks something that is needed.
    Unsupported = "unsupported",
    /// No answer came in time.
    TimedOut = "timed_out",
    /// The connection broke.
    Disconnected = "disconnected",
    /// The breaker is open: the store was not asked.
    Open = "open",
    /// The server is loading its data.
    Loading = "loading",
    /// The server is busy with a script.
    Busy = "busy",
    /// The server takes no writes: it is a replica.
    ReadOnly = "read_only",
    /// The server has no memory left for writes.
    OutOfMemory = "out_of_memory",
    /// The store holds as many bytes of this process as it may: see
    /// `RedisStoreBuilder::max_stored_bytes`. The server was not asked.
    Limit = "limit",
    /// The server refuses writes since it cannot save them.
    Misconfigured = "misconfigured",
    /// The server refuses writes since it has too few replicas.
    NoReplicas = "no_replicas",
    /// The cluster, or its part for this key, is not in order just now.
    Cluster = "cluster",
    /// The server answered with another error.
    Server = "server",
    /// The answer could not be understood.
    Reply = "reply",
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

    /// Whether what was asked may have been done all the same.
    pub(crate) fn leaves_open(&self) -> bool {
        use StoreErrorKind::{Disconnected, Reply, TimedOut};
        matches!(self.kind, TimedOut | Disconnected | Reply)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}
