//! What the examples that serve have in common.

mod args;
mod end;
mod listen;

pub(crate) use self::{args::Args, end::told_to_end, listen::listen};
