//! What a key is made of, for people.

use std::fmt;

use http::{HeaderName, Uri};

use super::{Bypass, authority::Authority, rules::Sink};

/// What the key of one request is made of, or why it has none.
///
/// Names and places, never values: it can be logged. `Display` is for people.
///
/// ```
/// use http::Request;
/// use tower_singleflight::HttpKey;
///
/// let request = Request::get("https://a.test/report?year=2024")
///     .header("accept", "*/*")
///     .header("user-agent", "curl")
///     .body(String::new())
///     .unwrap();
/// let explained = HttpKey::new().explain(&request);
/// assert_eq!(
///     explained.to_string(),
///     "method: of the request\n\
///      authority: of the URI\n\
///      path: of the URI\n\
///      query: of the URI, as it is\n\
///      accept: header\n\
///      left out: user-agent\n",
/// );
///
/// let request = Request::get("https://a.test/").header("range", "bytes=0-9");
/// let explained = HttpKey::new().explain(&request.body(String::new()).unwrap());
/// assert_eq!(explained.to_string(), "not shared: range\n");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    parts: Result<Vec<KeyPart>, Bypass>,
    left_out: Vec<HeaderName>,
}

impl Explanation {
    /// `left_out` are the request's headers that are not in its key.
    pub(super) fn new(parts: Result<Parts, Bypass>, left_out: Vec<HeaderName>) -> Self {
        Self { parts: parts.map(|parts| parts.0), left_out }
    }

    /// The parts of the key, in their order; none where the request is not shared.
    #[must_use]
    pub fn parts(&self) -> &[KeyPart] {
        self.parts.as_deref().unwrap_or_default()
    }

    /// Why the request is not shared; `None` where it is.
    #[must_use]
    pub fn bypass(&self) -> Option<Bypass> {
        self.parts.as_ref().err().copied()
    }

    /// The headers of the request that are not in its key: requests that differ in them
    /// alone share.
    #[must_use]
    pub fn left_out(&self) -> &[HeaderName] {
        &self.left_out
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = self.bypass() {
            return writeln!(f, "not shared: {why}");
        }
        for part in self.parts() {
            writeln!(f, "{part}")?;
        }
        for (at, name) in self.left_out.iter().enumerate() {
            write!(f, "{}{name}", if at == 0 { "left out: " } else { ", " })?;
        }
        if self.left_out.is_empty() { Ok(()) } else { writeln!(f) }
    }
}

/// A part of a key: what it is, and where it comes from; never its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    source: PartSource,
    present: bool,
}

impl KeyPart {
    /// Where it comes from.
    #[must_use]
    pub fn source(&self) -> &PartSource {
        &self.source
    }

    /// What it is: `method`, `query`, the name of a header.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.source {
            PartSource::Method => "method",
            PartSource::FixedAuthority | PartSource::UriAuthority | PartSource::HostHeader => {
                "authority"
            }
            PartSource::Path | PartSource::OriginalPath => "path",
            PartSource::Query | PartSource::OriginalQuery | PartSource::SortedQuery => "query",
            PartSource::Tenant => "tenant",
            PartSource::Identity => "identity",
            PartSource::Header(name) | PartSource::IdentityHeader(name) => name.as_str(),
            PartSource::JsonBody | PartSource::RawBody => "body",
        }
    }

    /// Whether the request has it: that there is none is a part of a key, too.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.present
    }
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let absent = if self.present { "" } else { " (there is none)" };
        write!(f, "{}: {}{absent}", self.name(), self.source)
    }
}

/// Where a part of a key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartSource {
    /// The request's method.
    Method,
    /// [`HttpKey::authority`](crate::HttpKey::authority).
    FixedAuthority,
    /// The authority of the URI.
    UriAuthority,
    /// The `host` header.
    HostHeader,
    /// The path of the URI.
    Path,
    /// That of [`HttpKey::original_uri`](crate::HttpKey::original_uri).
    OriginalPath,
    /// The query of the URI, as it is.
    Query,
    /// That of [`HttpKey::original_uri`](crate::HttpKey::original_uri), as it is.
    OriginalQuery,
    /// The query, its pairs in an order of their own.
    SortedQuery,
    /// [`HttpKey::tenant`](crate::HttpKey::tenant).
    Tenant,
    /// [`HttpKey::identity_fn`](crate::HttpKey::identity_fn).
    Identity,
    /// A line of this header.
    Header(HeaderName),
    /// A line of this header, which says who asks: [`HttpKey::identity`](crate::HttpKey::identity).
    IdentityHeader(HeaderName),
    /// The body, as JSON; where it is none that is clear, byte by byte.
    JsonBody,
    /// The body, byte by byte.
    RawBody,
}

impl fmt::Display for PartSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Method => "of the request",
            Self::FixedAuthority => "fixed",
            Self::UriAuthority | Self::Path => "of the URI",
            Self::HostHeader => "host header",
            Self::OriginalPath => "of the original URI",
            Self::Query => "of the URI, as it is",
            Self::OriginalQuery => "of the original URI, as it is",
            Self::SortedQuery => "sorted by name",
            Self::Tenant | Self::Identity => "given by a function",
            Self::Header(_) => "header",
            Self::IdentityHeader(_) => "header, says who asks",
            Self::JsonBody => "as JSON, read before the request is shared",
            Self::RawBody => "byte by byte, read before the request is shared",
        })
    }
}

/// Takes the parts of a key without their values.
#[derive(Default)]
pub(super) struct Parts(Vec<KeyPart>);

impl Parts {
    pub(super) fn add(&mut self, source: PartSource) {
        self.0.push(KeyPart { source, present: true });
    }
}

impl Sink for Parts {
    fn part(&mut self, source: impl FnOnce() -> PartSource, _: &[&[u8]]) {
        self.add(source());
    }

    fn absent(&mut self, source: impl FnOnce() -> PartSource, _: &[&[u8]]) {
        self.0.push(KeyPart { source: source(), present: false });
    }

    // The source has it.
    fn name(&mut self, _: &[u8]) {}

    fn authority(&mut self, _: Authority<'_>, uri: &Uri) {
        let uri = uri.authority().is_some();
        self.add(if uri { PartSource::UriAuthority } else { PartSource::HostHeader });
    }
}
