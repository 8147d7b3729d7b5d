//! `vary`: on which request headers a response depends.

use http::{HeaderMap, HeaderName, header::VARY};

use crate::headers::members;

/// What a `vary` means for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Vary {
    /// Requests with one key get one answer.
    Inside,
    /// Every request gets its own answer.
    Star,
    /// The answer depends on these headers too, and the key does not have them.
    Outside(Vec<HeaderName>),
}

/// Reads `vary`; `covers` says whether a request header is part of the key.
pub(crate) fn vary(headers: &HeaderMap, covers: impl Fn(&HeaderName) -> bool) -> Vary {
    let mut outside = Vec::new();
    for member in members(headers, &VARY) {
        match HeaderName::from_bytes(member) {
            // What cannot be read cannot be compared.
            _ if member == b"*" => return Vary::Star,
            Err(_) => return Vary::Star,
            Ok(name) if covers(&name) => {}
            Ok(name) => outside.push(name),
        }
    }
    if outside.is_empty() { Vary::Inside } else { Vary::Outside(outside) }
}
