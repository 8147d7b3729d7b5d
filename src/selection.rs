//! Which callers of a key may have an answer that depends on headers outside of it.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The headers outside the key that an answer depends on, and a digest of the values
/// that the request had of them that was run for it. Never the values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Selection {
    names: Vec<HeaderName>,
    digest: [u8; 32],
}

/// Some header fields, the lines of one name in their order.
pub(crate) type Fields = Vec<(HeaderName, HeaderValue)>;

/// What gives the lines of a header, in their order.
pub(crate) trait Lines {
    fn lines<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a HeaderValue>;
}

impl Lines for HeaderMap {
    fn lines<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a HeaderValue> {
        self.get_all(name).into_iter()
    }
}

impl Lines for [(HeaderName, HeaderValue)] {
    fn lines<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a HeaderValue> {
        self.iter().filter(move |(known, _)| known == name).map(|(_, value)| value)
    }
}

/// Names the layout of what is digested.
const LAYOUT: &[u8] = b"tower-singleflight selected headers 1";

impl Selection {
    /// Of a request with these headers; `hasher` has what it belongs to already.
    pub(crate) fn of<L: Lines + ?Sized>(
        names: Vec<HeaderName>,
        headers: &L,
        hasher: blake3::Hasher,
    ) -> Self {
        let digest = digest(&names, headers, hasher);
        Self { names, digest }
    }

    /// One that was read back.
    pub(crate) fn from_parts(names: Vec<HeaderName>, digest: [u8; 32]) -> Self {
        Self { names, digest }
    }

    pub(crate) fn names(&self) -> &[HeaderName] {
        &self.names
    }

    pub(crate) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Whether a request with these headers has the same values.
    pub(crate) fn fits<L: Lines + ?Sized>(&self, headers: &L, hasher: blake3::Hasher) -> bool {
        // Compared in constant time, since who asks chooses what is compared.
        blake3::Hash::from(digest(&self.names, headers, hasher)) == self.digest
    }
}

/// Lines are compared as they are, and in their order; a header that is not there
/// differs from an empty one.
fn digest<L: Lines + ?Sized>(
    names: &[HeaderName],
    headers: &L,
    mut hasher: blake3::Hasher,
) -> [u8; 32] {
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(LAYOUT);
    for name in names {
        part(name.as_str().as_bytes());
        part(&(headers.lines(name).count() as u64).to_le_bytes());
        headers.lines(name).for_each(|line| part(line.as_bytes()));
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn of(names: &[&'static str], fields: &[(&'static str, &'static str)]) -> Selection {
        let names = names.iter().map(|name| HeaderName::from_static(name)).collect();
        Selection::of(names, &headers(fields), blake3::Hasher::new())
    }

    #[test]
    fn equal_values_fit_and_no_others() {
        let one = of(&["a", "b"], &[("a", "1"), ("a", "2"), ("c", "9")]);
        let fits = |fields: &[_]| {
            let map = headers(fields);
            let list: Fields =
                map.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            let fits = one.fits(&map, blake3::Hasher::new());
            assert_eq!(fits, one.fits(&list[..], blake3::Hasher::new()));
            fits
        };
        assert!(fits(&[("a", "1"), ("a", "2")]));
        assert!(fits(&[("c", "8"), ("a", "1"), ("a", "2")]));
        for other in [
            &[("a", "2"), ("a", "1")][..],
            &[("a", "1, 2")],
            &[("a", "12")],
            &[("a", "1")],
            &[("a", "1"), ("a", "2"), ("b", "")],
            &[("a", "1"), ("b", "2")],
            &[],
        ] {
            assert!(!fits(other), "{other:?}");
        }
        assert!(of(&["a"], &[]).fits(&headers(&[("b", "1")]), blake3::Hasher::new()));
        let mut other = blake3::Hasher::new();
        other.update(b"another key");
        assert!(!one.fits(&headers(&[("a", "1"), ("a", "2")]), other));
    }
}
