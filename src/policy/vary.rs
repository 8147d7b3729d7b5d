//! `vary`: on which request headers a response depends.

use http::{
    HeaderMap, HeaderName,
    header::{HOST, VARY},
};

use crate::headers::members;

/// What a `vary` means for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Vary {
    /// It depends on these headers too, and the key does not have them. None: requests
    /// with one key get one answer.
    Outside(Vec<HeaderName>),
    /// Every request gets its own answer, or it cannot be known which do not.
    Star,
}

/// Reads `vary`; `covers` says whether a request header is part of the key.
pub(crate) fn vary(headers: &HeaderMap, covers: &dyn Fn(&HeaderName) -> bool) -> Vary {
    let mut outside = Vec::new();
    for member in members(headers, &VARY) {
        match HeaderName::from_bytes(member) {
            // What cannot be read cannot be compared.
            _ if member == b"*" => return Vary::Star,
            Err(_) => return Vary::Star,
            Ok(name) if covers(&name) => {}
            // On HTTP/2 it is in no header.
            Ok(name) if name == HOST => return Vary::Star,
            Ok(name) => outside.push(name),
        }
    }
    // One digest for one set of names, in whatever order they were named.
    outside.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    outside.dedup();
    Vary::Outside(outside)
}
