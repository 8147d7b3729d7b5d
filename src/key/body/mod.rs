//! Keys over bodies: the body of a request is read before it joins a flight, and
//! given back so that inner sees what was sent.

mod body_key;
mod form;
mod read;
mod read_body;
#[cfg(test)]
mod tests;

pub(super) use self::form::Form;
pub use self::{
    body_key::{BodyKey, Json, Raw},
    read_body::ReadBody,
};
