//! Failures as gRPC has them.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

use crate::{body::ResponseBody, error::Failure, frame::Head};

const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");
const DEADLINE_EXCEEDED: HeaderValue = HeaderValue::from_static("4");

/// The header or trailer that says how a call went.
const STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The header of a call's time limit.
pub(super) const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Whether an answer has come to its end: a gRPC one says in its head or in its
/// trailers how the call went. Clients of HTTP/2 take some resets for a clean end.
pub(super) fn is_complete(head: &Head, trailers: Option<&HeaderMap>) -> bool {
    let is_grpc = head.headers.get(CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.as_bytes();
        kind == b"application/grpc"
            || kind.starts_with(b"application/grpc+")
            || kind.starts_with(b"application/grpc;")
    });
    !is_grpc
        || head.status != StatusCode::OK
        || head.headers.contains_key(STATUS)
        || trailers.is_some_and(|trailers| trailers.contains_key(STATUS))
}

/// A response that is all head, its status in it.
pub(super) fn failure<B>(failure: &Failure) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let status = if failure.is_timeout() { DEADLINE_EXCEEDED } else { UNAVAILABLE };
    headers.insert(STATUS, status);
    message(headers, &failure.kind().to_string());
    response
}

/// Adds the message, all but printable ASCII in percent encoding.
fn message(headers: &mut HeaderMap, text: &str) {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    if let Ok(value) = HeaderValue::try_from(encoded) {
        headers.insert("grpc-message", value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_answer_is_complete_with_its_status() {
        let fields = |fields: &[(&'static str, &'static str)]| -> HeaderMap {
            let value = HeaderValue::from_static;
            fields.iter().map(|&(name, text)| (name.parse().unwrap(), value(text))).collect()
        };
        let (ok, other) = (fields(&[("grpc-status", "0")]), fields(&[("x-t", "1")]));
        let complete = |status, headers: &[_], trailers| {
            let head = Head { status, headers: fields(headers) };
            is_complete(&head, trailers)
        };
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc; a=b"] {
            let kind = ("content-type", kind);
            assert!(!complete(StatusCode::OK, &[kind], None));
            assert!(!complete(StatusCode::OK, &[kind], Some(&other)));
            assert!(complete(StatusCode::OK, &[kind], Some(&ok)));
            assert!(complete(StatusCode::OK, &[kind, ("grpc-status", "5")], None));
            assert!(complete(StatusCode::BAD_GATEWAY, &[kind], None));
        }
        for kind in ["application/grpc-web", "text/plain"] {
            assert!(complete(StatusCode::OK, &[("content-type", kind)], None));
        }
        assert!(complete(StatusCode::OK, &[], None));
    }

    #[test]
    fn messages_are_percent_encoded() {
        let mut headers = HeaderMap::new();
        message(&mut headers, "50 % of \u{e9}\n~");
        assert_eq!(headers["grpc-message"], "50 %25 of %C3%A9%0A~");
    }
}
