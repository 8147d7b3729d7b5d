//! Codecs: from a response to frames and back.
//!
//! A layer needs to know of a response what may be shared of it and how it is
//! given to others. [`HttpCodec`], the default, knows `http::Response`;
//! [`ValueCodec`] knows every value that serde can write and read back.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tower::{Layer, ServiceExt, service_fn};
//! use tower_singleflight::{HttpKey, SingleFlightLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower::BoxError> {
//! let answers = SingleFlightLayer::new(HttpKey::new()).layer(service_fn(
//!     async |_: Request<String>| Ok::<_, Infallible>(Response::new("42".to_owned())),
//! ));
//! let answer = answers.oneshot(Request::get("http://a.test/").body(String::new())?).await?;
//! assert_eq!(answer.headers()["cache-status"], "tower-singleflight; fwd=miss");
//! # Ok(()) }
//! ```
//!
//! What of a response is its own caller's, and what is said of the layer's part in it, is up
//! to the codec:
//!
//! ```
//! use axum::body::Body;
//! use http::HeaderName;
//! use tower_singleflight::{HttpCodec, HttpKey, SingleFlightLayer};
//!
//! let codec = <HttpCodec>::default()
//!     // Each run has its own; who did not ask for that run does not get it.
//!     .drop_header(HeaderName::from_static("x-run-id"))
//!     .cache_status(false)
//!     // A caller whose run is lost can own again, and not only follow.
//!     .repeat_with(Body::empty);
//! let layer = SingleFlightLayer::with_codec(HttpKey::new(), codec);
//! ```

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use http_body::Body;
use tower::BoxError;

use crate::{
    body::{Replay, Resumed},
    cache_status::FlightRole,
    error::Failure,
    frame::Head,
};

mod asked;
mod flight_error;
mod gist;
mod grpc;
mod http_codec;
mod value_codec;

pub use self::{
    asked::Asked,
    flight_error::FlightError,
    http_codec::{HttpCodec, Once, Repeat, RepeatBody},
    value_codec::ValueCodec,
};

/// Turns responses into frames, and frames into responses.
///
/// `Req` and `Res` are inner's request and response, `E` its error.
pub trait Codec<Req, Res, E>: Clone + Send + Sync + 'static {
    /// What callers of the layer get.
    type Response;
    /// What they get where inner's readiness or call fails.
    type Error;
    /// The body of an inner response: where its frames come from.
    type Body: Body<Error: Into<BoxError>> + Send + 'static;
    /// What of an inner response stays with the caller whose request was run.
    type Extra: Send + 'static;

    /// Whether responses may be handed out before they are whole. By default they may.
    fn is_streamed(&self) -> bool {
        true
    }

    /// Whether the request has a body that is not at its end. By default it has none.
    fn has_body(&self, request: &Req) -> bool {
        let _ = request;
        false
    }

    /// Prepares a request to be run for a flight, under this token if there is one. By
    /// default there is nothing to prepare.
    fn begin(&self, request: &mut Req, token: Option<FlightToken>) {
        let _ = (request, token);
    }

    /// Whether the response to this request comes without the body that its head speaks
    /// of. By default it does not.
    fn is_head_only(&self, request: &Req) -> bool {
        let _ = request;
        false
    }

    /// A second request like this one, for a run that is lost; none where the request
    /// cannot be repeated. Asked before [`begin`](Self::begin). By default none can.
    fn repeat(&self, request: &Req) -> Option<Req> {
        let _ = request;
        None
    }

    /// Whether a request says itself that it takes no part in sharing. By default none
    /// does.
    fn is_kept_out(&self, request: &Req) -> bool {
        let _ = request;
        false
    }

    /// The header fields of a request, by which callers of one key are told apart where
    /// a response [depends on more of them](Judgement::Shared::varies). By default there
    /// are none, and such a response is its own caller's alone.
    fn headers<'a>(&self, request: &'a Req) -> Option<&'a HeaderMap> {
        let _ = request;
        None
    }

    /// Decides, before the body is touched, whether others may have this response.
    fn judge(&self, response: &Res, asked: &Asked<'_>) -> Judgement;

    /// Whether a response that may be reused still may, now that its trailers are known.
    /// By default it may.
    fn is_reusable_after(&self, trailers: &HeaderMap) -> bool {
        let _ = trailers;
        true
    }

    /// Whether a body that ended without an error, and with these trailers, is all of
    /// its response. Where it is not, it is treated as one that broke off. By default
    /// it is.
    fn is_complete(&self, head: &Head, trailers: Option<&HeaderMap>) -> bool {
        let _ = (head, trailers);
        true
    }

    /// Takes a response apart: the head that others get, what stays with its own
    /// caller, and the body.
    ///
    /// # Errors
    ///
    /// The response, where it has no form for others: it is its own caller's alone.
    fn open(&self, response: Res) -> Result<Opened<Self::Extra, Self::Body>, Res>;

    /// The response of a flight, for one of its callers; `extra` is there for the
    /// caller whose request was run.
    ///
    /// `None` where these frames are not the form of any response: then the caller's
    /// own request is run, or it gets a failure if that was used up already.
    fn replay(
        &self,
        head: &Head,
        extra: Option<Self::Extra>,
        body: Replay,
        role: FlightRole,
    ) -> Option<Self::Response>;

    /// A response that was taken apart, and is its own caller's alone all the same.
    fn resume(
        &self,
        head: &Head,
        extra: Self::Extra,
        body: Resumed<Self::Body>,
        role: FlightRole,
    ) -> Self::Response;

    /// A response that is its caller's alone.
    fn pass(&self, response: Res, role: FlightRole) -> Self::Response;

    /// An error of inner, for the caller whose request it was.
    fn error(&self, error: E) -> Self::Error;

    /// A failure of a shared run, for those whose request it was not.
    ///
    /// # Errors
    ///
    /// Where the codec gives failures as errors.
    fn failure(&self, failure: Failure) -> Result<Self::Response, Self::Error>;

    /// The text of an inner error, for followers.
    fn describe(&self, error: &E) -> String;
}

/// Whether a response may be shared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Judgement {
    /// With the callers of the flight.
    Shared {
        /// For how long callers may have it who come after the flight has ended, at
        /// most; the layer's reuse setting is another bound. Zero: they may not.
        reuse: Duration,
        /// The request headers outside the key that it depends on: it is shared with
        /// those callers whose requests have the same values of them.
        varies: Vec<HeaderName>,
    },
    /// With none but its own caller.
    Private,
}

impl Judgement {
    /// Shared with all, for as long as the settings allow.
    #[must_use]
    pub const fn shared() -> Self {
        Self::Shared { reuse: Duration::MAX, varies: Vec::new() }
    }
}

/// A response in parts.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "codecs make it")]
pub struct Opened<X, B> {
    /// The head that others get.
    pub head: Head,
    /// The length that the head promises for the body.
    pub promised: Option<u64>,
    /// What stays with the caller whose request was run.
    pub extra: X,
    /// The body.
    pub body: B,
}

/// The fencing token of the flight that a request is run for.
///
/// The layer puts it into the request's extensions, so that a handler can fence
/// its own writes: a database that refuses a smaller token than it has seen keeps
/// out what an owner does after it was superseded. Runs without a lease carry none.
///
/// ```
/// use http::Request;
/// use tower_singleflight::FlightToken;
///
/// fn token<B>(request: &Request<B>) -> Option<u64> {
///     request.extensions().get::<FlightToken>().map(|token| token.get())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlightToken(u64);

impl FlightToken {
    pub(crate) fn new(token: u64) -> Self {
        Self(token)
    }

    /// The number: greater than that of every earlier owner of the key.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}
