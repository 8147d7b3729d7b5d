//! What can be chosen of.

/// When callers get what a shared run answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// A body that is known to have at most 64 KiB, or that is there at once, when it
    /// is whole, so that a takeover stays unseen; any other frame by frame, as it
    /// comes. The default.
    #[default]
    Auto,
    /// When the body is whole. One that never ends holds its callers up until it is
    /// larger than what is shared.
    Buffered,
    /// Frame by frame, as it comes.
    Streaming,
}

/// What becomes of a run that nobody waits for any more, in any process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Abandon {
    /// It is aborted. The default.
    #[default]
    Abort,
    /// It runs to its end, for those who ask within the reuse window.
    Finish,
}

/// What becomes of a run that is cut off from the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseLoss {
    /// It is aborted before another process may own the key, unless the callers of its own
    /// process have begun with its answer, or have a request that cannot be repeated: they
    /// could do nothing else, so it goes on for them, and nothing is published. The default.
    #[default]
    Abort,
    /// It always goes on for the callers of its own process; nothing is published.
    FinishLocally,
}

/// What becomes of requests while the store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreDown {
    /// They share within their process. The default.
    #[default]
    Open,
    /// They are answered with 503.
    Reject,
}

/// What becomes of a caller that comes to a flight which has as many followers as it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Crowded {
    /// It runs its own request. The default.
    #[default]
    Bypass,
    /// It is answered with 503.
    Reject,
}
