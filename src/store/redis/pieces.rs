//! Pieces as they lie in a stream. Anybody may write there: what is not an entry of
//! this flight's, in its place, ends what is read, and is never an error.

use bb8_redis::redis::{Cmd, Value};
use bytes::Bytes;

use super::{error, push, step};
use crate::{
    id::FlightRef,
    store::{Pieces, Seal, StoreError, StreamEnd},
};

/// So many entries are read at a time.
const READ: usize = 64;

/// Asks for a flight's entries, from this piece on.
pub(super) fn range(stream: String, flight: FlightRef, from: u64) -> Cmd {
    let token = flight.token;
    let mut range = Cmd::new();
    range
        .arg("XRANGE")
        .arg(stream)
        .arg(format!("{token}-{}", from.saturating_add(1)))
        .arg(format!("{token}-{}", u64::MAX))
        .arg("COUNT")
        .arg(READ);
    range
}

/// Reads the answer to [`range`].
pub(super) fn read(value: Value, flight: FlightRef, from: u64) -> Result<Pieces, StoreError> {
    let entries = match value {
        Value::Array(entries) => entries,
        // Nothing there, or nothing of ours.
        Value::Nil => Vec::new(),
        _ => return Err(error::bad_reply()),
    };
    let mut read = Pieces { first: from, ..Pieces::default() };
    let mut next = None;
    for entry in entries {
        let Some((index, entry)) = parse(entry, flight) else { break };
        if index < from || next.is_some_and(|next| next != index) {
            break;
        }
        if next.is_none() {
            read.first = index;
        }
        next = Some(index + 1);
        match entry {
            Entry::Piece(piece) => read.pieces.push(piece),
            Entry::End(end) => {
                read.end = Some(end);
                break;
            }
        }
    }
    Ok(read)
}

enum Entry {
    Piece(Bytes),
    End(StreamEnd),
}

/// An entry's place and what it holds; none where it is not of this flight.
fn parse(entry: Value, flight: FlightRef) -> Option<(u64, Entry)> {
    let Value::Array(entry) = entry else { return None };
    let Ok([Value::BulkString(id), Value::Array(fields)]) = <[Value; 2]>::try_from(entry) else {
        return None;
    };
    let (token, place) = std::str::from_utf8(&id).ok()?.split_once('-')?;
    if push::number(token.as_bytes())? != flight.token {
        return None;
    }
    let index = push::number(place.as_bytes())?.checked_sub(1)?;
    let bytes = |field| if let Value::BulkString(bytes) = field { Some(bytes) } else { None };
    let fields: Vec<Vec<u8>> = fields.into_iter().map(bytes).collect::<Option<_>>()?;
    let entry = match <[Vec<u8>; 2]>::try_from(fields) {
        Ok([name, piece]) if name == b"p" => Entry::Piece(piece.into()),
        Ok(_) => return None,
        Err(fields) => Entry::End(end(fields, flight)?),
    };
    Some((index, entry))
}

fn end(mut fields: Vec<Vec<u8>>, flight: FlightRef) -> Option<StreamEnd> {
    let names: Vec<&[u8]> = fields.iter().step_by(2).map(Vec::as_slice).collect();
    let sealed = match names[..] {
        [b"end", b"flight"] => false,
        [b"end", b"flight", b"pieces", b"proof"] => true,
        _ => return None,
    };
    if push::flight_id(fields.get(3)?)? != flight.id {
        return None;
    }
    let status = step::status(fields.get(1)?)?;
    let seal = if sealed {
        let proof = fields.pop()?.into();
        Some(Seal { pieces: push::number(fields.get(5)?)?, proof })
    } else {
        None
    };
    Some(StreamEnd { status, seal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{id::FlightId, store::EndStatus};

    const FLIGHT: FlightRef =
        FlightRef { token: 1_795_968_540_019_938, id: FlightId::from_u128(0xabc) };

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn entry(id: &str, fields: &[&str]) -> Value {
        Value::Array(vec![text(id), Value::Array(fields.iter().map(|f| text(f)).collect())])
    }

    fn piece(place: u64, bytes: &str) -> Value {
        entry(&format!("1795968540019938-{place}"), &["p", bytes])
    }

    fn sealed(place: u64) -> Value {
        let id = FLIGHT.id.to_string();
        let fields = ["end", "done", "flight", &id, "pieces", "2", "proof", "\0x"];
        entry(&format!("1795968540019938-{place}"), &fields)
    }

    fn read_all(entries: Vec<Value>, from: u64) -> (u64, Vec<Bytes>, Option<StreamEnd>) {
        let Pieces { first, pieces, end } = read(Value::Array(entries), FLIGHT, from).unwrap();
        (first, pieces, end)
    }

    #[test]
    fn reads_what_the_scripts_write() {
        let end = StreamEnd {
            status: EndStatus::Done,
            seal: Some(Seal { pieces: 2, proof: Bytes::from_static(b"\0x") }),
        };
        let both = [Bytes::from_static(b"a"), Bytes::new()];
        let entries = || vec![piece(1, "a"), piece(2, ""), sealed(3)];
        assert_eq!(read_all(entries(), 0), (0, both.to_vec(), Some(end.clone())));
        assert_eq!(
            read_all(entries()[1..].to_vec(), 1),
            (1, both[1..].to_vec(), Some(end.clone()))
        );
        // Older ones are gone, and then all are.
        assert_eq!(
            read_all(entries()[1..].to_vec(), 0),
            (1, both[1..].to_vec(), Some(end.clone()))
        );
        assert_eq!(read_all(vec![sealed(3)], 0), (2, vec![], Some(end)));
        let id = FLIGHT.id.to_string();
        let bare = entry("1795968540019938-1", &["end", "failed", "flight", &id]);
        let end = StreamEnd { status: EndStatus::Failed, seal: None };
        assert_eq!(read_all(vec![bare], 0), (0, vec![], Some(end)));
        assert_eq!(read_all(vec![], 7), (7, vec![], None));
        assert_eq!(read(Value::Nil, FLIGHT, 7).unwrap().first, 7);
    }

    #[test]
    fn o5_nothing_is_read_past_a_hole() {
        let first = vec![Bytes::from_static(b"a")];
        for next in [piece(3, "c"), sealed(4), piece(1, "a")] {
            assert_eq!(read_all(vec![piece(1, "a"), next], 0), (0, first.clone(), None));
        }
        assert_eq!(read_all(vec![piece(1, "a")], 5), (5, vec![], None));
    }

    #[test]
    fn k8_foreign_entries_are_none() {
        let id = FLIGHT.id.to_string();
        let other = FlightId::from_u128(0xabd).to_string();
        let at = "1795968540019938-2";
        let foreign = [
            entry("1795968540019939-2", &["p", "b"]),
            entry("1795968540019938", &["p", "b"]),
            entry("1795968540019938-0", &["p", "b"]),
            entry("+1795968540019938-2", &["p", "b"]),
            entry("1795968540019938-99999999999999999999999", &["p", "b"]),
            entry(at, &["q", "b"]),
            entry(at, &["p"]),
            entry(at, &["p", "b", "p", "b"]),
            entry(at, &[]),
            entry(at, &["end", "done"]),
            entry(at, &["end", "done", "flight", &other]),
            entry(at, &["end", "done", "flight", &id[1..]]),
            entry(at, &["end", "running", "flight", &id]),
            entry(at, &["end", "done", "flight", &id, "pieces", "1"]),
            entry(at, &["end", "done", "flight", &id, "pieces", "-1", "proof", ""]),
            entry(at, &["end", "done", "flight", &id, "proof", "", "pieces", "1"]),
            Value::Array(vec![text(at)]),
            Value::Array(vec![text(at), Value::Nil]),
            Value::Array(vec![text(at), Value::Array(vec![text("p"), Value::Int(1)])]),
            Value::Nil,
            Value::Int(7),
        ];
        for (n, foreign) in foreign.into_iter().enumerate() {
            let read = read_all(vec![piece(1, "a"), foreign, piece(3, "c")], 0);
            assert_eq!(read, (0, vec![Bytes::from_static(b"a")], None), "{n}");
        }
        assert!(read(Value::Int(1), FLIGHT, 0).is_err());
    }
}
