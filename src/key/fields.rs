//! The header fields of one request: which forbid sharing, which are in its key.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::Bypass;
use crate::headers::{is_token, members_of};

pub(super) type Field<'a> = Option<(&'a HeaderName, &'a HeaderValue)>;

/// Room for the fields of a request: on the stack for all usual ones.
pub(super) struct Fields<'a> {
    headers: &'a HeaderMap,
    few: [Field<'a>; 32],
    many: Vec<Field<'a>>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(headers: &'a HeaderMap) -> Self {
        let many = match headers.len() {
            0..=32 => Vec::new(),
            count => vec![None; count],
        };
        Self { headers, few: [None; 32], many }
    }

    /// The fields that belong in the key, sorted by name, the values of one
    /// name in their order; or why the request is not shared.
    pub(super) fn pick(
        &mut self,
        in_key: impl Fn(&HeaderName) -> bool,
    ) -> Result<&[Field<'a>], Bypass> {
        let room = if self.many.is_empty() { &mut self.few[..] } else { &mut self.many };
        let mut count = 0;
        for (name, value) in self.headers {
            if let Some(reason) = bypasses(name, value) {
                return Err(reason);
            }
            if in_key(name) {
                room[count] = Some((name, value));
                count += 1;
            }
        }
        let picked = &mut room[..count];
        picked.sort_by_key(|field| field.map(|(name, _)| name.as_str()));
        Ok(picked)
    }
}

fn bypasses(name: &HeaderName, value: &HeaderValue) -> Option<Bypass> {
    let says = |token| members_of(value).any(|member| is_token(member, token));
    match name.as_str() {
        "upgrade" => Some(Bypass::Upgrade),
        "connection" if says("upgrade") => Some(Bypass::Upgrade),
        "range" => Some(Bypass::Range),
        "if-match" | "if-none-match" | "if-modified-since" | "if-unmodified-since" | "if-range" => {
            Some(Bypass::Conditional)
        }
        "cache-control" if says("no-store") => Some(Bypass::NoStore),
        // Its bytes mean something else to who reads them, and no name in the key says so.
        "transfer-encoding" if !members_of(value).all(|member| is_token(member, "chunked")) => {
            Some(Bypass::Body)
        }
        _ => None,
    }
}
