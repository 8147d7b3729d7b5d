//! Whole fleets: processes on one Redis, which are called, killed and stopped.
//!
//! Each test has its own server and its own labs. The figures it finds are printed:
//! `cargo test --test fleet -- --nocapture`.
#![cfg(feature = "redis")]

mod abandoned;
mod answers;
mod faults;
mod figures;
#[path = "../support/lab/mod.rs"]
mod lab;
mod latency;
mod outage;
mod proxy;
mod runs;
#[path = "../support/mod.rs"]
mod support;
mod takeover;

/// Settings for tests whose times are not fixed by their case: a lease of a second.
const QUICK: &[&str] = &["--lease-ms", "1000", "--heartbeat-ms", "300", "--retention-ms", "2000"];
