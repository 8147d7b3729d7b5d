//! What of a head is given to other callers.

use http::{HeaderMap, HeaderName, header::CONNECTION};

use crate::headers::{HeaderList, members};

/// The response headers that are about one request and are not given to the
/// other callers of its flight. `ratelimit-*` stands for all names that begin
/// with `ratelimit-`.
///
/// Everything else is: `date`, `etag`, `location`, `link`, …
///
/// [`SingleFlightLayer::drop_header`](crate::SingleFlightLayer::drop_header) adds a name,
/// and [`keep_header`](crate::SingleFlightLayer::keep_header) takes one off.
pub const PER_REQUEST: &[&str] = &[
    "anthropic-ratelimit-*",
    "cf-ray",
    "ratelimit",
    "ratelimit-*",
    "request-id",
    // Only of responses that are shared although they have one: see `Share`.
    "set-cookie",
    "set-cookie2",
    "traceparent",
    "traceresponse",
    "tracestate",
    "x-amz-request-id",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-b3-*",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-rate-limit-*",
    "x-ratelimit-*",
    "x-request-id",
    "x-trace-id",
];

// `trailer` stays: servers send no trailers that were not announced.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Prepares heads for replay.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    hop_by_hop: HeaderList,
    per_request: HeaderList,
}

impl Default for Replay {
    fn default() -> Self {
        Self {
            hop_by_hop: HeaderList::published(HOP_BY_HOP),
            per_request: HeaderList::published(PER_REQUEST),
        }
    }
}

impl Replay {
    /// Drops this header too.
    #[must_use]
    pub(crate) fn dropping(mut self, name: &HeaderName) -> Self {
        self.per_request.insert(name);
        self
    }

    /// Keeps this header, also one of [`PER_REQUEST`].
    #[must_use]
    pub(crate) fn keeping(mut self, name: &HeaderName) -> Self {
        self.per_request.remove(name);
        self
    }

    /// What another caller may have of these headers, in their order.
    pub(crate) fn prepare(&self, headers: &HeaderMap) -> HeaderMap {
        let named: HeaderList = members(headers, &CONNECTION)
            .filter_map(|member| HeaderName::from_bytes(member).ok())
            .collect();
        let stays = |name: &HeaderName| {
            ![&self.hop_by_hop, &self.per_request, &named].iter().any(|list| list.contains(name))
        };
        // Built anew: removing from a map moves its last entry.
        let mut kept = HeaderMap::with_capacity(headers.keys_len());
        for (name, value) in headers.iter().filter(|(name, _)| stays(name)) {
            kept.append(name, value.clone());
        }
        kept
    }
}
