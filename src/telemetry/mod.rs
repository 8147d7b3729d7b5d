//! What can be seen of a layer from outside: spans, metrics, and who is in the air.
//!
//! A clone of the layer tells what all of its clones do in this process:
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_singleflight::{HttpKey, SingleFlightLayer};
//!
//! # async fn answer() -> &'static str { "42" }
//! let layer = SingleFlightLayer::new(HttpKey::new());
//! let app: Router = Router::new().route("/answer", get(answer)).layer(layer.clone());
//!
//! println!("{} runs saved", layer.stats().runs_avoided());
//! for flight in layer.flights() {
//!     println!("{}: {} callers, {:?}", flight.key, flight.callers, flight.phase);
//! }
//! ```
//!
//! and what the whole fleet has in the air. Names tell layers and processes apart:
//!
//! ```
//! use tower_singleflight::{HttpKey, MemoryStore, SingleFlightLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_singleflight::store::StoreError> {
//! let layer = SingleFlightLayer::new(HttpKey::new())
//!     .name("answers")
//!     .instance("web-3")
//!     .store(MemoryStore::new());
//!
//! for flight in layer.fleet().flights(100).await? {
//!     let (owner, left) = (&flight.owner, flight.lease_left);
//!     println!("{}: {owner} runs, {} wait, lease {left:?}", flight.key, flight.waiters);
//! }
//! # Ok(()) }
//! ```
//!
//! # Spans
//!
//! By [`tracing`](https://docs.rs/tracing), at the level INFO. Nobody who listens: nothing is
//! made. No key, header or body is in them; a key is told by its digest, as
//! [`SingleFlightLayer::digest`](crate::SingleFlightLayer::digest) gives it and
//! [`Fleet`](crate::Fleet) takes it.
//!
//! | span | around | fields |
//! |---|---|---|
//! | `single_flight` | one caller, to the head of its response | `key`; `role`: a [`FlightRole`](crate::FlightRole)'s name, or `failed`; `outcome`: `answered`, `inner_error`, `panic`, `broken`, `left`, or the name of a [`FailureKind`](crate::FailureKind); `token` |
//! | `flight` | one run, in the span of the caller that began the flight | `key`, `token`; `outcome`: see below |
//!
//! With a [`TraceContext`] the span of each follower is linked to that of
//! the owner's caller, whichever process that is in: the owner's `traceparent` lies beside
//! its flight in the store. Links are a hint for people. Who can write to the store can
//! make them lead anywhere.
//!
//! # Metrics
//!
//! With the feature `metrics`, by the [facade of that name](https://docs.rs/metrics). Install
//! the recorder before the first request: a layer keeps the handles that it gets then. The
//! number of series is constant: `layer` is the layer's
//! [`name`](crate::SingleFlightLayer::name), and all other labels are words of this crate.
//!
//! | metric | kind | labels | what |
//! |---|---|---|---|
//! | `single_flight_requests_total` | counter | `layer`, `role` | callers that have their answer: `owner`, `follower_local`, `follower_remote`, `reused`, `bypass`; `failed`: a failure of the layer's own |
//! | `single_flight_bypasses_total` | counter | `layer`, `reason` | callers that ran alone, by the name of their [`Bypass`](crate::Bypass) |
//! | `single_flight_wait_seconds` | histogram | `layer`, `role` | from the call to the head of the response, of those that did not bypass |
//! | `single_flight_run_seconds` | histogram | `layer`, `outcome` | runs for a flight: `done`, `private`, `too_large`, `failed`, `timed_out`, `lost` (its lease), `stopped`, `drained` (handed over), `unwanted` (nobody waited) |
//! | `single_flight_in_flight` | gauge | `layer` | flights that this process takes part in |
//! | `single_flight_runs_avoided_total` | counter | `layer` | callers answered without a run of their own |
//! | `single_flight_run_milliseconds_avoided_total` | counter | `layer` | what those runs would have taken at least: for how long this process had known of the flight; 0 for an answer that is used again |
//! | `single_flight_published_bytes_total` | counter | `layer` | bytes of answers that the store was given |
//! | `single_flight_takeovers_total` | counter | `layer` | leases taken after another process |
//! | `single_flight_leases_lost_total` | counter | `layer` | leases that ended before their run |
//! | `single_flight_failed_runs_total` | counter | `layer` | runs that failed, or passed a time limit |
//! | `single_flight_timed_out_runs_total` | counter | `layer` | those of them that passed a time limit |
//! | `single_flight_private_runs_total` | counter | `layer` | runs whose answer may not be shared |
//! | `single_flight_large_runs_total` | counter | `layer` | runs whose answer was larger than what is shared |
//! | `single_flight_reused_local_total` | counter | `layer` | answers used again that this process held |
//! | `single_flight_hand_overs_total` | counter | `layer` | leases given up by a process that leaves |
//! | `single_flight_stopped_total` | counter | `layer` | runs that were stopped |
//! | `single_flight_fenced_total` | counter | `layer` | outcomes that the store refused: the lease was another's |
//! | `single_flight_quarantined_total` | counter | `layer` | keys found in quarantine |
//! | `single_flight_bad_records_total` | counter | `layer` | stored answers that could not be read |
//! | `single_flight_crowded_key_total` | counter | `layer` | callers that found a flight full |
//! | `single_flight_crowded_total` | counter | `layer` | callers that found the process full |
//! | `single_flight_shadow_agreed_total` | counter | `layer` | shadow mode: runs to spare |
//! | `single_flight_shadow_differed_total` | counter | `layer` | shadow mode: runs whose answers differ |
//! | `single_flight_shadow_unshareable_total` | counter | `layer` | shadow mode: runs whose answers may not be shared |
//! | `single_flight_shadow_uncompared_total` | counter | `layer` | shadow mode: runs that nothing can be said of |
//! | `single_flight_store_degraded` | gauge | `layer` | 1 where the store did not answer when it was last asked, else 0 |
//! | `single_flight_store_errors_total` | counter | `kind` | failed operations of all Redis stores of the process, by [`StoreErrorKind`](crate::store::StoreErrorKind) |
//!
//! [`Stats`](crate::Stats) has the same counts without any of this.
//!
//! # The fleet
//!
//! See [`Fleet`](crate::Fleet), and the example `flightctl`.

use std::{fmt, sync::Arc};

use tracing::{
    Span,
    field::{Empty, display},
};

use crate::{
    id::KeyDigest,
    store::Badge,
    trace::{TraceContext, TraceParent},
};

mod caller;
mod ending;
#[cfg(feature = "metrics")]
mod handles;
mod meter;

pub(crate) use self::{
    caller::{Caller, record_key},
    ending::Ending,
    meter::Meter,
};

/// What a layer shows of itself, and how.
#[derive(Clone)]
pub(crate) struct Telemetry {
    badge: Badge,
    trace: Option<Arc<dyn TraceContext>>,
    /// Of the layer; none: nothing is measured.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "measured by a feature"))]
    name: Option<Arc<str>>,
}

impl Telemetry {
    /// Of the process of this name; none: the process's number, and its host's name where
    /// that is known.
    pub(crate) fn new(
        name: &str,
        instance: Option<&str>,
        trace: Option<Arc<dyn TraceContext>>,
    ) -> Self {
        let owner = instance.map_or_else(process, ToOwned::to_owned);
        Self { badge: Badge::new(&owner), trace, name: Some(name.into()) }
    }

    /// The same, for flights that nothing is measured of.
    pub(crate) fn unmetered(&self) -> Self {
        Self { name: None, ..self.clone() }
    }

    /// What the layer's events are told to.
    pub(crate) fn meter(&self) -> Meter {
        #[cfg(feature = "metrics")]
        if let Some(name) = &self.name {
            return Meter::new(name);
        }
        Meter::default()
    }

    /// What is left beside flights that are owned here, by who is in this span.
    pub(crate) fn badge(&self) -> Badge {
        Badge { trace: self.here(), ..self.badge.clone() }
    }

    /// Where the span that is entered just now is in its trace.
    pub(crate) fn here(&self) -> Option<TraceParent> {
        self.trace.as_ref()?.of(&Span::current())
    }

    fn trace_context(&self) -> Option<&Arc<dyn TraceContext>> {
        self.trace.as_ref()
    }
}

/// The span of a run.
pub(crate) fn run_span(key: impl FnOnce() -> KeyDigest, token: Option<u64>) -> Span {
    let span = tracing::info_span!("flight", key = Empty, token, outcome = Empty);
    if !span.is_disabled() {
        span.record("key", display(key()));
    }
    span
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("badge", &self.badge).finish_non_exhaustive()
    }
}

fn process() -> String {
    let host = std::env::var("HOSTNAME").ok();
    let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.as_deref().map(str::trim).filter(|host| !host.is_empty());
    match host {
        Some(host) => format!("{}@{host}", std::process::id()),
        None => std::process::id().to_string(),
    }
}
