//! `SCALING.md`: its tables are read from the page, and hold on a real server. Who changes
//! what a step sends changes one row there.
#![cfg(feature = "redis")]
#![allow(clippy::future_not_send, reason = "tests await where they are")]

#[path = "../support/mod.rs"]
mod support;

mod beats;
mod copies;
mod examples;
mod fleet;
mod held;
mod links;
mod memory;
mod meter;
mod model;
mod page;
mod rig;
mod sizes;
mod steps;
