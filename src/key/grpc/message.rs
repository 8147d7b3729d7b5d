//! What a gRPC request is made of.

use http::{HeaderMap, header::CONTENT_TYPE};

/// Whether the request speaks gRPC itself, and not gRPC-Web.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).into_iter();
    let (Some(kind), None) = (types.next(), types.next()) else { return false };
    let essence = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    let essence = essence.trim_ascii().to_ascii_lowercase();
    essence == b"application/grpc" || essence.starts_with(b"application/grpc+")
}

/// Whether a body is one message and nothing else: a flag that says whether it is
/// compressed, its length, its bytes.
pub(super) fn is_one_message(body: &[u8]) -> bool {
    match body {
        [0 | 1, a, b, c, d, message @ ..] => {
            u32::from_be_bytes([*a, *b, *c, *d]) as usize == message.len()
        }
        _ => false,
    }
}
