//! What HTTP says of a response: may it be shared, and what of its head may be
//! given to another caller.

mod fresh;
mod replay;
mod share;
mod vary;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    fresh::{fresh_for, grow_older},
    replay::Replay,
    share::{Policy, is_coded_for_transfer, is_grpc_error, is_of_one_request},
    vary::{Vary, vary},
};
pub use self::{
    replay::PER_REQUEST,
    share::{DefaultSharePolicy, ResponseView, Share, SharePolicy},
};
