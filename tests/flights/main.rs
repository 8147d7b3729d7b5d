//! Flights on the memory store under a paused clock: who shares, who runs, who
//! takes over. Several layers on one store are so many simulated processes.

mod buffered;
mod crowds;
mod forged;
mod forget;
mod handover;
mod held;
mod herd;
mod histories;
#[path = "../support/history/mod.rs"]
mod history;
#[path = "../support/history/tests.rs"]
mod history_tests;
mod leaving;
mod limits;
mod line;
mod live_faults;
mod outage;
mod outcomes;
mod pace;
mod phantoms;
mod probes;
mod quarantine;
mod races;
mod release;
mod rig;
mod selected;
mod sharing;
mod stops;
mod streams;
mod switches;
mod tap;
mod unreadable;
mod whose;
