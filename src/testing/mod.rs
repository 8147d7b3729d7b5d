//! For tests: what every store is held to, and a store that fails when it is told to.
//!
//! With the feature `test-util`, which belongs into `dev-dependencies`:
//!
//! ```toml
//! [dev-dependencies]
//! tower-singleflight = { version = "0.1", features = ["test-util"] }
//! ```
//!
//! * Whoever writes a [`Store`](crate::Store) holds it to the protocol by
//!   [`conformance`].
//! * Whoever uses the layer asks by [`FaultStore`] what their service does when the store
//!   is away, slow, or loses what it has.
//!
//! # A service without its store
//!
//! As a test, it gets `#[tokio::test(start_paused = true)]`: with the clock paused, leases
//! and limits cost no time, and what happens is the same each time.
//!
//! ```
//! use std::time::Duration;
//!
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_singleflight::{
//!     HttpKey, MemoryStore, SingleFlightLayer,
//!     testing::{FaultStore, Step},
//! };
//!
//! async fn report() -> &'static str {
//!     tokio::time::sleep(Duration::from_secs(1)).await;
//!     "ready"
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn stays_up_without_its_store() {
//!     let store = FaultStore::new(MemoryStore::new());
//!     let layer = SingleFlightLayer::new(HttpKey::new()).store(store.clone());
//!     let app = Router::new().route("/report", get(report)).layer(layer);
//!     let ask = || {
//!         let request = Request::get("http://app.test/report").body(Body::empty()).unwrap();
//!         app.clone().oneshot(request)
//!     };
//!
//!     // It goes away while two callers wait for one run.
//!     let outage = async {
//!         store.until_calls(Step::Join, 1).await;
//!         store.cut();
//!     };
//!     let (one, two, ()) = tokio::join!(ask(), ask(), outage);
//!     assert!(one.unwrap().status().is_success() && two.unwrap().status().is_success());
//!
//!     // While it is away, each process shares for itself.
//!     assert!(ask().await.unwrap().status().is_success());
//!
//!     // And then it is back.
//!     store.heal();
//!     let joins = store.calls(Step::Join);
//!     assert!(ask().await.unwrap().status().is_success());
//!     assert!(store.calls(Step::Join) > joins);
//! }
//! # stays_up_without_its_store();
//! ```
//!
//! # A reply that is lost
//!
//! Two processes of a fleet, each with a line of its own to the same store. The owner's
//! end is stored, and the owner does not hear that it was: it says so again, and nobody
//! runs a second time.
//!
//! ```
//! use std::{
//!     convert::Infallible,
//!     sync::atomic::{AtomicUsize, Ordering::Relaxed},
//!     time::Duration,
//! };
//!
//! use tower::{Layer, ServiceExt, service_fn};
//! use tower_singleflight::{
//!     MemoryStore, SingleFlightLayer, key_fn,
//!     testing::{Fault, FaultStore, Step},
//! };
//!
//! static RUNS: AtomicUsize = AtomicUsize::new(0);
//!
//! async fn length(text: String) -> Result<u64, Infallible> {
//!     RUNS.fetch_add(1, Relaxed);
//!     tokio::time::sleep(Duration::from_secs(1)).await;
//!     Ok(text.len() as u64)
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn one_run_although_a_reply_is_lost() {
//!     let fleet = MemoryStore::new();
//!     let lines = [FaultStore::new(fleet.clone()), FaultStore::new(fleet)];
//!     let [owner, other] = lines.each_ref().map(|line| {
//!         SingleFlightLayer::values(key_fn(|text: &String| Some(text.clone())))
//!             .namespace("lengths")
//!             .store(line.clone())
//!             .layer(service_fn(length))
//!     });
//!     lines[0].next(Step::Finish, 1, Fault::LoseReply);
//!     let first = owner.oneshot("four".to_owned());
//!     let second = async {
//!         lines[0].until_calls(Step::Join, 1).await;
//!         other.oneshot("four".to_owned()).await
//!     };
//!     let (first, second) = tokio::join!(first, second);
//!     assert_eq!((first.unwrap(), second.unwrap()), (4, 4));
//!     assert_eq!(RUNS.load(Relaxed), 1);
//! }
//! # one_run_although_a_reply_is_lost();
//! ```

pub mod conformance;
mod fault;

pub use self::fault::{Fault, FaultStore, Step};
