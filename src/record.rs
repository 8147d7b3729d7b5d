//! The stored form of a finished response.
//!
//! `"tsf"`, a version, the body in postcard, and a BLAKE3 checksum over all of
//! that. Key and flight are in the body: a record that answers another question
//! is as bad as a damaged one. Whoever cannot read a record takes it for a miss.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{SeqAccess, Visitor},
};

use crate::{
    frame::{Frame, Head},
    id::{FlightId, FlightRef, KeyDigest},
};

const MAGIC: &[u8; 3] = b"tsf";
const VERSION: u8 = 1;
const PREFIX: usize = MAGIC.len() + 1;
const CHECKSUM: usize = blake3::OUT_LEN;

/// A response that has been read back.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The flight that it came from.
    pub(crate) flight: FlightRef,
    pub(crate) head: Head,
    pub(crate) frames: Vec<Frame>,
}

/// Why bytes are not a record that can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadRecord {
    /// Too short, or not written by this crate.
    Foreign,
    /// Written by another release.
    Version(u8),
    /// Damaged.
    Checksum,
    /// Whole, but with something in it that no response has.
    Malformed,
    /// The record of another key.
    OtherKey,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("not a record"),
            Self::Version(found) => write!(f, "record of version {found}, not {VERSION}"),
            Self::Checksum => f.write_str("record is damaged"),
            Self::Malformed => f.write_str("record is malformed"),
            Self::OtherKey => f.write_str("record of another key"),
        }
    }
}

impl std::error::Error for BadRecord {}

/// Writes a record.
pub(crate) fn encode(key: &KeyDigest, flight: FlightRef, head: &Head, frames: &[Frame]) -> Bytes {
    let body = Body {
        key: *key.as_bytes(),
        token: flight.token,
        id: flight.id.as_u128(),
        status: head.status.as_u16(),
        fields: fields(&head.headers),
        pieces: frames.iter().filter(|frame| !is_nothing(frame)).map(Piece::from).collect(),
    };
    let sizes = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 8);
    let size = sizes.chain(frames.iter().map(|frame| frame.size() + 16)).sum::<usize>();

    let mut out = Vec::with_capacity(PREFIX + 64 + size + CHECKSUM);
    out.extend_from_slice(MAGIC);
    out.push(VERSION);
    // A vector takes everything; without bytes the record would be a miss.
    let mut out = postcard::to_extend(&body, out).unwrap_or_default();
    let checksum = blake3::hash(&out);
    out.extend_from_slice(checksum.as_bytes());
    out.into()
}

/// Reads a record; frames and header values are slices of `bytes`.
///
/// # Errors
///
/// Anything but a whole record of this key and this version.
pub(crate) fn decode(key: &KeyDigest, bytes: &Bytes) -> Result<Record, BadRecord> {
    let (magic, rest) = bytes.split_first_chunk().ok_or(BadRecord::Foreign)?;
    let (&version, rest) = rest.split_first().ok_or(BadRecord::Foreign)?;
    if magic != MAGIC {
        return Err(BadRecord::Foreign);
    }
    if version != VERSION {
        return Err(BadRecord::Version(version));
    }
    let (body, checksum) = rest.split_last_chunk::<CHECKSUM>().ok_or(BadRecord::Checksum)?;
    if blake3::hash(&bytes[..PREFIX + body.len()]) != *checksum {
        return Err(BadRecord::Checksum);
    }
    let (body, rest) =
        postcard::take_from_bytes::<Body<'_>>(body).map_err(|_| BadRecord::Malformed)?;
    if body.key != *key.as_bytes() {
        return Err(BadRecord::OtherKey);
    }
    read(&body, bytes).filter(|_| rest.is_empty()).ok_or(BadRecord::Malformed)
}

fn read(body: &Body<'_>, source: &Bytes) -> Option<Record> {
    let head = Head {
        status: StatusCode::from_u16(body.status).ok()?,
        headers: header_map(&body.fields, source)?,
    };
    let mut frames = Vec::with_capacity(body.pieces.len());
    for piece in &body.pieces {
        if matches!(frames.last(), Some(Frame::Trailers(_))) {
            return None;
        }
        frames.push(match piece {
            Piece::Data(Raw([])) => return None,
            Piece::Data(Raw(data)) => Frame::Data(source.slice_ref(data)),
            Piece::Trailers(fields) => Frame::Trailers(header_map(fields, source)?),
        });
    }
    let flight = FlightRef { token: body.token, id: FlightId::from_u128(body.id) };
    Some(Record { flight, head, frames })
}

/// No frame is empty; one that is says nothing and is not written.
fn is_nothing(frame: &Frame) -> bool {
    matches!(frame, Frame::Data(data) if data.is_empty())
}

fn fields(map: &HeaderMap) -> Vec<Field<'_>> {
    map.iter()
        .map(|(name, value)| Field {
            name: name.as_str(),
            value: Raw(value.as_bytes()),
            sensitive: value.is_sensitive(),
        })
        .collect()
}

fn header_map(fields: &[Field<'_>], source: &Bytes) -> Option<HeaderMap> {
    let mut map = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_lowercase(field.name.as_bytes()).ok()?;
        let mut value = HeaderValue::from_maybe_shared(source.slice_ref(field.value.0)).ok()?;
        value.set_sensitive(field.sensitive);
        map.try_append(name, value).ok()?;
    }
    Some(map)
}

#[derive(Serialize, Deserialize)]
struct Body<'a> {
    key: [u8; 32],
    token: u64,
    id: u128,
    status: u16,
    #[serde(borrow, deserialize_with = "list")]
    fields: Vec<Field<'a>>,
    #[serde(borrow, deserialize_with = "list")]
    pieces: Vec<Piece<'a>>,
}

#[derive(Serialize, Deserialize)]
struct Field<'a> {
    name: &'a str,
    #[serde(borrow)]
    value: Raw<'a>,
    sensitive: bool,
}

#[derive(Serialize, Deserialize)]
enum Piece<'a> {
    #[serde(borrow)]
    Data(Raw<'a>),
    #[serde(deserialize_with = "list")]
    Trailers(Vec<Field<'a>>),
}

impl<'a> From<&'a Frame> for Piece<'a> {
    fn from(frame: &'a Frame) -> Self {
        match frame {
            Frame::Data(data) => Self::Data(Raw(data)),
            Frame::Trailers(map) => Self::Trailers(fields(map)),
        }
    }
}

/// Bytes, written as one piece; a slice would go byte by byte.
struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&[u8]>::deserialize(deserializer).map(Self)
    }
}

/// Reads a list without believing its count: room is made for what is there.
fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Items<T>(Vec<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Vec<T>, A::Error> {
            while let Some(item) = seq.next_element()? {
                self.0.push(item);
            }
            Ok(self.0)
        }
    }

    deserializer.deserialize_seq(Items(Vec::new()))
}

#[cfg(test)]
mod tests;
