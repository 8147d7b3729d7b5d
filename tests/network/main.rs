//! Every fault of the network at every step of the protocol.
//!
//! Nodes of one process, each with a store of its own and its own way to one real
//! server. A fault is aimed at one step of one of them. What must come of it is one row
//! of a table; the figures that were found are printed:
//! `cargo test --test network -- --nocapture`.
#![cfg(feature = "redis")]

mod append;
mod beat;
mod call;
mod case;
mod finish;
mod inner;
mod join;
mod late_grant;
mod leave;
mod node;
#[path = "../support/proxy/mod.rs"]
mod proxy;
mod read;
mod row;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::time::Duration;

const LEASE: Duration = Duration::from_millis(2400);
const BEAT: Duration = Duration::from_millis(600);
const RETENTION: Duration = Duration::from_secs(5);
/// The limit of one store operation, and that of one that moves much: longer than a
/// busy machine needs.
const OPT: Duration = Duration::from_millis(600);
const TRANSFER: Duration = Duration::from_millis(8 * 600);
/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(15);
