//! May this response be shared?

use http::{
    HeaderMap, HeaderName, StatusCode,
    header::{CACHE_CONTROL, EXPIRES, SET_COOKIE},
};

use super::{Vary, vary};
use crate::headers::{is_token, members};

/// What may be done with a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Share {
    /// All callers of the flight may have it.
    All {
        /// So may later callers, within the reuse window.
        reusable: bool,
    },
    /// Nobody may have it but the caller whose request was run.
    Private(PrivateReason),
}

/// Why a response is private.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum PrivateReason {
    SetCookie,
    NoStore,
    Private,
    VaryStar,
    /// It depends on a header field that is not in the key.
    Vary,
    /// A status that belongs to one request: 1xx, 206, 304.
    Status,
}

impl PrivateReason {
    /// A short name that never changes, fit for a label.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SetCookie => "set_cookie",
            Self::NoStore => "no_store",
            Self::Private => "private",
            Self::VaryStar => "vary_star",
            Self::Vary => "vary",
            Self::Status => "status",
        }
    }
}

/// Decides from the head as inner gave it, before anything is taken from it.
///
/// `covers` says whether a request header is part of the key.
pub(crate) fn share(
    status: StatusCode,
    headers: &HeaderMap,
    covers: impl Fn(&HeaderName) -> bool,
) -> Share {
    match private(status, headers, covers) {
        Some(reason) => Share::Private(reason),
        None => Share::All { reusable: reusable(status, headers) },
    }
}

fn private(
    status: StatusCode,
    headers: &HeaderMap,
    covers: impl Fn(&HeaderName) -> bool,
) -> Option<PrivateReason> {
    if status.is_informational()
        || matches!(status, StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED)
    {
        return Some(PrivateReason::Status);
    }
    if headers.contains_key(SET_COOKIE) || headers.contains_key("set-cookie2") {
        return Some(PrivateReason::SetCookie);
    }
    for member in members(headers, &CACHE_CONTROL) {
        if is_token(member, "no-store") {
            return Some(PrivateReason::NoStore);
        }
        // With names of fields as well: what they hide is not ours to replay.
        if is_token(member, "private") {
            return Some(PrivateReason::Private);
        }
    }
    match vary(headers, covers) {
        Vary::Inside => None,
        Vary::Star => Some(PrivateReason::VaryStar),
        Vary::Outside(_) => Some(PrivateReason::Vary),
    }
}

/// Freshness matters to those who come later, never to those who waited.
fn reusable(status: StatusCode, headers: &HeaderMap) -> bool {
    let mut stale = status.is_server_error() || is_grpc_error(headers);
    let mut limited = false;
    for member in members(headers, &CACHE_CONTROL) {
        stale |= is_token(member, "no-cache");
        if is_token(member, "max-age") || is_token(member, "s-maxage") {
            limited = true;
            stale |= !positive(member);
        }
    }
    // An `expires` alone is taken for passed: nothing here reads dates.
    !stale && (limited || !headers.contains_key(EXPIRES))
}

/// Whether gRPC says, in headers or in trailers, that a call failed.
pub(crate) fn is_grpc_error(fields: &HeaderMap) -> bool {
    fields.get("grpc-status").is_some_and(|status| status != "0")
}

fn positive(member: &[u8]) -> bool {
    let value = member.splitn(2, |byte| *byte == b'=').nth(1).unwrap_or_default();
    let digits = value.trim_ascii().iter().filter(|byte| **byte != b'"');
    digits.clone().all(u8::is_ascii_digit) && digits.into_iter().any(|digit| *digit != b'0')
}
