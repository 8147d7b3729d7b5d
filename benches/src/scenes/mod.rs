//! What is measured, one scene a file. Each prints its rows.

pub mod cost;
pub mod hand_off;
pub mod herd;
pub mod hot;
pub mod instructions;
pub mod lone;
pub mod many;
pub mod memory;
pub mod server;
mod streams;
pub mod throughput;
pub mod trips;

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::{Builder, Runtime};

pub use self::streams::Streaming;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub quick: bool,
}

impl Effort {
    pub fn pick<T>(self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// A path that no call had before.
pub fn fresh() -> String {
    static NTH: AtomicU64 = AtomicU64::new(0);
    format!("/{}", NTH.fetch_add(1, Ordering::Relaxed))
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
