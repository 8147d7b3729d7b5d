//! What the steps of a store ask for and answer. Plain data.
#![allow(clippy::exhaustive_structs, reason = "stores, and their tests, make all of it")]

use std::time::Duration;

use bytes::Bytes;

use crate::{
    id::{FlightId, FlightRef, KeyDigest, WaiterId},
    trace::TraceParent,
};

/// What [`Session::join`](super::Session::join) asks for.
#[derive(Clone, Debug)]
pub struct Join {
    /// Names the flight if the answer is [`Joined::Own`]. New for each attempt;
    /// the same one is sent again only while no answer to it was processed.
    pub flight: FlightId,
    /// Names this wait.
    pub waiter: WaiterId,
    /// The greatest token this driver ever saw for the key; 0 for a fresh caller.
    pub known: u64,
    /// How long a granted lease lasts.
    pub lease: Duration,
    /// How old a finished flight's answer may be for a fresh caller.
    pub reuse: Duration,
    /// How long the record outlives a flight.
    pub retention: Duration,
    /// Ask for an answer of a flight that ended only, never for a lease: where
    /// `join` would grant, the answer is [`Joined::Lapsed`] or [`Joined::Missing`].
    pub look_only: bool,
}

/// The answer to [`Session::join`](super::Session::join).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Joined {
    /// The lease is granted, under this token.
    Own {
        /// The fencing token.
        token: u64,
    },
    /// Somebody else runs; this wait is registered.
    Follow {
        /// The running flight.
        flight: FlightRef,
        /// What is left of its lease.
        left: Duration,
        /// How many live waiters had joined before.
        rank: u32,
        /// How many pieces of its stream are there.
        pieces: u64,
        /// Where its owner is in its trace, if it left word of that.
        trace: Option<TraceParent>,
    },
    /// A flight ended well.
    Done {
        /// The flight.
        flight: FlightRef,
        /// Its answer is in its stream, not in a record: [`Session::read`](super::Session::read) reads it.
        streamed: bool,
        /// Its record, where it is small; else [`Session::fetch`](super::Session::fetch) reads it.
        record: Option<Bytes>,
        /// How long ago it ended, where a fresh caller found it inside the reuse window.
        /// None for those who have waited for it.
        age: Option<Duration>,
    },
    /// The key's flights failed too often in a row, or the one that this driver knows was
    /// stopped.
    Failed {
        /// The last of them.
        flight: FlightRef,
        /// How it failed.
        status: EndStatus,
        /// The error's text.
        report: String,
    },
    /// The last answer may not be shared: run at once, alone.
    Private {
        /// How long the mark stands.
        left: Duration,
    },
    /// As `Private`, and this driver is to find out whether that still holds: one fresh
    /// caller at a time. It says what it found by [`Beat::Release`] under the flight id
    /// that it sent.
    Probe {
        /// How long the mark stands.
        left: Duration,
    },
    /// The flight id that was sent has already ended; it never owns again.
    Ended {
        /// How it ended.
        status: EndStatus,
    },
    /// Too many owners of this key were lost: nobody runs for a while.
    Quarantined {
        /// For how long.
        left: Duration,
    },
    /// The key's record is another release's, in a format that this one does not know:
    /// it is left alone, and callers share within their process.
    OtherFormat,
    /// The flight was let go, or its lease is over: what `look_only` gets for a grant.
    Lapsed,
    /// There is no record: what `look_only` gets for a grant where the data may have
    /// been lost, so that the owner comes before those who wait.
    Missing,
}

/// How a flight ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
#[non_exhaustive]
pub enum EndStatus {
    /// With an answer that all may have.
    Done,
    /// With an error or a panic of inner.
    Failed,
    /// By the hard or the idle timeout.
    TimedOut,
    /// With an answer that may not be shared.
    Private,
    /// With an answer over the size limit.
    TooLarge,
    /// Nobody waited any more, or the owner let go.
    Abandoned,
    /// It was forgotten: it may go on for its own process's callers.
    Forgotten,
    /// It was stopped, for all its callers.
    Stopped,
}

impl EndStatus {
    /// A short name that never changes, fit for a label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Private => "private",
            Self::TooLarge => "too_large",
            Self::Abandoned => "abandoned",
            Self::Forgotten => "forgotten",
            Self::Stopped => "stopped",
        }
    }
}

/// What [`Session::append`](super::Session::append) says.
#[derive(Clone, Debug)]
pub struct Append {
    /// The flight whose stream it is.
    pub flight: FlightRef,
    /// The number of the first of these pieces; the first of all is 0.
    pub first: u64,
    /// The pieces, opaque to the store.
    pub pieces: Vec<Bytes>,
    /// Pieces before this one may go. Where it is above 0, nobody can begin with
    /// this stream any more: fresh callers get [`Joined::Private`].
    pub kept_from: u64,
    /// How long the stream stays after its last piece.
    pub keep: Duration,
    /// Whether a piece that is small may travel in the push.
    pub inline: bool,
    /// How many bytes are known to follow these, so that a store with a bound can keep
    /// room for them, or refuse the first of them; 0 where that is not known.
    pub to_come: u64,
}

/// The answer to [`Session::append`](super::Session::append).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Appended {
    /// They are there.
    Accepted {
        /// The number of the piece that comes next.
        next: u64,
    },
    /// Pieces before them are missing: send again, from this one on.
    Gap {
        /// The number of the first that is missing.
        next: u64,
    },
    /// The flight has ended by this owner's own `finish`.
    Over,
    /// This process does not own the key; nothing was added.
    Lost(Loss),
}

/// The answer to [`Session::read`](super::Session::read).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// The number of the first of `pieces`: above what was asked for where older
    /// ones are gone.
    pub first: u64,
    /// Consecutive pieces; none where there are none yet.
    pub pieces: Vec<Bytes>,
    /// How the flight ended, where its end follows right after `pieces`.
    pub end: Option<StreamEnd>,
}

/// How a flight with a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// How.
    pub status: EndStatus,
    /// The seal of its stream; none where it was not streamed.
    pub seal: Option<Seal>,
}

/// The end of a stream, in the owner's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// How many pieces there are in all.
    pub pieces: u64,
    /// What proves that they are whole; opaque to the store.
    pub proof: Bytes,
}

/// What [`Session::finish`](super::Session::finish) says.
#[derive(Clone, Debug)]
pub struct Finish {
    /// The flight that ends.
    pub flight: FlightRef,
    /// How it ends; `Abandoned`, `Forgotten` and `Stopped` are no ends that an owner may
    /// give.
    pub status: EndStatus,
    /// The record: present, or kept back until somebody is known to want it.
    pub record: Option<Bytes>,
    /// The seal of its stream, where it was streamed: then there is no record.
    pub seal: Option<Seal>,
    /// How old the answer may be for a fresh caller, by its own word: the caller's reuse
    /// window is another bound. Zero: no fresh caller has it.
    pub fresh: Duration,
    /// How long the record, or the private mark, stands.
    pub keep: Duration,
    /// The error's text, for `Failed` and `TimedOut`.
    pub report: String,
}

/// The answer to [`Session::finish`](super::Session::finish).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finished {
    /// The outcome is accepted, or was before.
    Accepted,
    /// Somebody waits: send again, with the record or the rest of the stream.
    Wanted,
    /// The stream that is sealed is not all there: send the rest, from this piece on,
    /// and then this again.
    Gap {
        /// The number of the first piece that is missing.
        next: u64,
    },
    /// This process does not own the key; nothing was published.
    Lost(Loss),
}

/// Why a flight is not its owner's any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The record is gone: data lost, or evicted.
    Missing,
    /// The flight was forgotten.
    Forgotten,
    /// The flight was stopped.
    Stopped,
    /// A newer owner, or an end that was not this owner's, stands in its place.
    Superseded {
        /// The token in the record.
        by: u64,
    },
}

/// The answer to [`Session::abandon`](super::Session::abandon).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Abandoned {
    /// The flight is over.
    Over,
    /// Somebody elsewhere waits: go on.
    Wanted {
        /// How many processes.
        waiters: u32,
    },
    /// This process does not own the key.
    Lost(Loss),
}

/// Something that was pushed to a waiting session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Pushed {
    /// A flight ended.
    Ended {
        /// The flight.
        flight: FlightRef,
        /// How.
        status: EndStatus,
        /// Its record, where it is small.
        record: Option<Bytes>,
        /// The seal of its stream, where it was streamed.
        seal: Option<Seal>,
    },
    /// A piece was added to a flight's stream, or several.
    Piece {
        /// The flight.
        flight: FlightRef,
        /// The number of the first of them.
        index: u64,
        /// The piece, where it is the only one and small; else it is to be read.
        piece: Option<Bytes>,
    },
    /// Somebody has come to wait, where nobody waited.
    Watched {
        /// The flight that is waited for.
        flight: FlightRef,
    },
    /// A flight was let go; somebody else may own.
    Released {
        /// The flight.
        flight: FlightRef,
    },
    /// Pushes may have been missed: look.
    Gap,
}

/// One operation of a heartbeat.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Beat {
    /// Keep a lease.
    Renew {
        /// The key.
        key: KeyDigest,
        /// The flight that is owned.
        flight: FlightRef,
        /// How long the lease lasts from now.
        lease: Duration,
    },
    /// Look at a followed flight and keep the waiter's mark.
    Watch {
        /// The key.
        key: KeyDigest,
        /// As for `join`, with `look_only` set.
        join: Join,
        /// How long the mark lasts from now.
        mark: Duration,
    },
    /// Let a flight go, whether or not its lease still stands.
    Release {
        /// The key.
        key: KeyDigest,
        /// The flight's id.
        flight: FlightId,
        /// Its token, where it is known.
        token: Option<u64>,
        /// [`EndStatus::Abandoned`], or [`EndStatus::TimedOut`] where that is why. For a
        /// [probe](Joined::Probe) [`EndStatus::Done`] where its answer may be shared: then
        /// the mark is gone. All else leaves it, for another probe.
        status: EndStatus,
    },
    /// End a wait.
    Leave {
        /// The key.
        key: KeyDigest,
        /// The wait.
        waiter: WaiterId,
    },
}

/// The answer to one [`Beat`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BeatReply {
    /// The lease is renewed.
    Renewed {
        /// How many processes wait elsewhere.
        waiters: u32,
    },
    /// The flight has ended by this owner's own `finish`.
    Over,
    /// The lease is lost.
    Lost(Loss),
    /// What a look found.
    Watched(Joined),
    /// `Release` or `Leave` is done, or there was nothing to do.
    Gone,
}
