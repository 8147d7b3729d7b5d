//! Whom a request is for.

use http::{HeaderMap, Uri, header::HOST};

use super::{Bypass, KeyBuilder};

/// A host, and what stands before it in a URI.
#[derive(Clone, Copy)]
pub(super) struct Authority<'a> {
    // Kept as it is: a password may be told apart by case alone.
    userinfo: &'a [u8],
    host: &'a [u8],
}

impl<'a> Authority<'a> {
    /// The authority that URI and `host` agree on.
    ///
    /// A service may route by either, so a request in which they differ, or one
    /// with several `host` lines, could put one tenant's answer under another
    /// tenant's key.
    pub(super) fn of(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Self, Bypass> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (_, Some(_)) => return Err(Bypass::NoAuthority),
            (host, None) => host.map(|host| Self::parse(host.as_bytes())),
        };
        let uri = uri.authority().map(|authority| Self::parse(authority.as_str().as_bytes()));
        match (uri, host) {
            (Some(uri), Some(host)) if !uri.host.eq_ignore_ascii_case(host.host) => None,
            (Some(found), _) | (None, Some(found)) => Some(found),
            (None, None) => None,
        }
        .filter(|found| !found.host.is_empty())
        .ok_or(Bypass::NoAuthority)
    }

    fn parse(text: &'a [u8]) -> Self {
        let at = text.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
        let (userinfo, host) = text.split_at(at);
        // Both ports: what HTTP/1 says of its scheme is not in the request.
        let host = [&b":80"[..], b":443", b":"]
            .into_iter()
            .find_map(|port| host.strip_suffix(port))
            .unwrap_or(host);
        Self { userinfo, host }
    }

    pub(super) fn len(&self) -> usize {
        self.userinfo.len() + self.host.len()
    }

    pub(super) fn write(&self, key: &mut KeyBuilder) {
        key.push_lowered(self.userinfo, self.host);
    }
}
