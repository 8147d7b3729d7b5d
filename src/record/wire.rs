//! How heads and frames are written.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{SeqAccess, Visitor},
};

use crate::frame::Frame;

/// No frame is empty; one that is says nothing and is not written.
pub(super) fn is_nothing(frame: &Frame) -> bool {
    matches!(frame, Frame::Data(data) if data.is_empty())
}

pub(super) fn fields(map: &HeaderMap) -> Vec<Field<'_>> {
    map.iter()
        .map(|(name, value)| Field {
            name: name.as_str(),
            value: Raw(value.as_bytes()),
            sensitive: value.is_sensitive(),
        })
        .collect()
}

pub(super) fn header_map(fields: &[Field<'_>], source: &Bytes) -> Option<HeaderMap> {
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
pub(super) struct Field<'a> {
    pub(super) name: &'a str,
    #[serde(borrow)]
    pub(super) value: Raw<'a>,
    pub(super) sensitive: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) enum Piece<'a> {
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

/// Reads frames back; none where no body has such frames.
pub(super) fn frames_of(pieces: &[Piece<'_>], source: &Bytes) -> Option<Vec<Frame>> {
    let mut frames = Vec::with_capacity(pieces.len());
    for piece in pieces {
        if matches!(frames.last(), Some(Frame::Trailers(_))) {
            return None;
        }
        frames.push(match piece {
            Piece::Data(Raw([])) => return None,
            Piece::Data(Raw(data)) => Frame::Data(source.slice_ref(data)),
            Piece::Trailers(fields) => Frame::Trailers(header_map(fields, source)?),
        });
    }
    Some(frames)
}

/// Bytes, written as one piece; a slice would go byte by byte.
pub(super) struct Raw<'a>(pub(super) &'a [u8]);

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
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
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
