//! Shadow mode: every request is run, and those who would have shared are compared.
//!
//! A caller's own run goes on by itself, seen by a [`Witness`](crate::witness::Witness).
//! Beside it the caller takes part in a real flight, under a key of its own kind, of which
//! the answer is the print of a run: the owner's. So that who meets whom, in the whole
//! fleet, is what it would have been, and each caller has the print of the answer that it
//! would have been given to hold against its own.

mod meeting;
mod prints;

pub(crate) use self::meeting::meet;
