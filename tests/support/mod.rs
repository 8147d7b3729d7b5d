//! What the integration tests share.
#![allow(dead_code, reason = "each test binary uses its own part")]

#[cfg(feature = "tls")]
pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod redis_server;
pub(crate) mod resp;
pub(crate) mod rights;
pub(crate) mod sentinels;

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// Polls until the condition holds; panics when it does not in five seconds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let end = Instant::now() + Duration::from_secs(5);
    while !holds().await {
        assert!(Instant::now() < end, "not in five seconds: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
