//! The store: where processes meet.
//!
//! A store keeps one record per key and changes it in whole steps. Two come with
//! the crate: [`MemoryStore`], which is what a layer uses until it is given
//! another, and `RedisStore` for a fleet (feature `redis`, on by default).
//!
//! [`Store`] is open to other engines, and to wrappers that inject faults in
//! tests. Its contract is the store protocol: every step compares token **and**
//! flight id, an old owner changes nothing, and whatever cannot be read is a miss.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use bytes::Bytes;

use crate::id::{FlightId, FlightRef, KeyDigest, WaiterId};

mod error;
mod memory;
#[cfg(feature = "redis")]
mod redis;

#[cfg(feature = "redis")]
pub use self::redis::{RedisStore, RedisStoreBuilder};
pub use self::{
    error::{StoreError, StoreErrorKind},
    memory::MemoryStore,
};

/// A boxed future, as the object-safe traits of this module return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The engine that the processes of a fleet meet on.
///
/// One `Store` serves all keys of a process. It is cheap to hold, and the drivers
/// of flights open a [`Session`] each.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Opens a session for one key. Does no I/O.
    fn session(&self, key: KeyDigest) -> Box<dyn Session>;

    /// Opens the line that leases are renewed on. Does no I/O; the line connects
    /// when it is first used, inside the runtime that uses it.
    fn heartbeat(&self) -> Box<dyn Heartbeat>;

    /// True where answers come over a network: the keeper then runs on a thread of
    /// its own, so that a handler that blocks the runtime keeps its lease. False
    /// for stores in memory, whose keeper is a task under the runtime's clock.
    fn is_remote(&self) -> bool;

    /// What the store can say of itself right now.
    fn state(&self) -> StoreState;

    /// Failed operations since the store was made, by kind; kinds that there were
    /// none of may be left out.
    fn errors(&self) -> Vec<(StoreErrorKind, u64)>;
}

/// What a store says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreState {
    /// It answers.
    Ok,
    /// It does not answer; operations fail at once until a probe succeeds.
    Degraded,
    /// It lives in this process.
    Memory,
}

/// One driver's dealings with one key.
///
/// Each operation is a whole step in the store, bounded in time by the store
/// itself. Dropping a future may leave the step done or not done. Dropping the
/// session ends its subscription, and nothing else.
pub trait Session: Send {
    /// Asks to own, follow, look or take over: one step decides which it is.
    ///
    /// Where the answer is [`Joined::Follow`], pushes for the key that follow this
    /// step arrive at [`pushed`](Self::pushed), with no gap between the two.
    fn join(&mut self, join: Join) -> BoxFuture<'_, Result<Joined, StoreError>>;

    /// Waits for the next push for the key. Pends for ever before the first
    /// `Follow`. Cancel-safe: a push is not lost when the future is dropped.
    fn pushed(&mut self) -> BoxFuture<'_, Pushed>;

    /// Reads the stored record of the key's last finished flight, whichever it
    /// is; the reader checks whose it is.
    fn fetch(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>>;

    /// Adds pieces to the stream of a flight that this process owns. May be sent
    /// again at will: what is there already is not added twice.
    fn append(&mut self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>>;

    /// Reads pieces of a flight's stream, from one on; as many as come in one go.
    fn read(&mut self, flight: FlightRef, from: u64) -> BoxFuture<'_, Result<Pieces, StoreError>>;

    /// Renews the lease of a flight that this process owns, and hears from then on
    /// at [`pushed`](Self::pushed) who comes to wait for it, with no gap between the
    /// two. The next step that is not about this flight may end it.
    fn listen(
        &mut self,
        flight: FlightRef,
        lease: Duration,
    ) -> BoxFuture<'_, Result<BeatReply, StoreError>>;

    /// No longer hears of anything.
    fn deafen(&mut self);

    /// Ends a flight that this process owns. May be sent again at will.
    fn finish(&mut self, finish: Finish) -> BoxFuture<'_, Result<Finished, StoreError>>;

    /// Ends a flight that this process owns and nobody here waits for, unless
    /// somebody elsewhere does. Sent once.
    fn abandon(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<Abandoned, StoreError>>;

    /// Ends the running flight for all who come after, and takes a stored answer out
    /// of reuse. Its owner hears [`Loss::Forgotten`] and keeps its run for its own
    /// callers; those who follow elsewhere are told to look.
    fn forget(&mut self) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// The line on which the keeper renews leases and watches followed flights.
pub trait Heartbeat: Send {
    /// Sends all operations in one go and answers each by itself, in order: the
    /// answer has exactly one element for each operation.
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>>;
}

/// What [`Session::join`] asks for.
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

/// The answer to [`Session::join`].
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
    },
    /// A flight ended well.
    Done {
        /// The flight.
        flight: FlightRef,
        /// Its answer is in its stream, not in a record: [`Session::read`] reads it.
        streamed: bool,
        /// Its record, where it is small; else [`Session::fetch`] reads it.
        record: Option<Bytes>,
        /// True where it was found by a fresh caller inside the reuse window.
        reused: bool,
    },
    /// The key's flights failed too often in a row.
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
    /// The flight was let go, or its lease is over: what `look_only` gets for a grant.
    Lapsed,
    /// There is no record: what `look_only` gets for a grant where the data may have
    /// been lost, so that the owner comes before those who wait.
    Missing,
}

/// How a flight ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// What [`Session::append`] says.
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
}

/// The answer to [`Session::append`].
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

/// The answer to [`Session::read`].
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

/// What [`Session::finish`] says.
#[derive(Clone, Debug)]
pub struct Finish {
    /// The flight that ends.
    pub flight: FlightRef,
    /// How it ends; `Abandoned` and `Forgotten` are no ends that an owner may give.
    pub status: EndStatus,
    /// The record: present, or kept back until somebody is known to want it.
    pub record: Option<Bytes>,
    /// The seal of its stream, where it was streamed: then there is no record.
    pub seal: Option<Seal>,
    /// Whether fresh callers may have it inside their reuse window.
    pub reusable: bool,
    /// How long the record, or the private mark, stands.
    pub keep: Duration,
    /// The error's text, for `Failed` and `TimedOut`.
    pub report: String,
}

/// The answer to [`Session::finish`].
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
    /// A newer owner, or an end that was not this owner's, stands in its place.
    Superseded {
        /// The token in the record.
        by: u64,
    },
}

/// The answer to [`Session::abandon`].
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
        /// [`EndStatus::Abandoned`], or [`EndStatus::TimedOut`] where that is why.
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
