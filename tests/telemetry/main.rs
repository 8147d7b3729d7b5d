//! What who watches a layer is shown: traces and metrics.
#![cfg(feature = "redis")]

#[cfg(feature = "metrics")]
mod metrics;
#[path = "../support/mod.rs"]
mod support;
mod traces;
