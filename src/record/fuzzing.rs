//! Records and pieces, out of any bytes.
#![allow(unreachable_pub, reason = "no part of the public interface")]

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{
    Decoder, Encoder, Sealer, TERMS_VERSION, Terms, VERSION, decode, encode, stream, whole,
};
use crate::{
    frame::{Frame, Head},
    fuzzing::Tape,
    id::{FlightId, FlightRef, KeyDigest},
    selection::Selection,
    store::Seal,
};

const KEY: KeyDigest = KeyDigest::from_bytes([7; 32]);
const SEALER: Sealer = Sealer::NONE;
const OTHER: KeyDigest = KeyDigest::from_bytes([8; 32]);

fn flight(token: u64) -> FlightRef {
    FlightRef { token, id: FlightId::from_u128(5) }
}

fn head() -> Head {
    let mut headers = HeaderMap::new();
    headers.insert("x-a", HeaderValue::from_static("1"));
    headers.append("x-a", HeaderValue::from_bytes(b"\xff").unwrap_or(HeaderValue::from_static("")));
    Head { status: StatusCode::OK, headers }
}

fn terms() -> Terms {
    let selection = Selection::from_parts(vec![HeaderName::from_static("x-plan")], [9; 32]);
    Terms { selection: Some(Arc::new(selection)) }
}

fn frames() -> Vec<Frame> {
    let data = ["one", "two", "three"].map(|text| Frame::Data(Bytes::from(text)));
    data.into_iter().chain([Frame::Trailers(head().headers)]).collect()
}

/// A stream of four pieces.
fn written(key: KeyDigest, token: u64) -> (Vec<Bytes>, Seal) {
    let mut encoder = Encoder::new(&SEALER, &key, flight(token));
    let frames = frames();
    let pieces = frames.chunks(1).enumerate().map(|(at, frames)| {
        let opening = head();
        encoder.piece((at == 0).then_some((&opening, Some(11), &terms())), frames)
    });
    (pieces.collect(), encoder.seal())
}

fn same(a: &[Frame], b: &[Frame]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|pair| match pair {
            (Frame::Data(a), Frame::Data(b)) => a == b,
            (Frame::Trailers(a), Frame::Trailers(b)) => a.iter().eq(b),
            _ => false,
        })
}

/// Any bytes as a record: read as none, or as one that says the same when it is written
/// again; and never as that of another key.
pub fn records(data: &[u8]) {
    let sealed = [VERSION, TERMS_VERSION].map(|version| whole::sealed(&SEALER, version, data));
    for bytes in sealed.into_iter().chain([Bytes::copy_from_slice(data)]) {
        let Ok(record) = decode(&SEALER, &KEY, &bytes) else { continue };
        assert!(decode(&SEALER, &OTHER, &bytes).is_err());
        let again =
            encode(&SEALER, &KEY, record.flight, &record.head, &record.terms, &record.frames);
        let read = decode(&SEALER, &KEY, &again).expect("what was written is read");
        assert_eq!((read.flight, read.head.status), (record.flight, record.head.status));
        assert_eq!(read.terms, record.terms);
        assert!(read.head.headers.iter().eq(&record.head.headers));
        assert!(same(&read.frames, &record.frames));
    }
    // One that is whole, but for what the bytes say.
    let good = encode(&SEALER, &KEY, flight(7), &head(), &terms(), &frames());
    let mut tape = Tape::new(data);
    let mut bad = good.to_vec();
    for _ in 0..3 {
        let at = tape.index(bad.len());
        bad[at] ^= tape.byte();
    }
    bad.truncate(good.len() - usize::from(tape.byte() % 4));
    assert_eq!(decode(&SEALER, &KEY, &bad.clone().into()).is_ok(), bad == good);
}

/// Any pieces in any order: only the next one of the stream is read, and only the whole
/// stream is sealed.
pub fn pieces(data: &[u8]) {
    let (own, seal) = written(KEY, 7);
    let others = [written(KEY, 8), written(OTHER, 7)];
    let mut decoder = Decoder::new(&SEALER, &KEY, flight(7));
    let mut tape = Tape::new(data);
    let mut text = Vec::new();
    while let Some(step) = tape.next() {
        let at = usize::from(step % 4);
        let next = usize::try_from(decoder.next()).unwrap_or(usize::MAX);
        let fits = match step >> 2 & 7 {
            0..=3 => read(&mut decoder, &own[at], &mut text) == (at == next),
            4 => !read(&mut decoder, &others[0].0[at], &mut text),
            5 => !read(&mut decoder, &others[1].0[at], &mut text),
            6 => {
                let mut bad = own[next.min(3)].to_vec();
                let place = tape.index(bad.len());
                bad[place] ^= tape.byte();
                let changed = bad != own[next.min(3)];
                let was_read = read(&mut decoder, &bad.into(), &mut text);
                was_read != changed || next > 3
            }
            _ => {
                // Bytes of their own, chained as if they were the next piece.
                let bytes = tape.bytes(usize::from(step >> 5) * 8);
                let mut elsewhere = decoder.clone();
                let _ = elsewhere.piece(&stream::chained(&decoder, bytes));
                !read(&mut decoder, &Bytes::copy_from_slice(bytes), &mut text)
            }
        };
        assert!(fits, "{step}");
    }
    assert!(b"onetwothree".starts_with(&text));
    assert_eq!(decoder.is_sealed_by(&seal), decoder.next() == 4);
    for (_, seal) in others {
        assert!(!decoder.is_sealed_by(&seal));
    }
}

fn read(decoder: &mut Decoder, piece: &Bytes, text: &mut Vec<u8>) -> bool {
    let Ok((_, frames)) = decoder.piece(piece) else { return false };
    for frame in frames {
        if let Frame::Data(data) = frame {
            text.extend_from_slice(&data);
        }
    }
    true
}

/// Where to begin with [`records`].
#[must_use]
pub fn record_seeds() -> Vec<Vec<u8>> {
    let whole = encode(&SEALER, &KEY, flight(7), &head(), &terms(), &frames()).to_vec();
    let bare = Head { status: StatusCode::NO_CONTENT, headers: HeaderMap::new() };
    let bare = encode(&SEALER, &KEY, flight(1), &bare, &Terms::default(), &[]).to_vec();
    // What is between the version and the checksum.
    let body = whole[4..whole.len() - 32].to_vec();
    vec![whole, bare, body]
}

/// Where to begin with [`pieces`].
#[must_use]
pub fn piece_seeds() -> Vec<Vec<u8>> {
    let mut chained = vec![0x1c | 7 << 5];
    chained.extend_from_slice(&written(KEY, 7).0[0]);
    vec![vec![0, 1, 2, 3], vec![0, 0x11, 0x15, 0x18, 3, 1, 1, 2, 3], chained]
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        /// However frames are dealt out to pieces, the same comes out.
        #[test]
        fn streams_are_read_back(
            status in 100_u16..1000,
            length in proptest::option::of(any::<u64>()),
            dealt in vec(vec(vec(any::<u8>(), 0..200), 0..4), 1..8),
        ) {
            let head = Head { status: StatusCode::from_u16(status).unwrap(), ..head() };
            let terms = terms();
            let mut encoder = Encoder::new(&SEALER, &KEY, flight(7));
            let mut decoder = Decoder::new(&SEALER, &KEY, flight(7));
            for (at, data) in dealt.into_iter().enumerate() {
                let frames: Vec<_> =
                    data.into_iter().map(|data| Frame::Data(data.into())).collect();
                let piece = encoder.piece((at == 0).then_some((&head, length, &terms)), &frames);
                let (opening, read) = decoder.piece(&piece).unwrap();
                prop_assert_eq!(opening.is_some(), at == 0);
                if let Some((opening, told, said)) = opening {
                    prop_assert_eq!((opening.status, told), (head.status, length));
                    prop_assert_eq!(&said, &terms);
                    prop_assert!(opening.headers.iter().eq(&head.headers));
                }
                let sent: Vec<_> = frames.into_iter().filter(|f| f.size() > 0).collect();
                prop_assert!(same(&read, &sent));
                prop_assert!(decoder.is_sealed_by(&encoder.seal()));
            }
        }
    }
}
