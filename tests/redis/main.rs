//! The Redis store, and the layer on it, in one process with real servers: alone, behind
//! sentinels, in a cluster, over TLS.
#![cfg(feature = "redis")]

mod cluster;
mod held;
mod layer;
#[path = "../support/log.rs"]
mod log;
#[path = "../support/proxy/mod.rs"]
mod proxy;
mod replies;
mod rights;
mod sentinel;
mod steps;
mod store;
mod streams;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "tls")]
mod tls;
