//! A request without its body.

use std::fmt;

use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

/// A request as seen without its body, for predicates over requests with any
/// type of body. See [`HttpKey::bypass_if`](crate::HttpKey::bypass_if).
#[derive(Clone, Copy)]
pub struct RequestView<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> RequestView<'a> {
    /// Looks at a request.
    pub fn new<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The method.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// The URI as the layer sees it: below a nested router without the prefix.
    #[must_use]
    pub const fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The version of HTTP.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The header fields.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The extensions.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}

impl fmt::Debug for RequestView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestView").field("method", self.method).finish_non_exhaustive()
    }
}
