//! The store protocol as tests: a rule each, for every engine.
//!
//! A store that is held to all [rules](Rule::ALL), and keeps them, can be given to
//! [`SingleFlightLayer::store`](crate::SingleFlightLayer::store). Each rule is about
//! processes that meet at one key, made of nothing but [`Store`](crate::Store),
//! [`Session`](crate::store::Session) and [`Heartbeat`](crate::store::Heartbeat); it
//! panics where the store breaks it, and says what came instead.
//!
//! # A test for each rule
//!
//! [`conformance_tests!`](crate::conformance_tests) writes them. The attribute is what
//! each test gets; the expression makes the engine of one test, and may await:
//!
//! ```
//! # use tower_singleflight::MemoryStore as MyStore;
//! # #[derive(Default)] struct MyServer(MyStore);
//! # impl MyServer {
//! #     async fn start() -> Self { Self::default() }
//! #     async fn connect(&self) -> MyStore { self.0.clone() }
//! # }
//! use std::sync::Arc;
//! use tower_singleflight::{Store, testing::conformance::Engine};
//!
//! /// A server of the test's own, which ends when it is dropped.
//! struct Mine(MyServer);
//!
//! impl Engine for Mine {
//!     async fn node(&self) -> Arc<dyn Store> {
//!         Arc::new(self.0.connect().await)
//!     }
//! }
//!
//! tower_singleflight::conformance_tests! {
//!     #[tokio::test]
//!     Mine(MyServer::start().await)
//! }
//! ```
//!
//! # All rules in one test
//!
//! Where a server is slow to start, [`run`] and [`run_at_a_time`] hold one engine to all
//! of them and name those that it broke:
//!
//! ```no_run
//! # use tower_singleflight::{RedisStore as MyStore, testing::conformance};
//! # const ADDRESS: &str = "redis://127.0.0.1/";
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let connect = || async { MyStore::connect(ADDRESS).await.expect("a server") };
//! conformance::run_at_a_time(connect, 8).await;
//! # }
//! ```
//!
//! # What it takes
//!
//! Leases are half a second long, and a step that must come inside one leaves 200 ms for
//! slow machines: a store that needs longer for a step is too slow for the rules. Up to 16
//! callers join at once; a record has up to 1 MiB, a piece of a stream up to 256 KiB. On a
//! real clock all rules, one after the other, take about a minute. Each uses keys of its
//! own and takes other keys in the same data for what they are; none clears anything.

mod beat;
mod chain;
mod end;
mod engine;
mod follow;
mod held;
mod listen;
mod look;
pub(crate) mod node;
mod own;
mod pieces;
mod rules;
mod seal;
mod stream;
mod suite;
mod whole;

use self::engine::Place;
pub use self::{
    engine::Engine,
    suite::{Rule, run, run_at_a_time},
};
