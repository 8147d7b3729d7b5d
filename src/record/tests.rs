use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::{collection::vec, prelude::*};

use super::{
    super::{VERSION, wire::Raw},
    *,
};
use crate::selection::Selection;

const KEY: KeyDigest = KeyDigest::from_bytes([7; 32]);
const PLAIN: Sealer = Sealer::NONE;
const FLIGHT: FlightRef = FlightRef { token: u64::MAX, id: FlightId::from_u128(u128::MAX - 5) };

fn sample() -> (Head, Vec<Frame>) {
    let mut headers = HeaderMap::new();
    for value in [&b"<1>"[..], b"", b"\xE9\xFF", b"<1>"] {
        headers.append("link", HeaderValue::from_bytes(value).unwrap());
    }
    headers.append("x-empty", HeaderValue::from_static(""));
    let mut secret = HeaderValue::from_static("s");
    secret.set_sensitive(true);
    headers.append("x-secret", secret);
    let frames = vec![
        Frame::Data(Bytes::from_static(b"one")),
        Frame::Data(vec![0; 1000].into()),
        Frame::Trailers(headers.clone()),
    ];
    (Head { status: StatusCode::IM_A_TEAPOT, headers }, frames)
}

fn encoded() -> Bytes {
    let (head, frames) = sample();
    encode(&PLAIN, &KEY, FLIGHT, &head, &Terms::default(), &frames)
}

fn assert_same(record: &Record, head: &Head, frames: &[Frame]) {
    assert_eq!(record.flight, FLIGHT);
    assert_eq!(record.head.status, head.status);
    assert_maps(&record.head.headers, &head.headers);
    assert_eq!(record.frames.len(), frames.len());
    for pair in record.frames.iter().zip(frames) {
        match pair {
            (Frame::Data(a), Frame::Data(b)) => assert_eq!(a, b),
            (Frame::Trailers(a), Frame::Trailers(b)) => assert_maps(a, b),
            other => panic!("{other:?}"),
        }
    }
}

fn assert_maps(a: &HeaderMap, b: &HeaderMap) {
    assert!(a.iter().eq(b.iter()), "order and all");
    assert!(a.values().zip(b.values()).all(|(a, b)| a.is_sensitive() == b.is_sensitive()));
}

fn body_of(record: &Bytes) -> &[u8] {
    &record[PREFIX..record.len() - CHECKSUM]
}

#[test]
fn all_of_a_response_survives() {
    let (head, frames) = sample();
    assert_same(&decode(&PLAIN, &KEY, &encoded()).unwrap(), &head, &frames);
    let nothing = Head { status: StatusCode::OK, headers: HeaderMap::new() };
    let record = encode(&PLAIN, &KEY, FLIGHT, &nothing, &Terms::default(), &[]);
    assert_same(&decode(&PLAIN, &KEY, &record).unwrap(), &nothing, &[]);
    assert_eq!(
        encode(&PLAIN, &KEY, FLIGHT, &nothing, &Terms::default(), &[Frame::Data(Bytes::new())]),
        record,
        "an empty frame is none",
    );
}

#[test]
fn bodies_are_not_copied() {
    let record = encoded();
    let inside = record.as_ptr_range();
    let read = decode(&PLAIN, &KEY, &record).unwrap();
    let Frame::Data(data) = &read.frames[1] else { panic!("data") };
    assert!(inside.contains(&data.as_ptr()));
}

#[test]
fn another_key_is_no_answer() {
    let other = KeyDigest::from_bytes([8; 32]);
    assert_eq!(decode(&PLAIN, &other, &encoded()).unwrap_err(), BadRecord::OtherKey);
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let good = encoded();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.to_vec();
            bad[at] ^= 1 << bit;
            assert!(decode(&PLAIN, &KEY, &bad.into()).is_err(), "byte {at}");
        }
        assert!(decode(&PLAIN, &KEY, &good.slice(..at)).is_err(), "cut at {at}");
        assert!(decode(&PLAIN, &KEY, &good.slice(at + 1..)).is_err(), "begun at {at}");
    }
    let longer = [&good[..], b"x"].concat();
    assert_eq!(decode(&PLAIN, &KEY, &longer.into()).unwrap_err(), BadRecord::Checksum);
}

#[test]
fn other_versions_are_told_apart_from_damage() {
    for version in [0, 2, 255] {
        let mut bad = encoded().to_vec();
        bad[3] = version;
        assert_eq!(decode(&PLAIN, &KEY, &bad.into()).unwrap_err(), BadRecord::Version(version));
    }
    assert_eq!(decode(&PLAIN, &KEY, &Bytes::new()).unwrap_err(), BadRecord::Foreign);
    assert_eq!(
        decode(&PLAIN, &KEY, &Bytes::from_static(b"HTTP/1.1")).unwrap_err(),
        BadRecord::Foreign
    );
    assert_eq!(
        decode(&PLAIN, &KEY, &Bytes::from_static(b"tsf\x01")).unwrap_err(),
        BadRecord::Checksum
    );
}

fn terms() -> Terms {
    let names = ["x-a", "x-plan"].map(HeaderName::from_static).to_vec();
    Terms { selection: Some(Arc::new(Selection::from_parts(names, [9; 32]))) }
}

#[test]
fn terms_are_read_back_and_have_a_version_of_their_own() {
    let (head, frames) = sample();
    let record = encode(&PLAIN, &KEY, FLIGHT, &head, &terms(), &frames);
    assert_eq!(record[3], 3);
    let read = decode(&PLAIN, &KEY, &record).unwrap();
    assert_eq!(read.terms, terms());
    assert_same(&read, &head, &frames);
    for at in 0..record.len() {
        let mut bad = record.to_vec();
        bad[at] ^= 1;
        assert!(decode(&PLAIN, &KEY, &bad.into()).is_err(), "byte {at}");
    }
    assert_eq!(encoded()[3], 1, "what all releases read");
    assert_eq!(decode(&PLAIN, &KEY, &encoded()).unwrap().terms, Terms::default());
}

#[test]
fn terms_in_the_wrong_place_are_malformed() {
    let (head, frames) = sample();
    let full = encode(&PLAIN, &KEY, FLIGHT, &head, &terms(), &frames);
    let again = |version: u8, body: &[u8]| {
        let mut out = [&MAGIC[..], &[version], body].concat();
        let checksum = blake3::hash(&out);
        out.extend_from_slice(checksum.as_bytes());
        decode(&PLAIN, &KEY, &out.into()).map(|_| ())
    };
    let malformed = Err(BadRecord::Malformed);
    assert_eq!(again(3, body_of(&full)), Ok(()));
    assert_eq!(again(1, body_of(&full)), malformed);
    assert_eq!(again(3, body_of(&encoded())), malformed);
    assert_eq!(again(3, &[body_of(&full), b"x"].concat()), malformed);
    let at = full.windows(6).position(|window| window == b"x-plan").unwrap() - PREFIX;
    let mut shouted = body_of(&full).to_vec();
    shouted[at] = b'X';
    assert_eq!(again(3, &shouted), malformed);
}

#[test]
fn what_no_response_has_is_malformed() {
    let body = |status, fields, pieces| {
        let body = Body { key: [7; 32], token: 1, id: 1, status, fields, pieces };
        decode(&PLAIN, &KEY, &sealed(&PLAIN, VERSION, &postcard::to_stdvec(&body).unwrap()))
            .map(|_| ())
    };
    let field = |name, value| Field { name, value: Raw(value), sensitive: false };
    assert_eq!(body(200, vec![], vec![]), Ok(()));
    for result in [
        body(99, vec![], vec![]),
        body(1000, vec![], vec![]),
        body(200, vec![field("Upper", b"")], vec![]),
        body(200, vec![field("", b"")], vec![]),
        body(200, vec![field("a", b"\r\n")], vec![]),
        body(200, vec![], vec![Piece::Data(Raw(b""))]),
        body(200, vec![], vec![Piece::Trailers(vec![]), Piece::Data(Raw(b"x"))]),
        body(200, vec![], vec![Piece::Trailers(vec![]), Piece::Trailers(vec![])]),
        body(200, (0..40_000).map(|_| field("a", b"")).collect(), vec![Piece::Data(Raw(b""))]),
    ] {
        assert_eq!(result, Err(BadRecord::Malformed));
    }
    // More names than a header map takes.
    let names: Vec<String> = (0..40_000).map(|n| format!("n{n}")).collect();
    let fields = names.iter().map(|name| field(name, b"")).collect();
    assert_eq!(body(200, fields, vec![]), Err(BadRecord::Malformed));
    // Bytes after the end.
    let more = [body_of(&encoded()), b"x"].concat();
    assert_eq!(
        decode(&PLAIN, &KEY, &sealed(&PLAIN, VERSION, &more)).unwrap_err(),
        BadRecord::Malformed
    );
}

#[test]
fn huge_counts_make_no_room() {
    let start = [&[7; 32][..], &[1, 1, 200, 1]].concat();
    for count in [&[255, 255, 3][..], &[255, 255, 255, 255, 15], &[255; 10]] {
        for body in [[&start, count].concat(), [&start, &[0][..], count].concat()] {
            assert_eq!(
                decode(&PLAIN, &KEY, &sealed(&PLAIN, VERSION, &body)).unwrap_err(),
                BadRecord::Malformed
            );
        }
    }
}

fn header_maps() -> impl Strategy<Value = HeaderMap> {
    let value = vec(any::<u8>(), 0..20)
        .prop_filter_map("value", |bytes| HeaderValue::from_bytes(&bytes).ok());
    vec(("[a-z][a-z0-9-]{0,3}", value), 0..10).prop_map(|fields| {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
        }
        map
    })
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        status in 100_u16..1000,
        headers in header_maps(),
        data in vec(vec(any::<u8>(), 1..300), 0..5),
        trailers in proptest::option::of(header_maps()),
    ) {
        let head = Head { status: StatusCode::from_u16(status).unwrap(), headers };
        let mut frames: Vec<_> = data.into_iter().map(|data| Frame::Data(data.into())).collect();
        frames.extend(trailers.map(Frame::Trailers));
        let record = encode(&PLAIN, &KEY, FLIGHT, &head, &Terms::default(), &frames);
        assert_same(&decode(&PLAIN, &KEY, &record).unwrap(), &head, &frames);
    }

    #[test]
    fn random_bytes_are_refused(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&PLAIN, &KEY, &bytes.clone().into()).is_err());
        prop_assert!(decode(&PLAIN, &KEY, &sealed(&PLAIN, VERSION, &bytes)).is_err());
    }

    // With a checksum that fits, a change may give another response that is
    // well formed; it must never panic.
    #[test]
    fn changed_and_sealed_again_never_panics(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in any::<prop::sample::Index>(),
    ) {
        let good = encoded();
        let mut body = body_of(&good).to_vec();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let _ = decode(&PLAIN, &KEY, &sealed(&PLAIN, VERSION, &body));
        prop_assert!(decode(&PLAIN, &KEY, &sealed(&PLAIN, VERSION, &body[..end.index(body.len())])).is_err());
    }
}

fn keyed(sealer: &Sealer) -> Bytes {
    let (head, frames) = sample();
    encode(sealer, &KEY, FLIGHT, &head, &terms(), &frames)
}

#[test]
fn without_the_secret_no_record_is_made() {
    let secret = Sealer::new(Some(b"secret"));
    let record = keyed(&secret);
    let (head, frames) = sample();
    let read = decode(&secret, &KEY, &record).unwrap();
    assert_same(&read, &head, &frames);
    assert_eq!(read.terms, terms());
    let other = KeyDigest::from_bytes([8; 32]);
    assert_eq!(decode(&secret, &other, &record).unwrap_err(), BadRecord::OtherKey);
    for other in [PLAIN, Sealer::new(Some(b"Secret")), Sealer::new(Some(b""))] {
        assert!(decode(&secret, &KEY, &keyed(&other)).is_err());
        assert!(decode(&other, &KEY, &record).is_err());
    }
    // Sealed anew by who does not know it, also under the version of what is keyed.
    for version in [record[3], 1, 3] {
        let mut forged = [&record[..3], &[version], body_of(&record)].concat();
        let checksum = blake3::hash(&forged);
        forged.extend_from_slice(checksum.as_bytes());
        assert!(decode(&secret, &KEY, &forged.into()).is_err(), "{version}");
    }
    assert!(!format!("{secret:?}").contains("secret"));
}

proptest! {
    #[test]
    fn a_changed_byte_is_a_keyed_miss(at in any::<prop::sample::Index>(), by in 1..=255_u8) {
        let secret = Sealer::new(Some(b"secret"));
        let mut bad = keyed(&secret).to_vec();
        let place = at.index(bad.len());
        bad[place] ^= by;
        prop_assert!(decode(&secret, &KEY, &bad.into()).is_err());
    }
}
