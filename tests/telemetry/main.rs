//! What who watches a layer is shown: traces and metrics.
#![cfg(feature = "redis")]

#[path = "../support/mod.rs"]
mod support;
mod traces;
