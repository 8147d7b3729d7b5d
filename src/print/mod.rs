//! What of an answer is compared in shadow mode: digests of what others would have been
//! given of it. Plain data, and what takes it of a body that goes by.

mod difference;
mod digests;
mod moment;
mod printer;

pub(crate) use self::{
    difference::Difference,
    digests::{Answer, Print},
    moment::Moment,
    printer::{Printer, Seen},
};
