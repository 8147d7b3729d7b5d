//! What was measured, made into a page: a table of goals, plots, and the times of the
//! criterion benches.

mod page;
mod read;
mod svg;
mod times;

pub use self::{page::write, read::Results, times::Time};
