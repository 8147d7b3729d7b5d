//! Pushes, answers and names, out of any bytes.
#![allow(unreachable_pub, reason = "no part of the public interface")]

use bb8_redis::redis::{Value, parse_redis_value};

use super::{keys::Names, pieces, push, reply, step};
use crate::{
    fuzzing::Tape,
    id::{FORMAT, FlightId, FlightRef, KeyDigest},
    key::{Digester, Key},
    store::{BeatReply, EndStatus, Joined, Pushed},
};

const FLIGHT: FlightRef =
    FlightRef { token: 1_795_968_540_019_938, id: FlightId::from_u128(0xabc) };

/// Any bytes as a push: nothing, or a push that is written just so.
pub fn pushes(data: &[u8]) {
    if let Some(pushed) = push::parse(data.to_vec()) {
        assert_eq!(written(&pushed), data);
    }
    let names = Names::new("ai:flight", 3);
    if let Some(key) = names.key_of_channel(data) {
        assert_eq!(names.channel(key).as_bytes(), data);
        assert_eq!(Names::new("ai:flight", 4).key_of_channel(data), None);
    }
}

/// As the scripts write it.
fn written(pushed: &Pushed) -> Vec<u8> {
    let letter = |status: EndStatus| match status {
        EndStatus::Done => 'd',
        EndStatus::Failed => 'f',
        EndStatus::TimedOut => 't',
        EndStatus::Private => 'p',
        EndStatus::TooLarge => 'l',
        EndStatus::Abandoned | EndStatus::Forgotten => 'a',
        EndStatus::Stopped => 's',
    };
    let number = |number: u64| format!("{number:020}").into_bytes();
    let (kind, status, flight, rest) = match pushed {
        Pushed::Watched { flight } => ('W', 'r', flight, vec![]),
        Pushed::Piece { flight, index, piece: None } => ('N', 'r', flight, number(*index)),
        Pushed::Piece { flight, index, piece: Some(piece) } => {
            ('P', 'r', flight, [&number(*index)[..], piece].concat())
        }
        Pushed::Ended { flight, status, record: Some(record), seal: None } => {
            ('B', letter(*status), flight, record.to_vec())
        }
        Pushed::Ended { flight, status, record: None, seal: Some(seal) } => {
            ('S', letter(*status), flight, [&number(seal.pieces)[..], &seal.proof].concat())
        }
        Pushed::Ended { flight, status, record: None, seal: None } => {
            ('E', letter(*status), flight, vec![])
        }
        Pushed::Released { flight } => ('R', 'a', flight, vec![]),
        other => panic!("{other:?}"),
    };
    let head = format!("{FORMAT}{kind}{status}{}{:020}", flight.id, flight.token);
    [head.as_bytes(), &rest].concat()
}

/// Any answer of a server: an error, or an answer within bounds.
pub fn replies(data: &[u8]) {
    let value = value(&mut Tape::new(data), 0);
    answers(&value);
    // As it comes over the wire.
    if let Ok(value) = parse_redis_value(data) {
        answers(&value);
    }
}

fn answers(value: &Value) {
    if let Ok(joined) = reply::joined(value.clone()) {
        let token = match joined {
            Joined::Own { token } => token,
            Joined::Follow { flight, left, pieces, .. } => {
                assert!(left.as_millis() <= 1 << 40 && pieces < step::TOKEN_MAX);
                flight.token
            }
            Joined::Done { flight, .. } | Joined::Failed { flight, .. } => flight.token,
            Joined::Private { left } | Joined::Probe { left } | Joined::Quarantined { left } => {
                assert!(left.as_millis() <= 1 << 40);
                0
            }
            _ => 0,
        };
        assert!(token < step::TOKEN_MAX);
    }
    if let Ok(replied) = reply::renewed(value.clone()) {
        assert!(matches!(
            replied,
            BeatReply::Renewed { .. } | BeatReply::Over | BeatReply::Lost(_)
        ));
    }
    let _ = reply::appended(value.clone());
    let _ = reply::finished(value.clone());
    let _ = reply::abandoned(value.clone());
    let _ = reply::gone(value.clone());
    for from in [0, 1, u64::MAX] {
        if let Ok(read) = pieces::read(value.clone(), FLIGHT, from) {
            assert!(read.first >= from);
            assert!(read.first.checked_add(read.pieces.len() as u64).is_some());
        }
    }
}

/// A tree of values, as deep as the bytes say.
fn value(tape: &mut Tape<'_>, depth: u32) -> Value {
    const WORDS: [&str; 24] = [
        "OWN",
        "FOLLOW",
        "DONE",
        "FAILED",
        "PRIVATE",
        "ENDED",
        "QUARANTINED",
        "OTHER",
        "LAPSED",
        "MISSING",
        "OK",
        "OVER",
        "WANTED",
        "GAP",
        "FULL",
        "SUPERSEDED",
        "FORGOTTEN",
        "NOTHING",
        "done",
        "end",
        "flight",
        "pieces",
        "proof",
        "p",
    ];
    let kind = tape.byte();
    match kind % 12 {
        0..=2 => {
            let word = WORDS[usize::from(kind / 12) % WORDS.len()];
            Value::BulkString(word.into())
        }
        3 => Value::Int(i64::from_le_bytes(std::array::from_fn(|_| tape.byte()))),
        4 => Value::Int(i64::from(kind / 12)),
        5 => Value::BulkString(FLIGHT.id.to_string().into_bytes()),
        6 => Value::BulkString(FLIGHT.token.to_string().into_bytes()),
        7 => Value::BulkString(format!("{}-{}", FLIGHT.token, tape.byte() % 4).into_bytes()),
        8 => Value::BulkString(tape.bytes(usize::from(kind / 12)).to_vec()),
        9 => Value::Nil,
        10 => Value::SimpleString(String::from_utf8_lossy(tape.bytes(4)).into_owned()),
        _ if depth > 4 => Value::Boolean(kind > 127),
        _ => {
            let count = usize::from(kind / 12) % 8;
            Value::Array((0..count).map(|_| value(tape, depth + 1)).collect())
        }
    }
}

/// Any parts of keys: a digest for each list of parts, and short names in one slot.
pub fn keys(data: &[u8]) {
    let mut tape = Tape::new(data);
    let [a, b] = [parts(&mut tape), parts(&mut tape)];
    let digester = Digester::new("n", (data.len().is_multiple_of(2)).then_some(data));
    let [key, other] = [&a, &b].map(|parts| {
        let builder = parts.iter().fold(Key::builder(), |key, part| key.part(part));
        digester.digest(&builder.build())
    });
    assert_eq!(key == other, a == b);
    check_names(key);
}

fn parts<'a>(tape: &mut Tape<'a>) -> Vec<&'a [u8]> {
    let count = tape.byte() % 4;
    let mut parts = Vec::new();
    for _ in 0..count {
        let length = tape.byte();
        parts.push(tape.bytes(usize::from(length)));
    }
    parts
}

fn check_names(key: KeyDigest) {
    let names = Names::new("ai:flight", 0);
    let flight = FlightId::from_u128(u128::MAX);
    for name in [
        names.meta(key),
        names.waiters(key),
        names.result(key),
        names.stream(key),
        names.staged(key, flight),
        names.channel(key),
    ] {
        assert!(name.is_ascii() && name.len() < 200);
        let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        assert_eq!(tag.map(|(tag, _)| tag), Some(&*key.to_string()));
    }
}

/// Where to begin with [`pushes`].
#[must_use]
pub fn push_seeds() -> Vec<Vec<u8>> {
    let names = Names::new("ai:flight", 3);
    let head = |kind: &str| format!("{FORMAT}{kind}{}{:020}", FLIGHT.id, FLIGHT.token);
    let seven = format!("{:020}", 7);
    let texts = [
        head("Bd") + "record",
        head("Ef"),
        head("Sd") + &seven + "proof",
        head("Pr") + &seven + "piece",
        head("Nr") + &seven,
        head("Wr"),
        head("Ra"),
        names.channel(KeyDigest::from_bytes([0xa7; 32])),
    ];
    texts.map(String::into_bytes).to_vec()
}

/// Where to begin with [`replies`].
#[must_use]
pub fn reply_seeds() -> Vec<Vec<u8>> {
    let id = FLIGHT.id.to_string();
    let token = FLIGHT.token.to_string();
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let own = format!("*2\r\n{}{}", bulk("OWN"), bulk(&token));
    let follow = format!(
        "*6\r\n{}{}{}{}:0\r\n{}",
        bulk("FOLLOW"),
        bulk(&token),
        bulk(&id),
        bulk("3000"),
        bulk("2")
    );
    let done = format!(
        "*7\r\n{}{}{}:0\r\n{}:1\r\n:9\r\n",
        bulk("DONE"),
        bulk(&token),
        bulk(&id),
        bulk("record")
    );
    let end = [bulk("end"), bulk("done"), bulk("flight"), bulk(&id)].concat();
    let entries = format!(
        "*2\r\n*2\r\n{}*2\r\n{}{}*2\r\n{}*4\r\n{end}",
        bulk(&format!("{token}-1")),
        bulk("p"),
        bulk("piece"),
        bulk(&format!("{token}-2")),
    );
    let mut seeds = [own, follow, done, entries].map(String::into_bytes).to_vec();
    // By choices: FOLLOW, and two entries.
    seeds.push(vec![11 + 12 * 6, 12, 6, 5, 4 + 12 * 3, 4, 4 + 12]);
    seeds.push(vec![35, 35, 7, 1, 35, 2 + 12 * 7 * 3, 8 + 12, 1, 35, 7, 2, 35, 9, 9]);
    seeds
}

/// Where to begin with [`keys`].
#[must_use]
pub fn key_seeds() -> Vec<Vec<u8>> {
    vec![
        b"\x02\x03a=x\x03b=y\x01\x07a=x:b=y".to_vec(),
        b"\x01\x05{a}{b\x01\x05{a}{b".to_vec(),
        b"\x01\x00\x00".to_vec(),
    ]
}
