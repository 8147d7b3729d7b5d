//! What HTTP says of a response: may it be shared, and what of its head may be
//! given to another caller.

mod replay;
mod share;
mod vary;

#[cfg(test)]
mod tests;

pub use self::replay::PER_REQUEST;
pub(crate) use self::{
    replay::Replay,
    share::{Share, is_grpc_error, share},
    vary::{Vary, vary},
};
