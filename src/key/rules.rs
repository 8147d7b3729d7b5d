//! What the keys of all HTTP requests have in common.

use std::{fmt, sync::Arc};

use http::{
    Extensions, HeaderName, Uri,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HOST},
};

use super::{Bypass, KeyBuilder, NOISE, RequestView, authority::Authority, fields::Fields};
use crate::headers::HeaderList;

pub(super) type Predicate = Arc<dyn Fn(RequestView<'_>) -> bool + Send + Sync>;
pub(super) type OriginalUri = Arc<dyn Fn(&Extensions) -> Option<&Uri> + Send + Sync>;

/// Which parts of a request's head are in its key, and which forbid sharing.
#[derive(Clone)]
pub(super) struct Rules {
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

impl Rules {
    pub(super) fn set_authority(&mut self, fixed: String) {
        self.authority = Some(fixed.into_boxed_str());
    }

    pub(super) fn ignore(&mut self, name: &HeaderName) {
        self.noise.insert(name);
        if let Some(only) = &mut self.only {
            only.remove(name);
        }
    }

    pub(super) fn cover(&mut self, name: &HeaderName) {
        self.noise.remove(name);
        if let Some(only) = &mut self.only {
            only.insert(name);
        }
    }

    pub(super) fn set_only(&mut self, names: HeaderList) {
        self.only = Some(names);
    }

    pub(super) fn bypass_if(&mut self, predicate: Predicate) {
        self.bypass_if.push(predicate);
    }

    pub(super) fn set_original_uri(&mut self, find: OriginalUri) {
        self.original_uri = Some(find);
    }

    /// The key of a request as far as its head goes, or why it is not shared.
    /// Whether its method is shared is for the caller to say.
    pub(super) fn head(&self, request: RequestView<'_>) -> Result<KeyBuilder, Bypass> {
        self.head_with(request, |_| false)
    }

    /// As [`head`](Self::head), for a request whose body is in the key too.
    pub(super) fn head_of_body(&self, request: RequestView<'_>) -> Result<KeyBuilder, Bypass> {
        // Bytes mean nothing without them, so no list of others leaves them out.
        self.head_with(request, |name| {
            self.only.is_some() && (name == CONTENT_TYPE || name == CONTENT_ENCODING)
        })
    }

    fn head_with(
        &self,
        request: RequestView<'_>,
        also: impl Fn(&HeaderName) -> bool,
    ) -> Result<KeyBuilder, Bypass> {
        let mut fields = Fields::new(request.headers());
        let fields = fields.pick(|name| self.counts(name) || also(name))?;
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
        Ok(key)
    }

    /// Whether requests that differ in this header have different keys.
    pub(super) fn covers(&self, name: &HeaderName) -> bool {
        self.counts(name) || (name == HOST && self.authority.is_none())
    }

    /// Whether the field is a part of the key.
    fn counts(&self, name: &HeaderName) -> bool {
        match &self.only {
            Some(only) => only.contains(name),
            None => !self.noise.contains(name),
        }
    }

    pub(super) fn debug(&self, out: &mut fmt::DebugStruct<'_, '_>) {
        out.field("authority", &self.authority);
        match &self.only {
            Some(only) => out.field("only", only),
            None => out.field("ignored", &self.noise),
        };
        out.field("bypass_if", &self.bypass_if.iter().map(|_| Dots).collect::<Vec<_>>())
            .field("original_uri", &self.original_uri.as_ref().map(|_| Dots));
    }
}

struct Dots;

impl fmt::Debug for Dots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}
