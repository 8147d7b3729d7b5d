//! Whole fleets: processes on one Redis, which are called, killed and stopped.
//!
//! Each test has its own server and its own labs. The figures it finds are printed:
//! `cargo test --test fleet -- --nocapture`.
#![cfg(feature = "redis")]

mod abandoned;
mod answers;
mod blackhole;
mod blocked;
mod cluster;
mod counts;
mod data_loss;
mod draining;
mod failover;
mod faults;
mod figures;
mod flightctl;
mod histories;
#[path = "../support/history/mod.rs"]
mod history;
#[path = "../support/lab/mod.rs"]
mod lab;
mod latency;
mod llm;
mod monitor;
mod outage;
mod partition;
#[path = "../support/proxy/mod.rs"]
mod proxy;
mod push;
mod resumed;
mod runs;
mod streams;
mod succession;
#[path = "../support/mod.rs"]
mod support;
mod takeover;

/// What a busy machine adds to any time limit: the build is not optimised.
const SLACK: std::time::Duration = std::time::Duration::from_millis(300);

/// Settings for tests whose times are not fixed by their case: a lease of a second.
const QUICK: &[&str] = &["--lease-ms", "1000", "--heartbeat-ms", "300", "--retention-ms", "2000"];
