//! The stored form of a response while it comes: pieces, each chained to the one
//! before it, and a seal at the end.
//!
//! The chain begins with key and flight and its links are BLAKE3 over what a piece
//! holds: a piece that is damaged, missing, repeated, or of another flight does not
//! fit; with a secret, neither does one that was made without it, nor such a seal.

use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{
    BadRecord, CHECKSUM, Sealer, Terms, VERSION,
    terms::prefix,
    wire::{Field, Piece, fields, frames_of, header_map, is_nothing, list},
};
use crate::{
    frame::{Frame, Head},
    id::{FlightRef, KeyDigest},
    store::Seal,
};

const MAGIC: &[u8; 3] = b"tsp";
const PREFIX: usize = MAGIC.len() + 1;
const NO_TERMS: Terms = Terms { selection: None };

/// A stream's state, the same on both of its ends.
#[derive(Clone, Debug)]
struct Chain {
    sealer: Sealer,
    link: [u8; CHECKSUM],
    pieces: u64,
    /// Bytes of data so far.
    bytes: u64,
}

impl Chain {
    fn new(sealer: &Sealer, key: &KeyDigest, flight: FlightRef) -> Self {
        let link = *sealer.begin(MAGIC, key, flight).as_bytes();
        Self { sealer: *sealer, link, pieces: 0, bytes: 0 }
    }

    fn after(&self, piece: &[u8]) -> blake3::Hash {
        self.sealer.link(&self.link, piece)
    }

    fn go_on(&mut self, link: [u8; CHECKSUM], frames: &[Frame]) {
        self.link = link;
        self.pieces += 1;
        self.bytes += frames.iter().map(data_bytes).sum::<u64>();
    }

    fn is_proven_by(&self, told: &Proof) -> bool {
        let link = self.sealer.close(&self.link, self.pieces, self.bytes);
        told.bytes == self.bytes && link == told.link
    }

    fn proof(&self) -> Proof {
        let link = *self.sealer.close(&self.link, self.pieces, self.bytes).as_bytes();
        Proof { bytes: self.bytes, link }
    }
}

fn data_bytes(frame: &Frame) -> u64 {
    match frame {
        Frame::Data(data) => data.len() as u64,
        Frame::Trailers(_) => 0,
    }
}

#[derive(Serialize, Deserialize)]
struct Proof {
    bytes: u64,
    link: [u8; CHECKSUM],
}

/// A head, how many bytes of data its body has, where that is known, and who may have it.
type Opening<T, U = Terms> = (T, Option<u64>, U);

#[derive(Serialize, Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    head: Option<Start<'a>>,
    #[serde(borrow, deserialize_with = "list")]
    pieces: Vec<Piece<'a>>,
}

#[derive(Serialize, Deserialize)]
struct Start<'a> {
    status: u16,
    /// Bytes of data in the whole body, where that is known.
    length: Option<u64>,
    #[serde(borrow, deserialize_with = "list")]
    fields: Vec<Field<'a>>,
}

/// Writes a stream.
#[derive(Debug)]
pub(crate) struct Encoder(Chain);

impl Encoder {
    pub(crate) fn new(sealer: &Sealer, key: &KeyDigest, flight: FlightRef) -> Self {
        Self(Chain::new(sealer, key, flight))
    }

    /// How many pieces were written.
    pub(crate) fn pieces(&self) -> u64 {
        self.0.pieces
    }

    /// The next piece; the first of all has the head, and the body's length where that
    /// is known.
    pub(crate) fn piece(
        &mut self,
        head: Option<Opening<&Head, &Terms>>,
        frames: &[Frame],
    ) -> Bytes {
        let terms = head.map_or(&NO_TERMS, |(_, _, terms)| terms);
        let head = head.map(|(head, length, _)| Start {
            status: head.status.as_u16(),
            length,
            fields: fields(&head.headers),
        });
        let pieces = frames.iter().filter(|frame| !is_nothing(frame)).map(Piece::from).collect();
        let size = frames.iter().map(|frame| frame.size() + 16).sum::<usize>();
        let mut out = Vec::with_capacity(PREFIX + 64 + size + CHECKSUM);
        out.extend_from_slice(MAGIC);
        out.push(self.0.sealer.version(terms.version()));
        // A vector takes everything; without bytes the piece would be a miss.
        let out = postcard::to_extend(&Body { head, pieces }, out).unwrap_or_default();
        let mut out = terms.write(out);
        let link = *self.0.after(&out).as_bytes();
        out.extend_from_slice(&link);
        self.0.go_on(link, frames);
        out.into()
    }

    /// The seal of what was written.
    pub(crate) fn seal(&self) -> Seal {
        let proof = postcard::to_allocvec(&self.0.proof()).unwrap_or_default();
        Seal { pieces: self.0.pieces, proof: proof.into() }
    }
}

/// Reads a stream.
#[derive(Clone, Debug)]
pub(crate) struct Decoder(Chain);

impl Decoder {
    pub(crate) fn new(sealer: &Sealer, key: &KeyDigest, flight: FlightRef) -> Self {
        Self(Chain::new(sealer, key, flight))
    }

    /// The number of the piece that comes next.
    pub(crate) fn next(&self) -> u64 {
        self.0.pieces
    }

    /// Reads the next piece: the head and the body's length, where it is the first, and
    /// frames, which are slices of `bytes`.
    ///
    /// # Errors
    ///
    /// Anything but the whole next piece of this stream.
    pub(crate) fn piece(
        &mut self,
        bytes: &Bytes,
    ) -> Result<(Option<Opening<Head>>, Vec<Frame>), BadRecord> {
        let (version, rest) = prefix(&self.0.sealer, *MAGIC, bytes)?;
        let (body, link) = rest.split_last_chunk::<CHECKSUM>().ok_or(BadRecord::Checksum)?;
        if self.0.after(&bytes[..PREFIX + body.len()]) != *link {
            return Err(BadRecord::Checksum);
        }
        let (body, rest) =
            postcard::take_from_bytes::<Body<'_>>(body).map_err(|_| BadRecord::Malformed)?;
        let terms = Terms::read(version, rest)?;
        // Terms come with the head.
        let first = self.0.pieces == 0;
        if body.head.is_some() != first || (version != VERSION && !first) {
            return Err(BadRecord::Malformed);
        }
        let head = body.head.map(|start| head_of(&start, terms, bytes).ok_or(BadRecord::Malformed));
        let frames = frames_of(&body.pieces, bytes).ok_or(BadRecord::Malformed)?;
        let head = head.transpose()?;
        self.0.go_on(*link, &frames);
        Ok((head, frames))
    }

    /// Whether the seal is that of what was read.
    pub(crate) fn is_sealed_by(&self, seal: &Seal) -> bool {
        seal.pieces == self.0.pieces
            && postcard::from_bytes::<Proof>(&seal.proof)
                .is_ok_and(|told| self.0.is_proven_by(&told))
    }
}

fn head_of(start: &Start<'_>, terms: Terms, source: &Bytes) -> Option<Opening<Head>> {
    let status = StatusCode::from_u16(start.status).ok()?;
    Some((Head { status, headers: header_map(&start.fields, source)? }, start.length, terms))
}

/// These bytes as what the next piece holds, with all that goes around it.
#[cfg(any(test, fuzzing))]
pub(super) fn chained(decoder: &Decoder, body: &[u8]) -> Bytes {
    let mut out = [&MAGIC[..], &[decoder.0.sealer.version(VERSION)], body].concat();
    let link = decoder.0.after(&out);
    out.extend_from_slice(link.as_bytes());
    out.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderMap;

    use super::*;
    use crate::{id::FlightId, selection::Selection};

    fn sealer() -> Sealer {
        Sealer::default()
    }

    fn key() -> KeyDigest {
        KeyDigest::from_bytes([3; 32])
    }

    fn flight(token: u64) -> FlightRef {
        FlightRef { token, id: FlightId::from_u128(9) }
    }

    fn data(text: &'static str) -> Frame {
        Frame::Data(Bytes::from_static(text.as_bytes()))
    }

    fn head() -> Head {
        let mut headers = HeaderMap::new();
        headers.insert("x-a", "1".parse().unwrap());
        Head { status: StatusCode::CREATED, headers }
    }

    fn terms() -> Terms {
        let names = vec![http::HeaderName::from_static("x-plan")];
        Terms { selection: Some(Arc::new(Selection::from_parts(names, [9; 32]))) }
    }

    fn written() -> (Vec<Bytes>, Seal) {
        let mut encoder = Encoder::new(&sealer(), &key(), flight(7));
        let mut trailers = HeaderMap::new();
        trailers.insert("x-t", "end".parse().unwrap());
        let pieces = vec![
            encoder.piece(Some((&head(), Some(11), &terms())), &[data("one")]),
            encoder.piece(None, &[data("two"), data("three")]),
            encoder.piece(None, &[Frame::Trailers(trailers)]),
        ];
        (pieces, encoder.seal())
    }

    #[test]
    fn a_stream_is_read_back() {
        let (pieces, seal) = written();
        let mut decoder = Decoder::new(&sealer(), &key(), flight(7));
        let mut text = Vec::new();
        let mut trailers = None;
        for (at, piece) in pieces.iter().enumerate() {
            assert!(!decoder.is_sealed_by(&seal));
            let (head, frames) = decoder.piece(piece).unwrap();
            let head = head.map(|(head, length, terms)| {
                (head.status, head.headers["x-a"].clone(), length, terms)
            });
            let first = (StatusCode::CREATED, "1".parse().unwrap(), Some(11), terms());
            assert_eq!(head, (at == 0).then_some(first));
            for frame in frames {
                match frame {
                    Frame::Data(data) => text.extend_from_slice(&data),
                    Frame::Trailers(map) => trailers = Some(map["x-t"].clone()),
                }
            }
        }
        assert_eq!(
            (text.as_slice(), trailers.unwrap().as_bytes()),
            (&b"onetwothree"[..], &b"end"[..])
        );
        assert!(decoder.is_sealed_by(&seal));
        let short = Seal { pieces: 2, ..seal.clone() };
        let damaged = Seal { proof: seal.proof.slice(1..), ..seal };
        assert!(!decoder.is_sealed_by(&short) && !decoder.is_sealed_by(&damaged));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let (pieces, _) = written();
        let mut decoder = Decoder::new(&sealer(), &key(), flight(7));
        assert_eq!(decoder.piece(&pieces[1]).unwrap_err(), BadRecord::Checksum);
        decoder.piece(&pieces[0]).unwrap();
        for bad in [&pieces[0], &pieces[2]] {
            assert_eq!(decoder.piece(bad).unwrap_err(), BadRecord::Checksum);
        }
        for at in 0..pieces[1].len() {
            let mut bytes = pieces[1].to_vec();
            bytes[at] ^= 1;
            assert!(decoder.piece(&bytes.into()).is_err(), "{at}");
            assert!(decoder.piece(&pieces[1].slice(..at)).is_err(), "{at}");
        }
        assert_eq!(decoder.next(), 1);
        decoder.piece(&pieces[1]).unwrap();
        for (key, flight) in [(key(), flight(8)), (KeyDigest::from_bytes([4; 32]), flight(7))] {
            assert!(Decoder::new(&sealer(), &key, flight).piece(&pieces[0]).is_err());
        }
    }

    fn written_with(sealer: &Sealer) -> (Vec<Bytes>, Seal) {
        let mut encoder = Encoder::new(sealer, &key(), flight(7));
        let first = encoder.piece(Some((&head(), None, &terms())), &[data("one")]);
        let pieces = vec![first, encoder.piece(None, &[data("two")])];
        (pieces, encoder.seal())
    }

    #[test]
    fn without_the_secret_no_stream_is_made_or_cut_short() {
        let secret = Sealer::new(Some(b"secret"));
        let (pieces, seal) = written_with(&secret);
        let mut decoder = Decoder::new(&secret, &key(), flight(7));
        assert_eq!(decoder.piece(&pieces[0]).unwrap().1.len(), 1);
        // All that lies in the store of an end after the first piece.
        let (_, link) = pieces[0].split_last_chunk::<CHECKSUM>().unwrap();
        for bytes in [3, 6] {
            let proof = postcard::to_allocvec(&Proof { bytes, link: *link }).unwrap();
            assert!(!decoder.is_sealed_by(&Seal { pieces: 1, proof: proof.into() }));
        }
        assert!(!decoder.is_sealed_by(&Seal { pieces: 1, ..seal.clone() }));
        // A piece of one's own behind it, by what can be seen.
        let body = &pieces[1][..pieces[1].len() - CHECKSUM];
        for link in [blake3::keyed_hash(link, body), blake3::hash(body)] {
            let forged = [body, link.as_bytes()].concat();
            assert_eq!(decoder.piece(&forged.into()).unwrap_err(), BadRecord::Checksum);
        }
        decoder.piece(&pieces[1]).unwrap();
        assert!(decoder.is_sealed_by(&seal));
        let others = [Sealer::default(), Sealer::new(Some(b"Secret")), Sealer::new(Some(b""))];
        for other in &others {
            let (theirs, _) = written_with(other);
            assert!(Decoder::new(&secret, &key(), flight(7)).piece(&theirs[0]).is_err());
            assert!(Decoder::new(other, &key(), flight(7)).piece(&pieces[0]).is_err());
        }
    }

    proptest::proptest! {
        /// Any byte of any piece or of the seal.
        #[test]
        fn a_changed_byte_ends_a_keyed_stream(
            piece in 0..2_usize,
            at in proptest::prelude::any::<proptest::sample::Index>(),
            by in 1..=255_u8,
        ) {
            let secret = Sealer::new(Some(b"secret"));
            let (mut pieces, mut seal) = written_with(&secret);
            let mut bad = pieces[piece].to_vec();
            let place = at.index(bad.len());
            bad[place] ^= by;
            let mut decoder = Decoder::new(&secret, &key(), flight(7));
            if piece == 1 {
                decoder.piece(&pieces[0]).unwrap();
            }
            assert!(decoder.piece(&bad.into()).is_err());
            pieces.drain(..piece).for_each(drop);
            pieces.iter().for_each(|piece| drop(decoder.piece(piece).unwrap()));
            assert!(decoder.is_sealed_by(&seal));
            let mut proof = seal.proof.to_vec();
            let place = at.index(proof.len());
            proof[place] ^= by;
            seal.proof = proof.into();
            assert!(!decoder.is_sealed_by(&seal));
        }
    }
}
