//! The store on a Redis or Valkey server.
//!
//! Every step is one script on the keys of one flight key, which share a slot:
//!
//! | key | holds |
//! |---|---|
//! | `{prefix}:meta:{K}` | the record: owner, lease, outcome |
//! | `{prefix}:waiters:{K}` | who waits, and until when |
//! | `{prefix}:result:{K}` | the last answer |
//! | `{prefix}:stream:{K}` | the pieces of streamed answers, and how each of them ended |
//! | `{prefix}:owner-seq` | the greatest token given out |
//!
//! `K` is the key's digest in braces. All but the last expire. Connections are
//! constant in number: a few for scripts, one for large records and for what is read
//! of streams, one for pushes, one for each heartbeat.
//!
//! A [`shard`] is one server with these; in a [`cluster`] there is one for each master.

mod address;
mod ask_once;
mod breaker;
mod budget;
mod builder;
mod check;
mod cluster;
mod connect;
mod counts;
mod error;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod gate;
mod handle;
mod heartbeat;
mod hub;
mod keys;
mod line;
mod look;
mod pieces;
mod pool;
mod push;
mod question;
mod queue;
mod reply;
mod script;
mod seat;
mod sentinel;
mod session;
mod shard;
mod step;
mod suspect;
mod term;
#[cfg(feature = "tls")]
mod tls;
mod vigil;

pub use self::{builder::RedisStoreBuilder, handle::RedisStore};
