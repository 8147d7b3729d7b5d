//! A store that fails when it is told to.

mod heartbeat;
mod line;
#[cfg(test)]
mod push_tests;
mod session;
mod step;
mod store;
#[cfg(test)]
mod tests;

pub use self::{
    step::{Fault, Step},
    store::FaultStore,
};
