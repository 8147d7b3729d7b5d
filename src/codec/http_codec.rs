use std::{
    fmt,
    time::{Duration, SystemTime},
};

use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, TRANSFER_ENCODING},
};
use http_body::Body;
use tower::BoxError;

use super::{Asked, Codec, FlightToken, Judgement, Opened, grpc, value_codec};
use crate::{
    body::{Replay, ResponseBody, Resumed},
    cache_status::FlightRole,
    error::{Failure, FailureKind},
    frame::Head,
    policy::{self, Policy, ResponseView, Share, SharePolicy, Vary},
    switch::NoShare,
};

/// The codec of HTTP services.
///
/// The layer's error is inner's, so that axum (`Infallible`) and tonic take the
/// layer as it is; a [`Failure`] becomes a response, 504 where a time limit was
/// passed and else 503 with `retry-after`, and is found in its extensions. With
/// [`grpc`](Self::grpc) it becomes a gRPC status.
///
/// `R` says whether a request without a body can be made again; see
/// [`SingleFlightLayer::repeat_with`](crate::SingleFlightLayer::repeat_with).
#[derive(Clone, Debug, Default)]
pub struct HttpCodec<R = Once> {
    replay: policy::Replay,
    policy: Policy,
    repeat: R,
    grpc: bool,
    // Said in the negative, so that the default is the default.
    silent: bool,
    unmarked: bool,
}

/// How an empty body is made.
pub trait RepeatBody<B> {
    /// An empty body, where it is known how.
    fn empty(&self) -> Option<B>;
}

/// No request is made again.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Once;

impl<B> RepeatBody<B> for Once {
    fn empty(&self) -> Option<B> {
        None
    }
}

/// Requests without a body are made again with an empty one.
#[derive(Clone, Copy)]
pub struct Repeat<F>(F);

impl<B, F: Fn() -> B> RepeatBody<B> for Repeat<F> {
    fn empty(&self) -> Option<B> {
        Some((self.0)())
    }
}

impl<F> fmt::Debug for Repeat<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Repeat(..)")
    }
}

impl<R> HttpCodec<R> {
    /// Makes requests without a body again, with the empty body that `empty` gives.
    #[must_use]
    pub fn repeat_with<F>(self, empty: F) -> HttpCodec<Repeat<F>> {
        let Self { replay, policy, repeat: _, grpc, silent, unmarked } = self;
        HttpCodec { replay, policy, repeat: Repeat(empty), grpc, silent, unmarked }
    }

    /// Answers with gRPC statuses where the layer fails a caller: `DEADLINE_EXCEEDED`
    /// where a time limit was passed, and else `UNAVAILABLE`. A gRPC answer that ends
    /// without a status is one that broke off.
    #[must_use]
    pub fn grpc(self) -> Self {
        Self { grpc: true, ..self }
    }

    /// Decides with whom responses are shared. Default: [`DefaultSharePolicy`].
    ///
    /// [`DefaultSharePolicy`]: crate::DefaultSharePolicy
    #[must_use]
    pub fn share_policy(self, policy: impl SharePolicy) -> Self {
        Self { policy: Policy::new(policy), ..self }
    }

    /// Gives this response header to its own caller only, as those of
    /// [`PER_REQUEST`](crate::PER_REQUEST).
    #[must_use]
    pub fn drop_header(self, name: impl Into<HeaderName>) -> Self {
        Self { replay: self.replay.dropping(&name.into()), ..self }
    }

    /// Gives this response header to all callers, also if it is one of
    /// [`PER_REQUEST`](crate::PER_REQUEST).
    #[must_use]
    pub fn keep_header(self, name: impl Into<HeaderName>) -> Self {
        Self { replay: self.replay.keeping(&name.into()), ..self }
    }

    /// Whether responses say in `cache-status` (RFC 9211) how they came about. What
    /// others have said there stays in any case. Default: they do.
    #[must_use]
    pub fn cache_status(self, told: bool) -> Self {
        Self { silent: !told, ..self }
    }

    /// Whether responses have a [`FlightRole`] in their extensions. Default: they have.
    #[must_use]
    pub fn flight_role(self, told: bool) -> Self {
        Self { unmarked: !told, ..self }
    }

    fn mark<B>(&self, response: &mut Response<B>, role: FlightRole) {
        if !self.silent {
            role.write(response.headers_mut());
        }
        if !self.unmarked {
            response.extensions_mut().insert(role);
        }
    }
}

/// What stays with the caller whose request was run.
pub struct Extra {
    version: Version,
    headers: HeaderMap,
    extensions: Extensions,
}

impl fmt::Debug for Extra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extra").finish_non_exhaustive()
    }
}

impl<R, ReqB, ResB, E> Codec<Request<ReqB>, Response<ResB>, E> for HttpCodec<R>
where
    R: RepeatBody<ReqB> + Clone + Send + Sync + 'static,
    ReqB: Body,
    ResB: Body<Error: Into<BoxError>> + Send + 'static,
    E: fmt::Display,
{
    type Response = Response<ResponseBody<ResB>>;
    type Error = E;
    type Body = ResB;
    type Extra = Extra;

    fn has_body(&self, request: &Request<ReqB>) -> bool {
        !request.body().is_end_stream()
    }

    fn begin(&self, request: &mut Request<ReqB>, token: Option<FlightToken>) {
        if let Some(token) = token {
            request.extensions_mut().insert(token);
        }
        // The time limit of one caller is none of the others'.
        request.headers_mut().remove(grpc::TIMEOUT);
    }

    fn is_head_only(&self, request: &Request<ReqB>) -> bool {
        *request.method() == Method::HEAD
    }

    fn repeat(&self, request: &Request<ReqB>) -> Option<Request<ReqB>> {
        let empty = request.body().is_end_stream().then(|| self.repeat.empty()).flatten()?;
        let mut again = Request::new(empty);
        again.method_mut().clone_from(request.method());
        again.uri_mut().clone_from(request.uri());
        *again.version_mut() = request.version();
        again.headers_mut().clone_from(request.headers());
        again.extensions_mut().clone_from(request.extensions());
        Some(again)
    }

    fn is_kept_out(&self, request: &Request<ReqB>) -> bool {
        request.extensions().get::<NoShare>().is_some()
    }

    fn headers<'a>(&self, request: &'a Request<ReqB>) -> Option<&'a HeaderMap> {
        Some(request.headers())
    }

    fn judge(&self, response: &Response<ResB>, asked: &Asked<'_>) -> Judgement {
        let (status, headers) = (response.status(), response.headers());
        if policy::is_of_one_request(status) || policy::is_coded_for_transfer(headers) {
            return Judgement::Private;
        }
        let share = match response.extensions().get::<Share>() {
            Some(share) => *share,
            None => self.policy.share(ResponseView::new(status, headers, asked.is_identified())),
        };
        if share == Share::Never {
            return Judgement::Private;
        }
        let Vary::Outside(varies) = policy::vary(headers, &|name| asked.covers(name)) else {
            tracing::debug!("the response is not shared: it varies by all");
            return Judgement::Private;
        };
        let reuse = match share {
            _ if !asked.is_for_reuse()
                || status.is_server_error()
                || policy::is_grpc_error(headers) =>
            {
                Duration::ZERO
            }
            Share::For(time) => time,
            _ => policy::fresh_for(headers, SystemTime::now()).unwrap_or(Duration::MAX),
        };
        Judgement::Shared { reuse, varies }
    }

    fn is_reusable_after(&self, trailers: &HeaderMap) -> bool {
        !policy::is_grpc_error(trailers)
    }

    fn is_complete(&self, head: &Head, trailers: Option<&HeaderMap>) -> bool {
        !self.grpc || grpc::is_complete(head, trailers)
    }

    fn open(&self, response: Response<ResB>) -> Result<Opened<Extra, ResB>, Response<ResB>> {
        let (mut parts, body) = response.into_parts();
        parts.extensions.remove::<Share>();
        let head = Head { status: parts.status, headers: self.replay.prepare(&parts.headers) };
        let bodiless = parts.status == StatusCode::NO_CONTENT;
        let promised = (!bodiless).then(|| length(&parts.headers)).flatten();
        let (version, headers, extensions) = (parts.version, parts.headers, parts.extensions);
        Ok(Opened { head, promised, extra: Extra { version, headers, extensions }, body })
    }

    fn replay(
        &self,
        head: &Head,
        extra: Option<Extra>,
        body: Replay,
        role: FlightRole,
    ) -> Option<Self::Response> {
        // A value under the same namespace and key: nothing for a client.
        if extra.is_none() && head.headers.contains_key(value_codec::MARK) {
            return None;
        }
        let mut response = Response::new(ResponseBody::replay(body));
        *response.status_mut() = head.status;
        match extra {
            Some(extra) => {
                extra.give(&mut response);
                // It was about inner's own body. What reads this one may know its length by
                // now, and a server that is told of both breaks off.
                response.headers_mut().remove(TRANSFER_ENCODING);
            }
            None => response.headers_mut().clone_from(&head.headers),
        }
        if let FlightRole::Reused { age } = role
            && !self.grpc
        {
            policy::grow_older(response.headers_mut(), age);
        }
        self.mark(&mut response, role);
        Some(response)
    }

    fn resume(
        &self,
        head: &Head,
        extra: Extra,
        body: Resumed<ResB>,
        role: FlightRole,
    ) -> Self::Response {
        let mut response = Response::new(ResponseBody::resumed(body));
        *response.status_mut() = head.status;
        extra.give(&mut response);
        self.mark(&mut response, role);
        response
    }

    fn pass(&self, response: Response<ResB>, role: FlightRole) -> Self::Response {
        let mut response = response.map(ResponseBody::passed);
        response.extensions_mut().remove::<Share>();
        self.mark(&mut response, role);
        response
    }

    fn error(&self, error: E) -> E {
        error
    }

    fn failure(&self, failure: Failure) -> Result<Self::Response, E> {
        let mut response = if self.grpc { grpc::failure(&failure) } else { plain(&failure) };
        if !self.silent {
            failure.write(response.headers_mut());
        }
        response.extensions_mut().insert(failure);
        Ok(response)
    }

    fn describe(&self, error: &E) -> String {
        error.to_string()
    }
}

fn plain<B>(failure: &Failure) -> Response<ResponseBody<B>> {
    let text = format!("{}\n", failure.kind());
    let mut response = Response::new(ResponseBody::text(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if !failure.is_timeout() {
        let wait = if failure.kind() == FailureKind::Quarantined { 5 } else { 1 };
        headers.insert(RETRY_AFTER, HeaderValue::from(wait));
    }
    *response.status_mut() = if failure.is_timeout() {
        StatusCode::GATEWAY_TIMEOUT
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    response
}

impl Extra {
    fn give<B>(self, response: &mut Response<B>) {
        *response.version_mut() = self.version;
        *response.headers_mut() = self.headers;
        *response.extensions_mut() = self.extensions;
    }
}

/// The length that the head promises; where it says several, the first that the
/// body does not fit breaks it off.
fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}
