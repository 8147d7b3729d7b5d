//! Canonical JSON: one text for all that have the same value.
//!
//! Members are in the order of RFC 8785, strings are written in its way, numbers
//! stay as they are. What is doubtful has no canonical form.

mod order;
mod pointer;
#[cfg(test)]
mod properties;
mod scan;
#[cfg(test)]
mod tests;

pub use self::pointer::PointerError;
pub(super) use self::{pointer::Pointers, scan::scan};
