//! What of a body counts.

use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};

use super::read::Whole;
use crate::key::{
    KeyBuilder,
    json::{Pointers, scan},
};

/// What of a body counts: every byte, or what it says as JSON.
#[derive(Clone, Debug)]
pub(in crate::key) enum Form {
    Raw,
    Json(Pointers),
}

/// How one body is taken into the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::key) enum Reading {
    Bytes,
    Json,
}

impl Form {
    pub(in crate::key) fn json() -> Self {
        Self::Json(Pointers::default())
    }

    /// How the body of a request with these headers is read, if at all.
    pub(in crate::key) fn reading(&self, headers: &HeaderMap) -> Option<Reading> {
        match self {
            Self::Raw => Some(Reading::Bytes),
            Self::Json(_) => json(headers),
        }
    }

    /// Adds a body to the key of its head.
    ///
    /// The parts begin with an empty one, which is no name of a field, so that no
    /// head can be taken for a head with a body.
    pub(in crate::key) fn write(&self, reading: Reading, body: &Whole, key: &mut KeyBuilder) {
        let mut hasher = blake3::Hasher::new();
        let canonical = match (self, reading) {
            (Self::Json(pointers), Reading::Json) => {
                scan(&body.data, pointers).map(|canonical| (canonical, pointers))
            }
            _ => None,
        };
        let form: &[u8] = match canonical {
            Some((canonical, pointers)) => {
                // Of unlike lists each must trust in what it has left out.
                hasher.update(&(pointers.all().len() as u64).to_le_bytes());
                hasher.update(pointers.all());
                canonical.write(|piece| {
                    hasher.update(piece);
                });
                b"json"
            }
            None => {
                hasher.update(&body.data);
                b"raw"
            }
        };
        write(form, hasher.finalize(), body.trailers.as_ref(), key);
    }
}

/// Adds the parts of a body: its form, its digest, all of its trailers.
pub(in crate::key) fn write(
    form: &[u8],
    digest: blake3::Hash,
    trailers: Option<&HeaderMap>,
    key: &mut KeyBuilder,
) {
    key.push(&[]);
    key.push(&[form]);
    key.push(&[digest.as_bytes()]);
    let mut fields: Vec<_> = trailers.into_iter().flatten().collect();
    fields.sort_by_key(|(name, _)| name.as_str());
    for (name, value) in fields {
        key.push(&[name.as_str().as_bytes()]);
        key.push(&[value.as_bytes()]);
    }
}

/// How a body is read that says that it is JSON.
fn json(headers: &HeaderMap) -> Option<Reading> {
    let mut types = headers.get_all(CONTENT_TYPE).into_iter();
    let (Some(kind), None) = (types.next(), types.next()) else { return None };
    let mut parts = kind.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let essence = parts.next()?.to_ascii_lowercase();
    if essence != b"application/json" && !essence.ends_with(b"+json") {
        return None;
    }
    let utf8 = parts.filter_map(charset).all(|charset| charset.eq_ignore_ascii_case(b"utf-8"));
    let plain = headers
        .get_all(CONTENT_ENCODING)
        .into_iter()
        .all(|coding| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"));
    Some(if utf8 && plain { Reading::Json } else { Reading::Bytes })
}

/// The value of a parameter of a media type, if it is that of `charset`.
fn charset(parameter: &[u8]) -> Option<&[u8]> {
    let equals = parameter.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&parameter[..equals], parameter[equals + 1..].trim_ascii());
    let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    name.trim_ascii().eq_ignore_ascii_case(b"charset").then_some(quoted.unwrap_or(value))
}
