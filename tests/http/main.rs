//! The layer as HTTP services and their clients see it.
//!
//! Tests are named for the rows of the list of cases. Where real clients matter,
//! servers listen on loopback and runs wait at a [`support::Gate`]; all else runs on
//! a paused clock.

#[cfg(feature = "redis")]
#[path = "../support/mod.rs"]
mod machine;
mod support;

#[path = "../support/log.rs"]
mod log;

#[cfg(feature = "redis")]
mod alike;
#[cfg(feature = "redis")]
mod any_keys;
mod body_keys;
mod body_steps;
mod cancel;
mod client;
mod debug;
mod embedded;
mod failing_bodies;
mod failures;
#[cfg(feature = "redis")]
mod fleet;
mod frameworks;
mod hang_ups;
mod heads;
mod hosts;
mod keys;
mod large_bodies;
mod lengths;
mod methods;
mod net;
#[cfg(feature = "test-util")]
mod outage;
mod outcomes;
mod panics;
mod policies;
mod posts;
mod privacy;
mod read_bodies;
mod readiness;
mod request_bodies;
mod script;
#[cfg(feature = "redis")]
mod secrets;
mod seen;
mod shadow;
mod status;
#[cfg(feature = "test-util")]
mod store;
mod types;
mod upgrades;
mod varying;
