//! What a lab answers.

use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// A whole response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// When its last byte came.
    pub(crate) at: Instant,
}

impl Answer {
    /// What `Cache-Status` says of the caller's part.
    pub(crate) fn role(&self) -> &'static str {
        role(&self.headers)
    }

    /// What is the same for all callers of one flight.
    pub(crate) fn shared(&self) -> (StatusCode, Vec<(String, Vec<u8>)>, Bytes) {
        // The server adds the date to each response, and the layer the role.
        let own = |name: &str| matches!(name, "date" | "cache-status");
        let fields = self.headers.iter().filter(|(name, _)| !own(name.as_str()));
        let mut fields: Vec<_> =
            fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
        // In a stable way: the order of several of one name counts.
        fields.sort_by(|one, other| one.0.cmp(&other.0));
        (self.status, fields, self.body.clone())
    }

    /// The run's name and process, which the body begins with.
    pub(crate) fn run(&self) -> String {
        let end = self.body.iter().position(|&byte| byte == b'\n').unwrap_or(0);
        String::from_utf8_lossy(&self.body[..end]).into_owned()
    }
}

/// What `Cache-Status` says of a caller's part.
pub(super) fn role(headers: &HeaderMap) -> &'static str {
    match headers.get("cache-status").map_or(&b""[..], |value| value.as_bytes()) {
        b"tower-singleflight; fwd=miss" => "owner",
        b"tower-singleflight; fwd=miss; collapsed" => "follower",
        b"tower-singleflight; fwd=bypass" => "bypass",
        b"tower-singleflight; hit" => "reused",
        _ => "none",
    }
}

/// All of these are one run's answer: the first of them.
pub(crate) fn one_answer(answers: &[Answer]) -> &Answer {
    let first = answers.first().expect("an answer");
    assert!(!first.body.is_empty());
    for answer in answers {
        assert!(answer.shared() == first.shared(), "{answer:?} is not {first:?}");
    }
    first
}
