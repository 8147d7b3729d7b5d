//! What must come of one fault at one step.

use std::{ops::RangeInclusive, time::Duration};

use crate::{LEASE, OPT, TRANSFER, proxy};

/// The faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The connection is closed before the request is with the server.
    CutBefore,
    /// It is closed before the answer is with the client.
    CutAfter,
    /// The answer is late, and in time.
    DelayShort,
    /// The answer comes when nobody waits for it any more.
    DelayLong,
    /// The request gets there when nobody waits for its answer any more, and after what
    /// was sent in its place.
    Late,
    /// From this request on nothing gets to the server, until all are answered.
    MuteUp,
    /// From this request on nothing gets from the server to the client.
    MuteDown,
    /// The answer is lost, and nothing else.
    SwallowReply,
    /// The server answers with an error, and does nothing.
    Refused,
    /// What the server pushes to others because of it is lost to one of them.
    SwallowPush,
    /// Another server, an empty one, takes over the address for all.
    Swap,
}

impl Kind {
    /// As a fault at a step of a proxy, where that is what it is. `limit` is that of
    /// the operation.
    pub(crate) fn at_step(self, limit: Duration) -> Option<proxy::Kind> {
        Some(match self {
            Self::CutBefore => proxy::Kind::CutBefore,
            Self::CutAfter => proxy::Kind::CutAfter,
            Self::DelayShort => proxy::Kind::Delay(limit.min(OPT) / 6),
            Self::DelayLong => proxy::Kind::Delay(limit + OPT),
            Self::Late => proxy::Kind::Late(limit + OPT),
            Self::MuteUp => proxy::Kind::MuteUp,
            Self::MuteDown => proxy::Kind::MuteDown,
            Self::SwallowReply => proxy::Kind::SwallowReply,
            Self::Refused => proxy::Kind::Refuse("NOPERM not for this user"),
            Self::SwallowPush | Self::Swap => return None,
        })
    }

    pub(crate) fn is_mute(self) -> bool {
        matches!(self, Self::MuteUp | Self::MuteDown)
    }
}

pub(crate) type Count = RangeInclusive<u64>;

pub(crate) const fn is(count: u64) -> Count {
    Count::new(count, count)
}

pub(crate) const fn between(least: u64, most: u64) -> Count {
    Count::new(least, most)
}

pub(crate) const fn upto(count: u64) -> Count {
    Count::new(0, count)
}

/// Sooner than a lease: nobody waited until one was over.
pub(crate) const PROMPT: Duration = LEASE;
/// What a lost owner costs.
pub(crate) const TAKEOVER: Duration = LEASE.saturating_add(Duration::from_secs(1));
/// Two tries to move much, and then what else there is to be done.
pub(crate) const TRANSFERS: Duration = TRANSFER.saturating_mul(2).saturating_add(TAKEOVER);

/// A row of the table: counts are of all nodes together.
pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) runs: Count,
    pub(crate) takeovers: Count,
    /// Leases that ended before their run.
    pub(crate) lost: Count,
    /// Outcomes that the store refused.
    pub(crate) fenced: Count,
    /// Whose callers have the same run's answer: nodes a, b and c in words. `!` after a
    /// word: those bodies break off. `?`: or they are refused.
    pub(crate) share: &'static str,
    /// The longest from the fault, or the end of the run, to the last answer.
    pub(crate) within: Duration,
}

/// One run, and all have its answer.
pub(crate) const fn one(kind: Kind) -> Row {
    Row {
        kind,
        runs: is(1),
        takeovers: is(0),
        lost: is(0),
        fenced: is(0),
        share: "abc",
        within: PROMPT,
    }
}

/// Two runs, whose answers are shared like that.
pub(crate) const fn two(kind: Kind, share: &'static str) -> Row {
    Row { runs: is(2), share, ..one(kind) }
}
