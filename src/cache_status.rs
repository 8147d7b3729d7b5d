//! What a response says of its way through the layer.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::key::Bypass;

// Checked when they are compiled, and not for each response.
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
const MISS: HeaderValue = HeaderValue::from_static("tower-singleflight; fwd=miss");
const COLLAPSED: HeaderValue = HeaderValue::from_static("tower-singleflight; fwd=miss; collapsed");
const HIT: HeaderValue = HeaderValue::from_static("tower-singleflight; hit");
const BYPASS: HeaderValue = HeaderValue::from_static("tower-singleflight; fwd=bypass");

/// How a response came about; the layer puts it into the extensions of every
/// response but those of its own failures, which have a
/// [`Failure`](crate::Failure) there, unless it is told
/// [not to](crate::SingleFlightLayer::flight_role).
///
/// ```
/// use http::Response;
/// use tower_singleflight::FlightRole;
///
/// fn was_shared<B>(response: &Response<B>) -> bool {
///     let role = response.extensions().get::<FlightRole>();
///     role.is_some_and(|role| role.is_shared())
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FlightRole {
    /// The caller's own request was run, on behalf of all.
    Owner,
    /// Another request in this process was run.
    FollowerLocal,
    /// A request in another process was run.
    FollowerRemote,
    /// The flight was over; its response was used again.
    Reused {
        /// How long ago the flight had ended.
        age: Duration,
    },
    /// The request took no part, for this reason.
    Bypass(Bypass),
}

impl FlightRole {
    /// A short name that never changes, fit for a label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::FollowerLocal => "follower_local",
            Self::FollowerRemote => "follower_remote",
            Self::Reused { .. } => "reused",
            Self::Bypass(_) => "bypass",
        }
    }

    /// Whether the response was made for another request.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::FollowerLocal | Self::FollowerRemote | Self::Reused { .. })
    }

    /// Adds what RFC 9211 has for this role, after what the caches nearer to
    /// the origin have said.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        let value = match self {
            Self::Owner => MISS,
            Self::FollowerLocal | Self::FollowerRemote => COLLAPSED,
            Self::Reused { .. } => HIT,
            Self::Bypass(_) => BYPASS,
        };
        // A map that is full stays as it is: this is a remark, not an answer.
        drop(headers.try_append(CACHE_STATUS, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_comes_first() {
        let mut headers = HeaderMap::new();
        headers.insert("cache-status", HeaderValue::from_static("origin; hit"));
        FlightRole::FollowerRemote.write(&mut headers);
        let all: Vec<_> = headers.get_all("cache-status").iter().collect();
        assert_eq!(all, ["origin; hit", "tower-singleflight; fwd=miss; collapsed"]);
        for (role, value) in [
            (FlightRole::Owner, "tower-singleflight; fwd=miss"),
            (FlightRole::FollowerLocal, "tower-singleflight; fwd=miss; collapsed"),
            (FlightRole::Reused { age: Duration::ZERO }, "tower-singleflight; hit"),
            (FlightRole::Bypass(Bypass::Range), "tower-singleflight; fwd=bypass"),
        ] {
            let mut headers = HeaderMap::new();
            role.write(&mut headers);
            assert_eq!(headers["cache-status"], value);
        }
    }
}
