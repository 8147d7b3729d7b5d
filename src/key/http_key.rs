//! The default key for HTTP.

use std::{fmt, sync::Arc};

use http::{Extensions, HeaderName, Method, Request, Uri};
use http_body::Body;

use super::{
    Bypass, Explanation, Key, KeyExtractor, RequestView,
    body::{BodyKey, Form, Json, Raw, ReadBody},
    explain::Parts,
    rules::Rules,
};

/// The key of an HTTP request: method, authority, path, query, and every header
/// field but a [published list of noise](crate::key::NOISE).
///
/// Taken as they are: path and query (nothing is decoded, sorted or cleaned
/// up), the values of header fields, their order within one name. Not told
/// apart: upper and lower case of the host, the ports 80 and 443, HTTP/1 and
/// HTTP/2, the order of different header names.
///
/// A client's request has a scheme in its URI, and is told apart by that and by
/// the port. One that is marked as HTTP/2 looks as it does to a server, and is not.
///
/// Not shared are requests other than `GET` and `HEAD`, those that ask for an
/// upgrade, for a range or under a condition, those with
/// `cache-control: no-store`, those whose body is coded for its connection (a
/// `transfer-encoding` beyond `chunked`), and those that do not say clearly whom
/// they are for: without a host, with several, or with a `host` that differs from
/// the URI. See the [module docs](crate::key).
///
/// `B` says how bodies are read: not at all, unless [`json_body`](Self::json_body)
/// or [`raw_body`](Self::raw_body) asks for it.
///
/// # Below nested routers
///
/// **Inside `Router::nest`, [`original_uri`](Self::original_uri) is needed**:
/// without it two resources get one key.
///
/// ```
/// use http::{HeaderName, header::ACCEPT_LANGUAGE};
/// use tower_singleflight::HttpKey;
///
/// let key = HttpKey::new()
///     .authority("api")
///     .ignore(ACCEPT_LANGUAGE)
///     .bypass_if(|request| request.uri().path().starts_with("/live/"));
/// ```
#[derive(Clone, Default)]
pub struct HttpKey<B = NoBody> {
    // Services are cloned for each request; their keys must cost nothing.
    pub(super) rules: Arc<Rules>,
    pub(super) body: B,
}

/// Says of an [`HttpKey`] that it reads no bodies: requests with one run alone.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct NoBody;

impl HttpKey {
    /// The default key.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes JSON bodies into the key, in a form in which the order of members,
    /// white space and the ways to escape a character do not count.
    ///
    /// Shared are then also `POST` requests whose `content-type` is
    /// `application/json` or ends in `+json`; **their handlers must only answer**,
    /// since one run stands for many callers. All others are as before. Every
    /// member counts but those that [`leave_out`](Self::leave_out) names. Numbers
    /// count as they are written: `1` and `1.0` differ.
    ///
    /// Whatever is doubtful counts byte by byte: what is no JSON, repeated members,
    /// lone surrogates, more than 128 levels, a `charset` that is not UTF-8, a
    /// `content-encoding`. For a service to which the order of members means
    /// something there is [`raw_body`](Self::raw_body).
    ///
    /// The body is read before the request joins a flight; meanwhile it waits for
    /// its client and holds nothing. `give_back` turns what was read, and the rest,
    /// into the type of body that the service takes: for axum it is
    /// `axum::body::Body::new`. See [`body_limit`](Self::body_limit) for larger ones.
    ///
    /// ```
    /// use axum::body::Body;
    /// use tower_singleflight::{HttpKey, SingleFlightLayer};
    ///
    /// # fn f() -> Result<(), tower_singleflight::key::PointerError> {
    /// let key = HttpKey::new().json_body(Body::new).leave_out("/user")?;
    /// let layer = SingleFlightLayer::new(key);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn json_body<B, F>(self, give_back: F) -> HttpKey<BodyKey<F, Json>>
    where
        F: Fn(ReadBody<B>) -> B + Clone + Send + Sync + 'static,
    {
        HttpKey { rules: self.rules, body: BodyKey::new(give_back, Form::json()) }
    }

    /// Takes bodies into the key, byte by byte.
    ///
    /// Shared are then also `POST` requests, of any `content-type`; **their handlers
    /// must only answer**, since one run stands for many callers. For the rest see
    /// [`json_body`](Self::json_body).
    ///
    /// ```
    /// use axum::body::Body;
    /// use tower_singleflight::{HttpKey, SingleFlightLayer};
    ///
    /// let layer = SingleFlightLayer::new(HttpKey::new().raw_body(Body::new));
    /// ```
    #[must_use]
    pub fn raw_body<B, F>(self, give_back: F) -> HttpKey<BodyKey<F, Raw>>
    where
        F: Fn(ReadBody<B>) -> B + Clone + Send + Sync + 'static,
    {
        HttpKey { rules: self.rules, body: BodyKey::new(give_back, Form::Raw) }
    }
}

impl<B> HttpKey<B> {
    /// Uses this name in place of the host that a request names, for fleets
    /// that answer alike under several names. `host` is then not read at all.
    ///
    /// Default: the host of the request.
    #[must_use]
    pub fn authority(mut self, fixed: impl Into<String>) -> Self {
        self.rules().set_authority(fixed.into());
        self
    }

    /// Leaves a header field out of the key: requests that differ in it alone
    /// get **the same answer**, unless it is an [identity](Self::identity), or an answer
    /// says by `vary` that it depends on it. Where it says who asks, something else must:
    /// see [`identity_fn`](Self::identity_fn).
    ///
    /// ```
    /// use http::{HeaderName, header::ACCEPT_LANGUAGE};
    /// use tower_singleflight::HttpKey;
    ///
    /// // One that `http` has a constant for, and one of your own, in lower case.
    /// let key = HttpKey::new()
    ///     .ignore(ACCEPT_LANGUAGE)
    ///     .ignore(HeaderName::from_static("x-client-build"));
    /// ```
    ///
    /// Default: the names in [`NOISE`](crate::key::NOISE).
    #[must_use]
    pub fn ignore(mut self, name: impl Into<HeaderName>) -> Self {
        self.rules().ignore(&name.into());
        self
    }

    /// Takes a header field into the key, also one of [`NOISE`](crate::key::NOISE).
    ///
    /// ```
    /// use http::{HeaderName, header::USER_AGENT};
    /// use tower_singleflight::HttpKey;
    ///
    /// let key = HttpKey::new().cover(USER_AGENT).cover(HeaderName::from_static("x-request-id"));
    /// ```
    ///
    /// Default: every field but those in [`NOISE`](crate::key::NOISE).
    #[must_use]
    pub fn cover(mut self, name: impl Into<HeaderName>) -> Self {
        self.rules().cover(&name.into());
        self
    }

    /// Takes these header fields into the key and no others.
    ///
    /// Requests that differ in anything else, **also in `authorization` or
    /// `cookie`, get the same answer**: name all that the answer depends on. Where
    /// the body is in the key, `content-type` and `content-encoding` are as well.
    ///
    /// Default: every field but those in [`NOISE`](crate::key::NOISE).
    #[must_use]
    pub fn only(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.rules().set_only(names.into_iter().collect());
        self
    }

    /// Sorts the pairs of a query by name, for services to which their order means
    /// nothing: `?a=1&b=2` and `?b=2&a=1` then share.
    ///
    /// Pairs of one name keep their order, and so do those whose names a server may take
    /// for one: when it decodes them, or does not tell upper from lower case. Nothing is
    /// decoded in the key: `%2F` is another than `/`.
    ///
    /// Default: the query as it is.
    #[must_use]
    pub fn sorted_query(mut self) -> Self {
        self.rules().set_sorted_query();
        self
    }

    /// Names the header that says who asks. Called several times, each of them does.
    ///
    /// It is in the key, also if it is in [`NOISE`](crate::key::NOISE),
    /// [ignored](Self::ignore), or not among those that [count](Self::only). Answers with
    /// `cache-control: private` are shared among requests that carry it with the same value,
    /// and not among those that carry none, or an empty one.
    ///
    /// **Name what a service knows its users by**, all of it: what is private to one
    /// value of this header is shared among all who send that value.
    ///
    /// ```
    /// use http::{HeaderName, header::AUTHORIZATION};
    /// use tower_singleflight::HttpKey;
    ///
    /// let by_token = HttpKey::new().identity(AUTHORIZATION);
    /// let by_api_key = HttpKey::new().identity(HeaderName::from_static("x-api-key"));
    /// ```
    ///
    /// Default: none, and `private` answers are not shared.
    #[must_use]
    pub fn identity(mut self, name: impl Into<HeaderName>) -> Self {
        self.rules().identity(name.into());
        self
    }

    /// As [`identity`](Self::identity), with a function that says who asks: the user
    /// that an authentication layer above this one has left in the request's extensions,
    /// for one.
    ///
    /// **All for which it gives `None` share with each other**, as requests of nobody in
    /// particular; only no `private` answers. So who [ignores](Self::ignore) the credential
    /// needs [`tenant`](Self::tenant), under which a request without one takes no part, or
    /// both.
    ///
    /// It is called once for the key, once more where the request is run, and must give the
    /// same both times.
    ///
    /// ```
    /// use http::HeaderName;
    /// use tower_singleflight::{HttpKey, RequestView};
    ///
    /// #[derive(Clone)]
    /// struct User(String);
    ///
    /// fn user(request: RequestView<'_>) -> Option<String> {
    ///     Some(request.extensions().get::<User>()?.0.clone())
    /// }
    ///
    /// // Each request has a key of its own; what counts is whose it is.
    /// let key = HttpKey::new()
    ///     .ignore(HeaderName::from_static("x-api-key"))
    ///     // Requests without a user run alone,
    ///     .tenant(user)
    ///     // and those of one user share `private` answers too.
    ///     .identity_fn(user);
    /// ```
    #[must_use]
    pub fn identity_fn<F, T>(mut self, find: F) -> Self
    where
        F: Fn(RequestView<'_>) -> Option<T> + Send + Sync + 'static,
        T: Into<Vec<u8>>,
    {
        self.rules().identity_fn(Arc::new(move |request| find(request).map(Into::into)));
        self
    }

    /// Takes what this function gives into the key: the tenant that a request is for,
    /// where something else than its authority, path and headers says so. Called several
    /// times, all count.
    ///
    /// Requests for which it gives `None` **run alone**: that nobody has found out whose a
    /// request is must not put it together with others. For a service that has answers for
    /// all tenants let it give an empty one.
    ///
    /// Default: none.
    #[must_use]
    pub fn tenant<F, T>(mut self, find: F) -> Self
    where
        F: Fn(RequestView<'_>) -> Option<T> + Send + Sync + 'static,
        T: Into<Vec<u8>>,
    {
        self.rules().tenant(Arc::new(move |request| find(request).map(Into::into)));
        self
    }

    /// Lets the requests for which this says `true` run alone. Called several
    /// times, one `true` is enough.
    ///
    /// Default: none.
    #[must_use]
    pub fn bypass_if<F>(mut self, predicate: F) -> Self
    where
        F: Fn(RequestView<'_>) -> bool + Send + Sync + 'static,
    {
        self.rules().bypass_if(Arc::new(predicate));
        self
    }

    /// Says where the URI is that the client asked for, when something above
    /// the layer has changed it.
    ///
    /// **Needed below `Router::nest` of axum**, which takes the prefix off the
    /// path: without it `/c1/f` and `/c2/f` have one key, and one is answered
    /// with the other. This crate depends on no framework and cannot name the
    /// extension that keeps the URI, so give it:
    ///
    /// ```
    /// use axum::extract::OriginalUri;
    /// use tower_singleflight::HttpKey;
    ///
    /// let key = HttpKey::new()
    ///     .original_uri(|extensions| extensions.get::<OriginalUri>().map(|uri| &uri.0));
    /// ```
    ///
    /// Where it gives `None`, the URI of the request is used. Default: none.
    #[must_use]
    pub fn original_uri<F>(mut self, find: F) -> Self
    where
        F: Fn(&Extensions) -> Option<&Uri> + Send + Sync + 'static,
    {
        self.rules().set_original_uri(Arc::new(find));
        self
    }

    fn rules(&mut self) -> &mut Rules {
        Arc::make_mut(&mut self.rules)
    }
}

impl HttpKey {
    /// What the key of this request is made of, or why it has none.
    pub fn explain<B: Body>(&self, request: &Request<B>) -> Explanation {
        let view = RequestView::new(request);
        let parts = plain_parts(&self.rules, view, request.body().is_end_stream());
        Explanation::new(parts, self.rules.left_out(view, false))
    }
}

impl<B> KeyExtractor<Request<B>> for HttpKey {
    fn extract(&self, request: &Request<B>) -> Result<Key, Bypass> {
        extract(&self.rules, RequestView::new(request))
    }

    fn is_identified(&self, request: &Request<B>) -> bool {
        self.rules.is_identified(RequestView::new(request))
    }

    fn covers_header(&self, name: &HeaderName) -> bool {
        self.rules.covers(name)
    }
}

/// Whether requests with this method are shared without a word of anybody.
pub(super) fn is_plain(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// The parts of the key of a request whose body is not read, and must have `ended`.
pub(super) fn plain_parts(
    rules: &Rules,
    request: RequestView<'_>,
    ended: bool,
) -> Result<Parts, Bypass> {
    if !is_plain(request.method()) {
        return Err(Bypass::Method);
    }
    let parts = rules.parts(request, false)?;
    if ended { Ok(parts) } else { Err(Bypass::Body) }
}

/// The key of a request whose body is not read.
pub(super) fn extract(rules: &Rules, request: RequestView<'_>) -> Result<Key, Bypass> {
    if !is_plain(request.method()) {
        return Err(Bypass::Method);
    }
    Ok(rules.head(request)?.build())
}

impl<B: fmt::Debug> fmt::Debug for HttpKey<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("HttpKey");
        self.rules.debug(&mut out);
        out.field("body", &self.body).finish()
    }
}
