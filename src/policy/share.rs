//! May this response be shared?

use std::{fmt, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderName, StatusCode,
    header::{CACHE_CONTROL, SET_COOKIE, TRANSFER_ENCODING},
};

use crate::headers::{is_token, members};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// With whom a response is shared: what a [`SharePolicy`] says of it, and what inner
/// says of one response by putting this into its extensions.
///
/// What inner says goes before the policy, and is taken off the response before it
/// leaves the layer.
///
/// ```
/// use axum::{Extension, response::IntoResponse};
/// use tower_singleflight::Share;
///
/// async fn lottery() -> impl IntoResponse {
///     // Everybody gets a number of their own.
///     (Extension(Share::Never), "42")
/// }
/// ```
///
/// # What stays as it is
///
/// Neither can share what does not fit other requests by its form: a response with a
/// status of 1xx, 206 or 304, one with `vary: *`, one that is coded for its own connection
/// (a `transfer-encoding` beyond `chunked`), or, with callers whose values differ, one with
/// a `vary` on headers outside the key. A 5xx and a failed gRPC call are given to those who
/// waited, and to nobody later.
///
/// `set-cookie` is among the headers that others do not get (see
/// [`PER_REQUEST`](crate::PER_REQUEST)): of a response that is shared by such a word,
/// the cookie goes to its own caller alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Share {
    /// With nobody: it is its own caller's, and those who wait run their own requests, at
    /// once.
    Never,
    /// With all callers of the flight, and with later ones for as long as both the
    /// [reuse setting](crate::ConfigBuilder::reuse) and the response's own headers
    /// (`cache-control`, `expires`, `age`, `date`) allow.
    Always,
    /// With all callers of the flight, and with later ones for so long, whatever its
    /// headers say; not longer than the reuse setting. Zero: with those who waited, and
    /// not later.
    For(Duration),
}

/// Decides with whom responses are shared, by their heads.
///
/// It is asked once for every run, as soon as the head is there and before the body
/// is touched. It must be quick. Set by
/// [`SingleFlightLayer::share_policy`](crate::SingleFlightLayer::share_policy); functions are policies:
///
/// ```
/// use http::StatusCode;
/// use tower_singleflight::{
///     DefaultSharePolicy, HttpKey, ResponseView, Share, SharePolicy, SingleFlightLayer,
/// };
///
/// let layer = SingleFlightLayer::new(HttpKey::new()).share_policy(|response: ResponseView<'_>| {
///     match response.status() {
///         // Each caller may try its own luck.
///         StatusCode::TOO_MANY_REQUESTS => Share::Never,
///         _ => DefaultSharePolicy.share(response),
///     }
/// });
/// ```
pub trait SharePolicy: Send + Sync + 'static {
    /// With whom this response is shared. See [`Share`] for what no policy changes.
    fn share(&self, response: ResponseView<'_>) -> Share;
}

impl<F> SharePolicy for F
where
    F: Fn(ResponseView<'_>) -> Share + Send + Sync + 'static,
{
    fn share(&self, response: ResponseView<'_>) -> Share {
        self(response)
    }
}

/// The policy that a layer has unless it is given another.
///
/// Not shared are responses with `set-cookie`, with `cache-control: no-store`, and with
/// `private`, unless the request carried a part that the key has as an
/// [identity](crate::HttpKey::identity): then all callers of the flight are one and the
/// same to the service.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "it has nothing to set")]
pub struct DefaultSharePolicy;

impl SharePolicy for DefaultSharePolicy {
    fn share(&self, response: ResponseView<'_>) -> Share {
        match private(response) {
            Some(reason) => {
                tracing::debug!(reason, "the response is not shared");
                Share::Never
            }
            None => Share::Always,
        }
    }
}

fn private(response: ResponseView<'_>) -> Option<&'static str> {
    let headers = response.headers();
    if headers.contains_key(SET_COOKIE) || headers.contains_key("set-cookie2") {
        return Some("set_cookie");
    }
    let says = |token| members(headers, &CACHE_CONTROL).any(|member| is_token(member, token));
    if says("no-store") {
        return Some("no_store");
    }
    // With names of fields as well: what they hide is not ours to replay.
    (says("private") && !response.is_identified()).then_some("private")
}

/// A response as a [`SharePolicy`] sees it: without its body, as inner gave it.
#[derive(Clone, Copy)]
pub struct ResponseView<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
    identified: bool,
}

impl<'a> ResponseView<'a> {
    /// Looks at a head; `identified` is what [`is_identified`](Self::is_identified) says.
    #[must_use]
    pub const fn new(status: StatusCode, headers: &'a HeaderMap, identified: bool) -> Self {
        Self { status, headers, identified }
    }

    /// The status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The header fields.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Whether the request carried a part that its key has as an
    /// [identity](crate::HttpKey::identity), so that no other identity shares the flight.
    #[must_use]
    pub const fn is_identified(&self) -> bool {
        self.identified
    }
}

impl fmt::Debug for ResponseView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseView").field("status", &self.status).finish_non_exhaustive()
    }
}

/// A policy, or the default one, which costs nothing to clone.
#[derive(Clone, Default)]
pub(crate) struct Policy(Option<Arc<dyn SharePolicy>>);

impl Policy {
    pub(crate) fn new(policy: impl SharePolicy) -> Self {
        Self(Some(Arc::new(policy)))
    }

    pub(crate) fn share(&self, response: ResponseView<'_>) -> Share {
        match &self.0 {
            Some(policy) => policy.share(response),
            None => DefaultSharePolicy.share(response),
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Policy(..)" } else { "Policy(default)" })
    }
}

/// Whether a status belongs to one request, whatever anybody says.
pub(crate) fn is_of_one_request(status: StatusCode) -> bool {
    status.is_informational()
        || matches!(status, StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Whether the bytes of a body are not the answer's own: they are coded for one connection,
/// and whoever may not be told so cannot read them.
pub(crate) fn is_coded_for_transfer(headers: &HeaderMap) -> bool {
    members(headers, &TRANSFER_ENCODING).any(|coding| !is_token(coding, "chunked"))
}

/// Whether gRPC says, in headers or in trailers, that a call failed.
pub(crate) fn is_grpc_error(fields: &HeaderMap) -> bool {
    fields.get(GRPC_STATUS).is_some_and(|status| status != "0")
}
