//! The lease: an owner's right to run, and the keeper that renews it.
//!
//! [`OwnerGuard`] ties the running inner future, its heartbeat and the store's
//! lease together. [`Keeper`] decides what is sent and when, without clock or I/O;
//! [`KeeperHandle`] drives it, on a thread for stores behind a network, on a task
//! for those in memory.

mod cell;
mod guard;
mod handle;
mod keeper;
mod permit;
mod probe;
#[cfg(all(test, shuttle))]
mod races;
mod terms;

pub(crate) use self::{
    cell::{Lease, LeaseEnd},
    guard::{OwnerGuard, WatchGuard},
    handle::KeeperHandle,
    keeper::Keeper,
    permit::Permit,
    probe::Probe,
    terms::Terms,
};
