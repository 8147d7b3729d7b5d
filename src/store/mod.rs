//! The store: where processes meet.
//!
//! A store keeps one record per key and changes it in whole steps. Two come with
//! the crate: [`MemoryStore`], which is what a layer uses until it is given
//! another, and `RedisStore` for a fleet (feature `redis`, on by default).
//!
//! [`Store`] is open to other engines, and to wrappers that inject faults in
//! tests; with the feature `test-util`, `testing` has such a wrapper, and what every
//! engine is held to. Its contract is the store protocol: every step compares token **and**
//! flight id, an old owner changes nothing, and whatever cannot be read is a miss.
//!
//! Layers that are given one store meet there, if they have one namespace:
//!
//! ```
//! use tower_singleflight::{HttpKey, MemoryStore, SingleFlightLayer};
//!
//! let store = MemoryStore::new();
//! let layer = || SingleFlightLayer::new(HttpKey::new()).namespace("reports");
//! let (public, internal) = (layer().store(store.clone()), layer().store(store));
//! ```
//!
//! A fleet's is on a server, here under a name of its own and with more patience:
//!
//! ```
//! use std::time::Duration;
//!
//! use tower_singleflight::{HttpKey, RedisStore, SingleFlightLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_singleflight::store::StoreError> {
//! let store = RedisStore::builder("redis://127.0.0.1/")
//!     .prefix("reports:flight")
//!     .operation_limit(Duration::from_millis(800))
//!     // Also where the server is not there yet: until then each process shares its own.
//!     .connect_lazy()?;
//! let layer = SingleFlightLayer::new(HttpKey::new()).store(store);
//! # Ok(()) }
//! ```

use std::{fmt, future::Future, pin::Pin, time::Duration};

use bytes::Bytes;

use crate::id::{FlightRef, KeyDigest};

mod error;
mod held;
mod memory;
#[cfg(feature = "redis")]
mod redis;
mod step;
mod view;

#[cfg(all(feature = "redis", any(test, fuzzing)))]
pub(crate) use self::redis::fuzzing;
#[cfg(feature = "redis")]
pub use self::redis::{RedisStore, RedisStoreBuilder};
pub use self::{
    error::{StoreError, StoreErrorKind},
    held::{Held, Vigil},
    memory::MemoryStore,
    step::{
        Abandoned, Append, Appended, Beat, BeatReply, EndStatus, Finish, Finished, Join, Joined,
        Loss, Pieces, Pushed, Seal, StreamEnd,
    },
    view::{Badge, KeyStatus, KeyView, Page, Scan},
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

    /// What it has of a key; none where it has no record, or one of another release.
    /// Changes nothing. Default: it does not tell.
    fn inspect(&self, key: KeyDigest) -> BoxFuture<'_, Result<Option<KeyView>, StoreError>> {
        let _ = key;
        Box::pin(std::future::ready(Err(untold())))
    }

    /// Looks through all keys, page by page. Does no I/O before the first page is asked
    /// for, changes nothing, and holds nothing up: what comes or goes meanwhile may be
    /// found or not. Default: it does not tell.
    fn scan(&self) -> Box<dyn Scan> {
        struct Untold;
        impl Scan for Untold {
            fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>, StoreError>> {
                Box::pin(std::future::ready(Err(untold())))
            }
        }
        Box::new(Untold)
    }
}

fn untold() -> StoreError {
    StoreError::new(StoreErrorKind::Unsupported, "this store does not tell what it has")
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
    /// Says what is to be left beside flights that this session comes to own. Default:
    /// nothing is.
    fn introduce(&mut self, badge: Badge) {
        let _ = badge;
    }

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

    /// Hears from then on at [`pushed`](Self::pushed) who comes to wait for a flight that
    /// this process owns, and says how many have come so far, whether or not they still
    /// wait. Costs no step. What it says is a hint, which saves an end a trip: by default
    /// nothing is heard of.
    fn hear(&mut self, _: FlightRef) -> BoxFuture<'_, Result<u32, StoreError>> {
        Box::pin(async { Ok(0) })
    }

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

    /// Ends the running flight, for its owner, who hears [`Loss::Stopped`], and for all
    /// who follow it: they get [`Joined::Failed`] with [`EndStatus::Stopped`]. Whoever
    /// comes after begins anew. What has ended already stays as it is.
    fn stop(&mut self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Asks whether this flight's answer is the one that a fresh caller would get, so that
    /// this process may give it to its callers without a word to the store. None where it
    /// is not, and where the store cannot say when that changes; by default none can.
    ///
    /// From this step on the [vigil](Held::vigil) hears of every change of the record: that
    /// it is forgotten, that another flight begins, that the data is lost. It stands no
    /// longer than `silence` after the last moment of which it is certain that it would
    /// have heard.
    fn hold(
        &mut self,
        flight: FlightRef,
        silence: Duration,
    ) -> BoxFuture<'_, Result<Option<Held>, StoreError>> {
        let _ = (flight, silence);
        Box::pin(std::future::ready(Ok(None)))
    }
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
