//! Helpers for header fields that keys and policies have in common.

use std::{borrow::Cow, fmt};

use http::{HeaderMap, HeaderName, HeaderValue};

/// A list of header names, made to be asked for every field of every request.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderList {
    names: Names,
    prefixes: Vec<&'static str>,
    // Names that were taken back although a prefix has them.
    exceptions: Names,
}

/// Names by their length, all long ones in one place: few are compared in full.
#[derive(Clone, Default)]
struct Names(Vec<Vec<Cow<'static, str>>>);

const LONG: usize = 32;

impl HeaderList {
    /// Reads a published list: lower-case names, and `x-*` for all names that
    /// begin with `x-`.
    pub(crate) fn published(list: &[&'static str]) -> Self {
        let mut this = Self::default();
        for &entry in list {
            match entry.strip_suffix('*') {
                Some(prefix) => this.prefixes.push(prefix),
                None => this.names.insert(Cow::Borrowed(entry)),
            }
        }
        this
    }

    pub(crate) fn contains(&self, name: &HeaderName) -> bool {
        let name = name.as_str();
        // Most differ in their first byte, which costs no call.
        let begins = |prefix: &&str| {
            prefix.as_bytes().first() == name.as_bytes().first() && name.starts_with(*prefix)
        };
        let hit = self.names.has(name) || self.prefixes.iter().any(begins);
        hit && !self.exceptions.has(name)
    }

    pub(crate) fn insert(&mut self, name: &HeaderName) {
        self.exceptions.remove(name.as_str());
        self.names.insert(Cow::Owned(name.as_str().to_owned()));
    }

    pub(crate) fn remove(&mut self, name: &HeaderName) {
        self.names.remove(name.as_str());
        self.exceptions.insert(Cow::Owned(name.as_str().to_owned()));
    }
}

impl FromIterator<HeaderName> for HeaderList {
    fn from_iter<I: IntoIterator<Item = HeaderName>>(names: I) -> Self {
        let mut this = Self::default();
        names.into_iter().for_each(|name| this.insert(&name));
        this
    }
}

impl Names {
    fn place(name: &str) -> usize {
        name.len().min(LONG)
    }

    fn has(&self, name: &str) -> bool {
        let first = name.as_bytes().first();
        let is = |have: &Cow<'_, str>| have.as_bytes().first() == first && have.as_ref() == name;
        self.0.get(Self::place(name)).is_some_and(|same| same.iter().any(is))
    }

    fn insert(&mut self, name: Cow<'static, str>) {
        if self.has(&name) {
            return;
        }
        let place = Self::place(&name);
        if self.0.len() <= place {
            self.0.resize(place + 1, Vec::new());
        }
        self.0[place].push(name);
    }

    fn remove(&mut self, name: &str) {
        if let Some(same) = self.0.get_mut(Self::place(name)) {
            same.retain(|have| have != name);
        }
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().flatten()).finish()
    }
}

/// The members of a comma-separated field, over all its lines.
pub(crate) fn members<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    headers.get_all(name).into_iter().flat_map(members_of)
}

/// The members of one line, trimmed; empty ones are left out.
///
/// Quoted strings are split like the rest: what that adds can only make a
/// response private, or a request go by itself.
pub(crate) fn members_of(line: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    line.as_bytes()
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}

/// Whether a member such as `no-store` or `private="x"` begins with this token.
pub(crate) fn is_token(member: &[u8], token: &str) -> bool {
    let end = member
        .iter()
        .position(|byte| !byte.is_ascii_alphanumeric() && !b"!#$%&'*+-.^_`|~".contains(byte));
    member[..end.unwrap_or(member.len())].eq_ignore_ascii_case(token.as_bytes())
}

#[cfg(test)]
mod tests {
    use http::header::{CACHE_CONTROL, HOST};

    use super::*;

    #[test]
    fn a_list_knows_names_prefixes_and_exceptions() {
        let mut list = HeaderList::published(&["host", "sec-*"]);
        let sec = HeaderName::from_static("sec-fetch-mode");
        assert!(list.contains(&HOST) && list.contains(&sec));
        assert!(!list.contains(&HeaderName::from_static("secret")));
        list.remove(&sec);
        list.remove(&HOST);
        assert!(!list.contains(&HOST) && !list.contains(&sec));
        assert!(list.contains(&HeaderName::from_static("sec-gpc")));
        list.insert(&sec);
        assert!(list.contains(&sec));
    }

    #[test]
    fn members_come_from_all_lines() {
        let mut map = HeaderMap::new();
        map.append(CACHE_CONTROL, HeaderValue::from_static("max-age=0 , ,a"));
        map.append(CACHE_CONTROL, HeaderValue::from_static("NO-Store;x"));
        let all: Vec<_> = members(&map, &CACHE_CONTROL).collect();
        assert_eq!(all, [&b"max-age=0"[..], b"a", b"NO-Store;x"]);
        assert!(is_token(all[2], "no-store") && is_token(all[0], "max-age"));
        assert!(!is_token(all[2], "no-stor") && !is_token(b"no-store-x", "no-store"));
    }
}
