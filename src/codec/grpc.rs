//! Failures as gRPC has them.

use http::{HeaderMap, HeaderValue, Response, header::CONTENT_TYPE};

use crate::{body::ResponseBody, error::Failure};

const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");
const DEADLINE_EXCEEDED: HeaderValue = HeaderValue::from_static("4");

/// The header of a call's time limit.
pub(super) const TIMEOUT: &str = "grpc-timeout";

/// A response that is all head, its status in it.
pub(super) fn failure<B>(failure: &Failure) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let status = if failure.is_timeout() { DEADLINE_EXCEEDED } else { UNAVAILABLE };
    headers.insert("grpc-status", status);
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
    fn messages_are_percent_encoded() {
        let mut headers = HeaderMap::new();
        message(&mut headers, "50 % of \u{e9}\n~");
        assert_eq!(headers["grpc-message"], "50 %25 of %C3%A9%0A~");
    }
}
