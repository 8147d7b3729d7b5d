//! placeholder
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod error;
mod frame;
mod id;
pub mod store;

#[cfg(feature = "redis")]
pub use self::store::RedisStore;
pub use self::{
    config::{Abandon, Config, ConfigBuilder, ConfigError, LeaseLoss, StoreDown},
    error::{Failure, FailureKind},
    frame::{Frame, Head},
    id::{FlightId, FlightRef, KeyDigest, WaiterId},
    store::{MemoryStore, Store},
};
