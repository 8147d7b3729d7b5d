//! The layer over services whose response is a value.
//!
//! Tests are named for the rows of the list of cases. All but those on a real server
//! run on a paused clock.

mod errors;
#[cfg(feature = "redis")]
#[path = "../support/log.rs"]
mod log;
mod misfits;
#[cfg(feature = "redis")]
// As it is printed on a page.
#[rustfmt::skip]
mod moved;
#[cfg(feature = "redis")]
mod names;
mod readiness;
#[cfg(feature = "redis")]
mod redis;
mod shadow;
mod sharing;
mod stacks;
mod support;
