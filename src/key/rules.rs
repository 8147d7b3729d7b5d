//! What the keys of all HTTP requests have in common.

use std::{fmt, sync::Arc};

use http::{
    Extensions, HeaderName, Uri,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HOST},
};

use super::{
    Bypass, KeyBuilder, NOISE, RequestView,
    authority::Authority,
    explain::{PartSource, Parts},
    fields::Fields,
    query::sorted,
};
use crate::headers::HeaderList;

pub(super) type Predicate = Arc<dyn Fn(RequestView<'_>) -> bool + Send + Sync>;
pub(super) type OriginalUri = Arc<dyn Fn(&Extensions) -> Option<&Uri> + Send + Sync>;
pub(super) type PartFn = Arc<dyn Fn(RequestView<'_>) -> Option<Vec<u8>> + Send + Sync>;

/// Which parts of a request's head are in its key, and which forbid sharing.
#[derive(Clone)]
pub(super) struct Rules {
    authority: Option<Box<str>>,
    sorted_query: bool,
    noise: HeaderList,
    only: Option<HeaderList>,
    tenants: Vec<PartFn>,
    identities: Vec<HeaderName>,
    identity_fns: Vec<PartFn>,
    bypass_if: Vec<Predicate>,
    original_uri: Option<OriginalUri>,
}

// No header has such a name, so that these are told apart from headers.
const TENANT: &[u8] = b"\0tenant";
const IDENTITY: &[u8] = b"\0identity";

impl Default for Rules {
    fn default() -> Self {
        Self {
            authority: None,
            sorted_query: false,
            noise: HeaderList::published(NOISE),
            only: None,
            tenants: Vec::new(),
            identities: Vec::new(),
            identity_fns: Vec::new(),
            bypass_if: Vec::new(),
            original_uri: None,
        }
    }
}

impl Rules {
    pub(super) fn set_authority(&mut self, fixed: String) {
        self.authority = Some(fixed.into_boxed_str());
    }

    pub(super) fn set_sorted_query(&mut self) {
        self.sorted_query = true;
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

    pub(super) fn tenant(&mut self, tenant: PartFn) {
        self.tenants.push(tenant);
    }

    pub(super) fn identity(&mut self, name: HeaderName) {
        self.identities.push(name);
    }

    pub(super) fn identity_fn(&mut self, identity: PartFn) {
        self.identity_fns.push(identity);
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
        self.write(request, |_| false, KeyBuilder::with_capacity)
    }

    /// As [`head`](Self::head), for a request whose body is in the key too.
    pub(super) fn head_of_body(&self, request: RequestView<'_>) -> Result<KeyBuilder, Bypass> {
        self.write(request, |name| self.also(name), KeyBuilder::with_capacity)
    }

    /// The parts of a key as far as the head goes, of a request whose body is in it too or
    /// is not.
    pub(super) fn parts(&self, request: RequestView<'_>, body: bool) -> Result<Parts, Bypass> {
        self.write(request, |name| body && self.also(name), |_| Parts::default())
    }

    /// The headers of a request that are not in its key.
    pub(super) fn left_out(&self, request: RequestView<'_>, body: bool) -> Vec<HeaderName> {
        let names = request.headers().keys();
        // The host is there as the authority, unless that is fixed.
        let outside = names.filter(|name| !(self.covers(name) || body && self.also(name)));
        outside.cloned().collect()
    }

    /// Bytes mean nothing without these, so no list of others leaves them out.
    fn also(&self, name: &HeaderName) -> bool {
        self.only.is_some() && (name == CONTENT_TYPE || name == CONTENT_ENCODING)
    }

    /// Gives the parts of a key, one by one, to what `make` makes for about so many bytes.
    fn write<T: Sink>(
        &self,
        request: RequestView<'_>,
        also: impl Fn(&HeaderName) -> bool,
        make: impl FnOnce(usize) -> T,
    ) -> Result<T, Bypass> {
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
        let mut key = make(length);
        key.part(|| PartSource::Method, &[request.method().as_str().as_bytes()]);
        match authority {
            Some(authority) => key.authority(authority, uri),
            None => key.part(|| PartSource::FixedAuthority, &[fixed.as_bytes()]),
        }
        let (path, whole) = match original {
            Some(_) => (PartSource::OriginalPath, PartSource::OriginalQuery),
            None => (PartSource::Path, PartSource::Query),
        };
        key.part(|| path, &[uri.path().as_bytes()]);
        match query {
            // No query and an empty one are different resources.
            None => key.absent(|| whole, &[]),
            Some(query) if self.sorted_query => {
                key.part(|| PartSource::SortedQuery, &[b"?", sorted(query).as_bytes()]);
            }
            Some(query) => key.part(|| whole, &[b"?", query.as_bytes()]),
        }
        for tenant in &self.tenants {
            let tenant = tenant(request).ok_or(Bypass::NoTenant)?;
            key.name(TENANT);
            key.part(|| PartSource::Tenant, &[&tenant]);
        }
        for identity in &self.identity_fns {
            key.name(IDENTITY);
            match identity(request) {
                Some(identity) => key.part(|| PartSource::Identity, &[b"=", &identity]),
                None => key.absent(|| PartSource::Identity, &[]),
            }
        }
        for (name, value) in fields.iter().flatten() {
            key.name(name.as_str().as_bytes());
            let source = || match self.identities.contains(name) {
                true => PartSource::IdentityHeader((*name).clone()),
                false => PartSource::Header((*name).clone()),
            };
            key.part(source, &[value.as_bytes()]);
        }
        Ok(key)
    }

    /// Whether a request says who asks, in a part that is in its key.
    pub(super) fn is_identified(&self, request: RequestView<'_>) -> bool {
        let headers = request.headers();
        let named = |name| headers.get_all(name).iter().any(|value| !value.is_empty());
        let found = |identity: &PartFn| identity(request).is_some_and(|bytes| !bytes.is_empty());
        self.identities.iter().any(named) || self.identity_fns.iter().any(found)
    }

    /// Whether requests that differ in this header have different keys.
    pub(super) fn covers(&self, name: &HeaderName) -> bool {
        self.counts(name) || (name == HOST && self.authority.is_none())
    }

    /// Whether the field is a part of the key.
    fn counts(&self, name: &HeaderName) -> bool {
        let listed = match &self.only {
            Some(only) => only.contains(name),
            None => !self.noise.contains(name),
        };
        listed || self.identities.contains(name)
    }

    pub(super) fn debug(&self, out: &mut fmt::DebugStruct<'_, '_>) {
        let dots = |count| vec![Dots; count];
        out.field("authority", &self.authority).field("sorted_query", &self.sorted_query);
        match &self.only {
            Some(only) => out.field("only", only),
            None => out.field("ignored", &self.noise),
        };
        out.field("tenant", &dots(self.tenants.len()))
            .field("identity", &self.identities)
            .field("identity_fn", &dots(self.identity_fns.len()))
            .field("bypass_if", &dots(self.bypass_if.len()))
            .field("original_uri", &self.original_uri.as_ref().map(|_| Dots));
    }
}

/// What takes the parts of a key: the key itself, or what is told of it. They come from
/// one place, so that they are the same.
pub(super) trait Sink {
    /// A part, made of several pieces.
    fn part(&mut self, source: impl FnOnce() -> PartSource, pieces: &[&[u8]]);
    /// A part that says that something is not there.
    fn absent(&mut self, source: impl FnOnce() -> PartSource, pieces: &[&[u8]]);
    /// The name of the part that comes next.
    fn name(&mut self, name: &[u8]);
    fn authority(&mut self, authority: Authority<'_>, uri: &Uri);
}

impl Sink for KeyBuilder {
    fn part(&mut self, _: impl FnOnce() -> PartSource, pieces: &[&[u8]]) {
        self.push(pieces);
    }

    fn absent(&mut self, _: impl FnOnce() -> PartSource, pieces: &[&[u8]]) {
        self.push(pieces);
    }

    fn name(&mut self, name: &[u8]) {
        self.push(&[name]);
    }

    fn authority(&mut self, authority: Authority<'_>, _: &Uri) {
        authority.write(self);
    }
}

#[derive(Clone)]
struct Dots;

impl fmt::Debug for Dots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}
