//! A Tower layer that gives a whole fleet *single flight*: of all identical requests
//! in the air at the same moment, in every process on every machine, one is executed
//! and all are answered.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_singleflight::{HttpKey, SingleFlightLayer};
//!
//! # async fn answer() -> &'static str { "42" }
//! let app: Router = Router::new()
//!     .route("/answer", get(answer))
//!     .layer(SingleFlightLayer::new(HttpKey::new()));
//! ```
//!
//! With a [`RedisStore`] the same line works over all processes that use the same
//! Redis:
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use tower_singleflight::{HttpKey, RedisStore, SingleFlightLayer};
//!
//! # async fn answer() -> &'static str { "42" }
//! # async fn fleet() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::connect("redis://127.0.0.1/").await?;
//! let app: Router = Router::new()
//!     .route("/answer", get(answer))
//!     .layer(SingleFlightLayer::new(HttpKey::new()).store(store));
//! # Ok(()) }
//! ```
//!
//! A service that does not speak HTTP takes [`SingleFlightLayer::values`]:
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_singleflight::{SingleFlightLayer, key_fn};
//!
//! # async fn count(_: String) -> Result<u64, std::io::Error> { Ok(1) }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let words = ServiceBuilder::new()
//!     .layer(SingleFlightLayer::values(key_fn(|text: &String| Some(text.clone()))))
//!     .service_fn(count);
//! # assert_eq!(words.oneshot("one".into()).await.unwrap(), 1);
//! # }
//! ```
//!
//! # Before the second process
//!
//! - Host and port are part of [`HttpKey`]: processes that are asked by addresses of their
//!   own share with [`authority`](HttpKey::authority).
//! - Layers on one Redis that answer differently need a
//!   [`namespace`](SingleFlightLayer::namespace) each, those of one process as well. The
//!   default is the name of the executable.
//! - [`RedisStore::connect`] fails where Redis is away, `connect_lazy` starts without it.
//! - What is below the layer is done once for each run, what is above it for each caller:
//!   authentication belongs above, which in axum is a `.layer(..)` *after* this one.
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | `redis` (default) | [`RedisStore`]: Redis or Valkey, sentinels, clusters |
//! | `tls` | `rediss://` addresses |
//! | `metrics` | counts and times by the `metrics` facade |
//! | `grpc-descriptors` | `GrpcKey::methods_in`: names of methods are held against a descriptor set |
//! | `test-util` | a store that fails when a test wants it, and what stores are held to |
//!
//! # Words
//!
//! A **flight** is one shared run of one **key**, from its first caller until its
//! outcome is delivered. Its **owner** is the process that executes the inner
//! service; **followers** wait for it. The owner holds a **lease**, renewed by
//! heartbeats, and a **token**, a number that grows with every new owner of the key;
//! a follower becomes owner by **takeover** when the lease runs out or is let go. A
//! request that takes no part **bypasses**.
//!
//! # What it promises
//!
//! At most one *published* outcome per flight. Inner can run twice for one key: when
//! an owner is cut off or paused beyond its lease, when the store loses data, when a
//! run fails, and while the store is away. See [`FlightToken`] for how inner fences
//! its own writes.
//!
//! # Where things are
//!
//! - [`SingleFlightLayer`] and its [`Config`]
//! - [`key`]: what makes two requests the same
//! - [`store`]: where processes meet
//! - [`SharePolicy`]: with whom responses are shared
//! - [`codec`]: what the layer knows of responses
//! - [`telemetry`]: what can be seen: spans, metrics, and a look at the [`Fleet`]
//! - `testing`, with the feature `test-util`: a store that fails when a test wants it, and
//!   what stores are held to
//!
//! The guide is in the repository's `docs/`, beside `SECURITY.md` and `RELIABILITY.md`, and
//! comes with the package.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod cache_status;
mod chain;
pub mod codec;
mod config;
mod core;
mod counts;
mod drain;
mod entry;
mod error;
mod fleet;
mod flight;
mod flights;
mod frame;
mod future;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod headers;
mod heard;
mod holdings;
mod id;
mod intake;
pub mod key;
mod layer;
mod lease;
mod log;
mod operate;
mod policy;
mod print;
mod probing;
mod record;
mod running;
mod seat;
mod selection;
mod service;
mod shadow;
pub mod store;
mod switch;
mod sync;
pub mod telemetry;
#[cfg(feature = "test-util")]
pub mod testing;
mod then;
mod trace;
mod turns;
mod waiting;
mod witness;

#[cfg(feature = "redis")]
pub use self::store::RedisStore;
pub use self::{
    body::{BodyError, Replay, ResponseBody, Resumed},
    cache_status::FlightRole,
    codec::{Codec, FlightError, FlightToken, HttpCodec, ValueCodec},
    config::{
        Abandon, Config, ConfigBuilder, ConfigError, Crowded, Delivery, LeaseLoss, StoreDown,
    },
    counts::Stats,
    error::{Failure, FailureKind},
    fleet::Fleet,
    flights::{FlightInfo, FlightPhase},
    frame::{Frame, Head},
    future::ResponseFuture,
    id::{FlightId, FlightRef, KeyDigest, ParseKeyDigestError, WaiterId},
    key::{
        Bypass, Explanation, GrpcKey, HttpKey, Key, KeyBuilder, KeyExtractor, KeyFn, KeyPart,
        NOISE, PartSource, RequestView, key_fn,
    },
    layer::SingleFlightLayer,
    policy::{DefaultSharePolicy, PER_REQUEST, ResponseView, Share, SharePolicy},
    service::SingleFlight,
    store::{MemoryStore, Store},
    switch::{NoShare, Switch},
    trace::{ParseTraceParentError, TraceContext, TraceParent},
};

/// The code on the pages of the guide, compiled and run.
#[cfg(doctest)]
mod guide {
    macro_rules! pages {
        ($($name:ident: $file:literal,)*) => {$(
            #[doc = include_str!(concat!("../", $file))]
            struct $name;
        )*};
    }

    pages! {
        Readme: "README.md",
        HowItWorks: "docs/how-it-works.md",
        Keys: "docs/keys.md",
        Answers: "docs/answers.md",
        Streams: "docs/streams.md",
        Grpc: "docs/grpc.md",
        Operations: "docs/operations.md",
        Moving: "docs/moving.md",
    }
}
