//! Runs scenes that count what is allocated: `count SCENE... [--quick]`. A program of its
//! own, so that nobody else pays for the counting.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tower_singleflight_benches::scenes::{self, Effort, memory::Heap};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn heap() -> Heap {
    let stats = HEAP.stats();
    // Both count the growing and shrinking of blocks, too.
    let bytes = stats.bytes_allocated as i64 - stats.bytes_deallocated as i64;
    // A block that moves or grows is work of the allocator, too.
    Heap { allocations: stats.allocations + stats.reallocations, bytes }
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let before = args.len();
    args.retain(|arg| arg != "--quick");
    let effort = Effort { quick: args.len() < before };
    for scene in &args {
        match scene.as_str() {
            "memory" => scenes::memory::run(heap),
            "many" => scenes::many::run(effort, heap),
            other => panic!("no such scene: {other}"),
        }
    }
}
