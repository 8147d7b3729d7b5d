//! placeholder
#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod cache_status;
mod chain;
pub mod codec;
mod config;
mod core;
mod error;
mod flight;
mod flights;
mod frame;
mod future;
mod headers;
mod id;
pub mod key;
mod layer;
mod lease;
mod log;
mod policy;
mod record;
mod seat;
mod service;
pub mod store;

#[cfg(feature = "redis")]
pub use self::store::RedisStore;
pub use self::{
    body::{BodyError, Replay, ResponseBody, Resumed},
    cache_status::FlightRole,
    codec::{Codec, FlightToken, HttpCodec},
    config::{Abandon, Config, ConfigBuilder, ConfigError, LeaseLoss, StoreDown},
    core::Stats,
    error::{Failure, FailureKind},
    flights::{FlightInfo, FlightPhase},
    frame::{Frame, Head},
    future::ResponseFuture,
    id::{FlightId, FlightRef, KeyDigest, WaiterId},
    key::{Bypass, HttpKey, Key, KeyBuilder, KeyExtractor, KeyFn, NOISE, RequestView, key_fn},
    layer::SingleFlightLayer,
    policy::PER_REQUEST,
    service::SingleFlight,
    store::{MemoryStore, Store},
};
