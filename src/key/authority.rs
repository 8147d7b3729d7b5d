//! Whom a request is for.

use http::{Uri, Version, header::HOST};

use super::{Bypass, KeyBuilder, RequestView};

/// A host, and what stands before it in a URI.
#[derive(Clone, Copy)]
pub(super) struct Authority<'a> {
    // Empty where it is not told apart.
    scheme: &'a str,
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
    ///
    /// On HTTP/1 a scheme is in the requests of clients, and not in those that come
    /// to a server. One that goes out in the clear is another than one that does not.
    /// On HTTP/2 it is in all requests, and says only which port is the default one.
    pub(super) fn of(uri: &'a Uri, request: RequestView<'a>) -> Result<Self, Bypass> {
        let said = uri.scheme_str().unwrap_or_default();
        let scheme = if request.version() < Version::HTTP_2 { said } else { "" };
        let parse = |text| Self { scheme, ..Self::parse(said, text) };
        let mut hosts = request.headers().get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (_, Some(_)) => return Err(Bypass::NoAuthority),
            (host, None) => host.map(|host| parse(host.as_bytes())),
        };
        let uri = uri.authority();
        let uri = uri.map(|authority| parse(authority.as_str().as_bytes()));
        match (uri, host) {
            (Some(uri), Some(host)) if !uri.host.eq_ignore_ascii_case(host.host) => None,
            (Some(found), _) | (None, Some(found)) => Some(found),
            (None, None) => None,
        }
        .filter(|found| !found.host.is_empty())
        .ok_or(Bypass::NoAuthority)
    }

    fn parse(scheme: &'a str, text: &'a [u8]) -> Self {
        let at = text.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
        let (userinfo, host) = text.split_at(at);
        let ports: &[&[u8]] = match scheme {
            "http" => &[b":80", b":"],
            "https" => &[b":443", b":"],
            // What a server hears on HTTP/1 does not say which of the two it is.
            "" => &[b":80", b":443", b":"],
            _ => &[],
        };
        let host = ports.iter().find_map(|port| host.strip_suffix(*port)).unwrap_or(host);
        Self { scheme, userinfo, host }
    }

    pub(super) fn len(&self) -> usize {
        self.scheme.len() + 1 + self.userinfo.len() + self.host.len()
    }

    pub(super) fn write(&self, key: &mut KeyBuilder) {
        // No host has such a byte in it.
        let end: &[u8] = if self.scheme.is_empty() { b"" } else { b"\0" };
        key.push_lowered([self.scheme.as_bytes(), end, self.userinfo], self.host);
    }
}
