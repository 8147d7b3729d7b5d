use std::{fmt, time::Duration};

/// The answer of a flight that has ended, as a process may hold it: see
/// [`Session::hold`](super::Session::hold).
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "stores make it")]
pub struct Held {
    /// How long ago the flight ended, and no less.
    pub age: Duration,
    /// How old the answer may be for a fresh caller, by its own word.
    pub fresh: Duration,
    /// Says for how long the store has nothing else to say of it.
    pub vigil: Box<dyn Vigil>,
}

/// Watches over a record in the store. Dropped, it watches no longer.
pub trait Vigil: fmt::Debug + Send + Sync {
    /// Whether the record is known to be as it was. Asked by every caller that could have
    /// the answer: it must neither wait nor do any I/O. Once false, it stays so.
    fn stands(&self) -> bool;
}
