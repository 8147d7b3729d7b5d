//! The default key for HTTP.

use std::{fmt, sync::Arc};

use http::{Extensions, HeaderName, Method, Request, Uri, header::HOST};

use super::{
    Bypass, Key, KeyBuilder, KeyExtractor, NOISE, RequestView, authority::Authority, fields::Fields,
};
use crate::headers::HeaderList;

type Predicate = Arc<dyn Fn(RequestView<'_>) -> bool + Send + Sync>;
type OriginalUri = Arc<dyn Fn(&Extensions) -> Option<&Uri> + Send + Sync>;

/// The key of an HTTP request: method, authority, path, query, and every header
/// field but a [published list of noise](NOISE).
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
/// `cache-control: no-store`, and those that do not say clearly whom they are
/// for: without a host, with several, or with a `host` that differs from the
/// URI. See the [module docs](crate::key).
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
pub struct HttpKey {
    // Services are cloned for each request; their keys must cost nothing.
    rules: Arc<Rules>,
}

#[derive(Clone)]
struct Rules {
    authority: Option<Box<str>>,
    noise: HeaderList,
    only: Option<HeaderList>,
    bypass_if: Vec<Predicate>,
    original_uri: Option<OriginalUri>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            authority: None,
            noise: HeaderList::published(NOISE),
            only: None,
            bypass_if: Vec::new(),
            original_uri: None,
        }
    }
}

impl HttpKey {
    /// The default key.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses this name in place of the host that a request names, for fleets
    /// that answer alike under several names. `host` is then not read at all.
    ///
    /// Default: the host of the request.
    #[must_use]
    pub fn authority(mut self, fixed: impl Into<String>) -> Self {
        self.rules().authority = Some(fixed.into().into_boxed_str());
        self
    }

    /// Leaves a header field out of the key: requests that differ in it alone
    /// get **the same answer**.
    ///
    /// Default: the names in [`NOISE`].
    #[must_use]
    pub fn ignore(mut self, name: impl Into<HeaderName>) -> Self {
        let name = name.into();
        let rules = self.rules();
        rules.noise.insert(&name);
        if let Some(only) = &mut rules.only {
            only.remove(&name);
        }
        self
    }

    /// Takes a header field into the key, also one of [`NOISE`].
    ///
    /// Default: every field but those in [`NOISE`].
    #[must_use]
    pub fn cover(mut self, name: impl Into<HeaderName>) -> Self {
        let name = name.into();
        let rules = self.rules();
        rules.noise.remove(&name);
        if let Some(only) = &mut rules.only {
            only.insert(&name);
        }
        self
    }

    /// Takes these header fields into the key and no others.
    ///
    /// Requests that differ in anything else, **also in `authorization` or
    /// `cookie`, get the same answer**: name all that the answer depends on.
    ///
    /// Default: every field but those in [`NOISE`].
    #[must_use]
    pub fn only(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.rules().only = Some(names.into_iter().collect());
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
        self.rules().bypass_if.push(Arc::new(predicate));
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
        self.rules().original_uri = Some(Arc::new(find));
        self
    }

    fn rules(&mut self) -> &mut Rules {
        Arc::make_mut(&mut self.rules)
    }
}

impl<B> KeyExtractor<Request<B>> for HttpKey {
    fn extract(&self, request: &Request<B>) -> Result<Key, Bypass> {
        self.rules.extract(RequestView::new(request))
    }

    fn covers_header(&self, name: &HeaderName) -> bool {
        self.rules.covers(name) || (name == HOST && self.rules.authority.is_none())
    }
}

impl fmt::Debug for HttpKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = &*self.rules;
        let mut out = f.debug_struct("HttpKey");
        out.field("authority", &rules.authority);
        match &rules.only {
            Some(only) => out.field("only", only),
            None => out.field("ignored", &rules.noise),
        };
        out.field("bypass_if", &rules.bypass_if.iter().map(|_| Dots).collect::<Vec<_>>())
            .field("original_uri", &rules.original_uri.as_ref().map(|_| Dots))
            .finish()
    }
}

struct Dots;

impl fmt::Debug for Dots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl Rules {
    fn extract(&self, request: RequestView<'_>) -> Result<Key, Bypass> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(Bypass::Method);
        }
        let mut fields = Fields::new(request.headers());
        let fields = fields.pick(|name| self.covers(name))?;
        if self.bypass_if.iter().any(|predicate| predicate(request)) {
            return Err(Bypass::Predicate);
        }

        let original = self.original_uri.as_ref().and_then(|find| find(request.extensions()));
        let uri = original.unwrap_or(request.uri());
        let authority = match &self.authority {
            Some(_) => None,
            None => Some(Authority::of(uri, request)?),
        };
        let fixed = self.authority.as_deref().unwrap_or_default();
        let query = uri.query();

        // Four parts, then two for each field: one allocation holds them all.
        let length = authority.map_or(fixed.len(), |authority| authority.len())
            + request.method().as_str().len()
            + uri.path().len()
            + query.map_or(0, |query| query.len() + 1)
            + fields.iter().flatten().map(|(n, v)| n.as_str().len() + v.len()).sum::<usize>()
            + (4 + 2 * fields.len()) * 2;
        let mut key = KeyBuilder::with_capacity(length);
        key.push(&[request.method().as_str().as_bytes()]);
        match authority {
            Some(authority) => authority.write(&mut key),
            None => key.push(&[fixed.as_bytes()]),
        }
        key.push(&[uri.path().as_bytes()]);
        match query {
            // No query and an empty one are different resources.
            Some(query) => key.push(&[b"?", query.as_bytes()]),
            None => key.push(&[]),
        }
        for (name, value) in fields.iter().flatten() {
            key.push(&[name.as_str().as_bytes()]);
            key.push(&[value.as_bytes()]);
        }
        Ok(key.build())
    }

    fn covers(&self, name: &HeaderName) -> bool {
        match &self.only {
            Some(only) => only.contains(name),
            None => !self.noise.contains(name),
        }
    }
}
