//! Pushes as they come over the wire. Anybody may publish: what does not parse to
//! the last byte is nothing.

use bytes::Bytes;

use crate::{
    id::{FlightId, FlightRef},
    store::{EndStatus, Pushed},
};

// format, kind, status, flight id in hex, token in 20 decimal digits
const HEADER: usize = 3 + 32 + 20;

/// Reads a push.
pub(super) fn parse(payload: Vec<u8>) -> Option<Pushed> {
    let head = payload.get(..HEADER)?;
    if head[0] != b'1' {
        return None;
    }
    let status = match head[2] {
        b'd' => EndStatus::Done,
        b'f' => EndStatus::Failed,
        b't' => EndStatus::TimedOut,
        b'p' => EndStatus::Private,
        b'l' => EndStatus::TooLarge,
        b'a' => EndStatus::Abandoned,
        _ => return None,
    };
    let id = flight_id(&head[3..35])?;
    let token = &head[35..];
    if !token.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let token = std::str::from_utf8(token).ok()?.parse().ok()?;
    let flight = FlightRef { token, id };
    let bare = payload.len() == HEADER;
    match head[1] {
        b'B' if status == EndStatus::Done => {
            let record = Some(Bytes::from(payload).split_off(HEADER));
            Some(Pushed::Ended { flight, status, record })
        }
        b'E' if bare => Some(Pushed::Ended { flight, status, record: None }),
        b'R' if bare => Some(Pushed::Released { flight }),
        _ => None,
    }
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
            Some(Pushed::Ended { flight: f, status: EndStatus::Done, record: Some(body) }) => {
                assert_eq!((f, &body[..]), (flight, &b"\0body"[..]));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(parse(payload("1Ra", token, b"")),
            Some(Pushed::Released { flight: f }) if f == flight));
        assert!(matches!(
            parse(payload("1Ef", token, b"")),
            Some(Pushed::Ended { status: EndStatus::Failed, record: None, .. })
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
            ("1Bd", "+0001795968540019938", b""),
            ("1Bd", "99999999999999999999", b""),
        ] {
            assert!(parse(payload(head, token, body)).is_none(), "{head} {token}");
        }
        let whole = payload("1Ef", token, b"");
        for length in 0..whole.len() {
            assert!(parse(whole[..length].to_vec()).is_none());
        }
        for byte in 0..=255 {
            let _ = parse(vec![byte; 80]);
        }
    }
}
