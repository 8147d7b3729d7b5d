//! What is needed over Redis: a server, a slow way to it, simulated processes, and
//! others who do the same.

mod delay;
mod node;
mod poll;
mod raw;
#[path = "../../../tests/support/redis_server.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod redis_server;
mod seen;
mod server;
mod sketch;

pub use self::{
    delay::Delay,
    node::{Node, ask, call},
    poll::Poll,
    raw::{Raw, cmd},
    seen::Seen,
    server::{Commands, Server},
    sketch::Sketch,
};
