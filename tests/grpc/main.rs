//! The layer as gRPC services and their clients see it: servers and clients of tonic,
//! over real connections.
//!
//! Tests are named for the rows of the list of cases.

#[path = "../support/mod.rs"]
mod redis;
#[path = "../http/support.rs"]
#[allow(dead_code, reason = "made for more than this")]
mod support;

#[path = "../support/proxy/mod.rs"]
mod proxy;

mod rig;
mod tap;

mod breaks;
mod calls;
mod cost;
mod failures;
mod live;
mod lost;
mod places;
mod streams;
