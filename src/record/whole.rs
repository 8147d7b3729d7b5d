//! The stored form of a finished response.

use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{
    BadRecord, CHECKSUM, Sealer, Terms,
    terms::prefix,
    wire::{Field, Piece, fields, frames_of, header_map, is_nothing, list},
};
use crate::{
    frame::{Frame, Head},
    id::{FlightId, FlightRef, KeyDigest},
};

const MAGIC: &[u8; 3] = b"tsf";
const PREFIX: usize = MAGIC.len() + 1;

/// A response that has been read back.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The flight that it came from.
    pub(crate) flight: FlightRef,
    pub(crate) head: Head,
    pub(crate) terms: Terms,
    pub(crate) frames: Vec<Frame>,
}

/// Writes a record.
pub(crate) fn encode(
    sealer: &Sealer,
    key: &KeyDigest,
    flight: FlightRef,
    head: &Head,
    terms: &Terms,
    frames: &[Frame],
) -> Bytes {
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
    out.push(sealer.version(terms.version()));
    // A vector takes everything; without bytes the record would be a miss.
    let mut out = terms.write(postcard::to_extend(&body, out).unwrap_or_default());
    let checksum = sealer.whole(&out);
    out.extend_from_slice(checksum.as_bytes());
    out.into()
}

/// Reads a record; frames and header values are slices of `bytes`.
///
/// # Errors
///
/// Anything but a whole record of this key and this version, sealed as this one seals.
pub(crate) fn decode(sealer: &Sealer, key: &KeyDigest, bytes: &Bytes) -> Result<Record, BadRecord> {
    let (version, rest) = prefix(sealer, *MAGIC, bytes)?;
    let (body, checksum) = rest.split_last_chunk::<CHECKSUM>().ok_or(BadRecord::Checksum)?;
    if sealer.whole(&bytes[..PREFIX + body.len()]) != *checksum {
        return Err(BadRecord::Checksum);
    }
    let (body, rest) =
        postcard::take_from_bytes::<Body<'_>>(body).map_err(|_| BadRecord::Malformed)?;
    if body.key != *key.as_bytes() {
        return Err(BadRecord::OtherKey);
    }
    let terms = Terms::read(version, rest)?;
    read(&body, terms, bytes).ok_or(BadRecord::Malformed)
}

fn read(body: &Body<'_>, terms: Terms, source: &Bytes) -> Option<Record> {
    let head = Head {
        status: StatusCode::from_u16(body.status).ok()?,
        headers: header_map(&body.fields, source)?,
    };
    let frames = frames_of(&body.pieces, source)?;
    let flight = FlightRef { token: body.token, id: FlightId::from_u128(body.id) };
    Some(Record { flight, head, terms, frames })
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

/// These bytes as what a record of this version holds, with all that goes around it.
#[cfg(any(test, fuzzing))]
pub(super) fn sealed(sealer: &Sealer, version: u8, body: &[u8]) -> Bytes {
    let mut out = [&MAGIC[..], &[sealer.version(version)], body].concat();
    let checksum = sealer.whole(&out);
    out.extend_from_slice(checksum.as_bytes());
    out.into()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
