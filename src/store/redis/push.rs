//! Pushes as they come over the wire. Anybody may publish: what does not parse to
//! the last byte is nothing.

use bytes::Bytes;

use super::step;
use crate::{
    id::{FORMAT, FlightId, FlightRef},
    store::{EndStatus, Pushed, Seal},
};

// format, kind, status, flight id in hex, token in 20 decimal digits
const HEADER: usize = 3 + 32 + NUMBER;
const NUMBER: usize = 20;

/// Reads a push.
pub(super) fn parse(payload: Vec<u8>) -> Option<Pushed> {
    let payload = Bytes::from(payload);
    let (head, rest) = (payload.get(..HEADER)?, payload.slice(HEADER.min(payload.len())..));
    if head[0] != b'0' + FORMAT {
        return None;
    }
    let token = number(&head[35..]).filter(|token| *token < step::TOKEN_MAX)?;
    let flight = FlightRef { token, id: flight_id(&head[3..35])? };
    let running = head[2] == b'r';
    match head[1] {
        b'W' if running => rest.is_empty().then_some(Pushed::Watched { flight }),
        // One piece, and pieces that are to be read.
        b'P' if running => {
            let (index, piece) = numbered(&rest)?;
            Some(Pushed::Piece { flight, index, piece: Some(piece) })
        }
        b'N' if running => {
            let (index, rest) = numbered(&rest)?;
            rest.is_empty().then_some(Pushed::Piece { flight, index, piece: None })
        }
        kind => ended(kind, flight, status(head[2])?, rest),
    }
}

fn ended(kind: u8, flight: FlightRef, status: EndStatus, rest: Bytes) -> Option<Pushed> {
    let (mut record, mut seal) = (None, None);
    match kind {
        b'B' if status == EndStatus::Done => record = Some(rest),
        b'E' if rest.is_empty() => {}
        b'S' => {
            let (pieces, proof) = numbered(&rest)?;
            seal = Some(Seal { pieces, proof });
        }
        b'R' if status == EndStatus::Abandoned && rest.is_empty() => {
            return Some(Pushed::Released { flight });
        }
        _ => return None,
    }
    Some(Pushed::Ended { flight, status, record, seal })
}

fn status(letter: u8) -> Option<EndStatus> {
    Some(match letter {
        b'd' => EndStatus::Done,
        b'f' => EndStatus::Failed,
        b't' => EndStatus::TimedOut,
        b'p' => EndStatus::Private,
        b'l' => EndStatus::TooLarge,
        b'a' => EndStatus::Abandoned,
        b's' => EndStatus::Stopped,
        _ => return None,
    })
}

/// A number, and what comes after it.
fn numbered(bytes: &Bytes) -> Option<(u64, Bytes)> {
    let digits = bytes.get(..NUMBER)?;
    Some((number(digits)?, bytes.slice(NUMBER..)))
}

/// Reads decimal digits, and nothing else.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.len() > NUMBER || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Reads 32 lowercase hexadecimal digits.
pub(super) fn flight_id(digits: &[u8]) -> Option<FlightId> {
    if digits.len() != 32 || !digits.iter().all(|d| matches!(d, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    u128::from_str_radix(digits, 16).ok().map(FlightId::from_u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(head: &str, token: &str, body: &[u8]) -> Vec<u8> {
        let mut bytes = format!("{head}{:032x}{token}", 0xabc).into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn reads_what_the_scripts_write() {
        let token = "00001795968540019938";
        let flight = FlightRef { token: 1_795_968_540_019_938, id: FlightId::from_u128(0xabc) };
        match parse(payload("1Bd", token, b"\0body")) {
            Some(Pushed::Ended {
                flight: f,
                status: EndStatus::Done,
                record: Some(body),
                seal: None,
            }) => {
                assert_eq!((f, &body[..]), (flight, &b"\0body"[..]));
            }
            other => panic!("{other:?}"),
        }
        let count = "00000000000000000007";
        match parse(payload("1Sd", token, format!("{count}proof").as_bytes())) {
            Some(Pushed::Ended { status: EndStatus::Done, record: None, seal, .. }) => {
                assert_eq!(seal, Some(Seal { pieces: 7, proof: Bytes::from_static(b"proof") }));
            }
            other => panic!("{other:?}"),
        }
        for (head, body, expected) in
            [("1Pr", "abc", Some("abc")), ("1Pr", "", Some("")), ("1Nr", "", None)]
        {
            match parse(payload(head, token, format!("{count}{body}").as_bytes())) {
                Some(Pushed::Piece { flight: f, index: 7, piece }) => {
                    assert_eq!((f, piece.as_deref()), (flight, expected.map(str::as_bytes)));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(parse(payload("1Wr", token, b"")),
            Some(Pushed::Watched { flight: f }) if f == flight));
        assert!(matches!(parse(payload("1Ra", token, b"")),
            Some(Pushed::Released { flight: f }) if f == flight));
        assert!(matches!(
            parse(payload("1Ef", token, b"")),
            Some(Pushed::Ended { status: EndStatus::Failed, record: None, seal: None, .. })
        ));
    }

    #[test]
    fn hostile_bytes_are_nothing() {
        let token = "00001795968540019938";
        for (head, token, body) in [
            ("2Bd", token, &b""[..]),
            ("1Xd", token, b""),
            ("1Bx", token, b""),
            ("1Bf", token, b"x"),
            ("1Ef", token, b"x"),
            ("1Ra", token, b"x"),
            ("1Er", token, b""),
            ("1Wd", token, b""),
            ("1Wr", token, b"x"),
            ("1Pd", token, b"00000000000000000007x"),
            ("1Pr", token, b"0000000000000000000"),
            ("1Pr", token, b"-0000000000000000007x"),
            ("1Nr", token, b"00000000000000000007x"),
            ("1Nr", token, b""),
            ("1Sr", token, b"00000000000000000007"),
            ("1Sd", token, b"99999999999999999999x"),
            ("1Sd", token, b"7"),
            ("1Bd", "+0001795968540019938", b""),
            ("1Bd", "99999999999999999999", b""),
        ] {
            assert!(parse(payload(head, token, body)).is_none(), "{head} {token}");
        }
        for whole in [
            payload("1Ef", token, b""),
            payload("1Wr", token, b""),
            payload("1Nr", token, &[b'1'; 20]),
            payload("1Sd", token, &[b'1'; 20]),
        ] {
            assert!(parse(whole.clone()).is_some());
            for length in 0..whole.len() {
                assert!(parse(whole[..length].to_vec()).is_none());
            }
        }
        for byte in 0..=255 {
            let _ = parse(vec![byte; 80]);
        }
    }
}
