//! What a call in one process may cost, in counts that no load changes: allocations, bytes,
//! copies, wakes. Who changes a number here for the worse says why.

mod allocations;
mod bodies;
mod memory;
mod support;
mod wakes;
