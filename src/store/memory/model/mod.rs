//! A model of the store protocol, and a search of all that can happen in it.
//!
//! **Real code.** What the store does is the memory store's own [`Record`](super::record):
//! `shop` calls `join`, `renew`, `finish`, `abandon`, `append`, `read`, `fetch`, `release`,
//! `leave`, `forget` and `purge` as the sessions do. The scripts for a server are held to
//! the same answers by the conformance tests, not here.
//!
//! **Written beside it.** What a process does (`ask`, `follow`, `own`, `alone`, `tell`; their
//! heads name the functions of `flight` and `lease` that they mirror), one driver at a time
//! for each process, in ticks of a third of a lease. What goes between the two is late,
//! lost or repeated, by the faults in `rules`.
//!
//! **Searched.** `checker` visits each state once, breadth first, and then asks whether
//! each way on without faults leads to where nobody waits. `judge` holds the rules that are
//! looked at in each step. `print` says what is one state.
//!
//! **Drift** of the node rules from the real drivers is looked for in one way. `conduct` is
//! a table of rules on what a process may say after what it has said and heard. Random
//! walks through the model (`walk`) and real drivers over a memory store with faults at
//! random (`real`, `overheard`) are both held to it, and each step of a real driver's
//! session, as the pair of what it heard last and what it asked next, must be one that the
//! walks have seen as well (`moves`). So a call of the real driver that the node rules do
//! not make there is found, and one that breaks the table; what only the model does is
//! allowed, and printed. Times, pushes that lead to no call, the keeper's own order and
//! what callers get are not compared.
//!
//! **Not in the model:** drains, quarantine beyond its first answer, answers from the reuse
//! window, answers too large to be shared, windows of a stream, `listen`, users of
//! `FinishLocally` or `StoreDown::Reject`, requests that cannot be run twice, records that
//! cannot be read, the new flight beside one that was forgotten, more than one key, clocks
//! of unequal rate.

#![expect(clippy::needless_pass_by_value, reason = "an answer is taken in once")]

mod alone;
mod ask;
mod checker;
mod conduct;
mod faults;
mod follow;
mod heard;
mod judge;
mod moves;
mod node;
mod overheard;
mod own;
mod print;
mod real;
mod rules;
mod shop;
mod step;
mod tell;
mod tests;
mod walk;
mod wire;
mod world;
