//! placeholder
#![cfg_attr(docsrs, feature(doc_cfg))]

mod cache_status;
mod config;
mod error;
mod frame;
mod headers;
mod id;
pub mod key;
mod policy;
mod record;
pub mod store;

#[cfg(feature = "redis")]
pub use self::store::RedisStore;
pub use self::{
    cache_status::FlightRole,
    config::{Abandon, Config, ConfigBuilder, ConfigError, LeaseLoss, StoreDown},
    error::{Failure, FailureKind},
    frame::{Frame, Head},
    id::{FlightId, FlightRef, KeyDigest, WaiterId},
    key::{Bypass, HttpKey, Key, KeyBuilder, KeyExtractor, KeyFn, NOISE, RequestView, key_fn},
    policy::PER_REQUEST,
    store::{MemoryStore, Store},
};
