//! What the benches and the harness share: the work, the peers that do the same work,
//! and the ways to measure it.
//!
//! Everything here panics where something goes wrong: a measurement that failed is none.

pub mod fleet;
pub mod peers;
pub mod report;
pub mod row;
pub mod sample;
pub mod scenes;
pub mod work;
