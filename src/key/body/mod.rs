//! Keys over bodies: the body of a request is read before it joins a flight, and
//! given back so that inner sees what was sent.

mod body_key;
mod form;
mod read;
mod read_body;
#[cfg(test)]
mod tests;

pub use self::{
    body_key::{BodyKey, Json, Raw},
    read_body::ReadBody,
};
pub(super) use self::{
    form::{Form, write},
    read::{BODY_LIMIT, read_request},
};
