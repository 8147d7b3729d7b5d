//! The protocol's steps as calls of scripts.

use std::time::Duration;

use super::{
    keys::Names,
    script::{ABANDON, APPEND, Call, FINISH, FORGET, JOIN, LEAVE, RELEASE, RENEW},
};
use crate::{
    id::{FlightId, FlightRef, KeyDigest, WaiterId},
    store::{Append, EndStatus, Finish, Join},
};

/// Records up to this many bytes go through a script; larger ones are staged.
pub(super) const INLINE_MAX: usize = 4096;
/// Records and pieces up to this many bytes travel inside the push.
pub(super) const PUSH_MAX: usize = 16_384;
/// The longest time that a step asks for, some thirty years.
pub(super) const MILLIS_MAX: u64 = 1 << 40;
// Beyond, a Lua number is not exact; no honest token comes near.
pub(super) const TOKEN_MAX: u64 = 9_000_000_000_000_000;

pub(super) fn join(names: &Names, key: KeyDigest, join: &Join, mark: Option<Duration>) -> Call {
    JOIN.call()
        .key(names.meta(key))
        .key(names.waiters(key))
        .key(names.result(key))
        .key(names.stream(key))
        .key(names.owner_seq())
        .arg(join.flight)
        .arg(join.waiter)
        .arg(join.known.min(TOKEN_MAX))
        .arg(millis(join.lease))
        .arg(join.reuse.as_millis())
        .arg(millis(join.retention))
        .arg(u8::from(join.look_only))
        .arg(mark.map_or(0, millis))
        .arg(INLINE_MAX)
        .arg(names.channel(key))
}

pub(super) fn renew(names: &Names, key: KeyDigest, flight: FlightRef, lease: Duration) -> Call {
    RENEW
        .call()
        .key(names.meta(key))
        .key(names.waiters(key))
        .key(names.stream(key))
        .arg(flight.token)
        .arg(flight.id)
        .arg(millis(lease))
}

pub(super) fn append(names: &Names, key: KeyDigest, append: &Append) -> Call {
    let inline = if append.inline { PUSH_MAX as i64 } else { -1 };
    let call = APPEND
        .call()
        .key(names.meta(key))
        .key(names.stream(key))
        .arg(append.flight.token)
        .arg(append.flight.id)
        .arg(append.first.min(TOKEN_MAX))
        .arg(append.kept_from.min(TOKEN_MAX))
        .arg(millis(append.keep))
        .arg(inline)
        .arg(names.channel(key));
    append.pieces.iter().fold(call, |call, piece| call.bytes(piece))
}

pub(super) fn finish(names: &Names, key: KeyDigest, finish: &Finish) -> Call {
    let (form, body): (&str, &[u8]) = match (&finish.seal, &finish.record) {
        (Some(_), _) => ("sealed", b""),
        (None, None) => ("kept", b""),
        (None, Some(record)) if record.len() <= INLINE_MAX => ("inline", record),
        (None, Some(_)) => ("staged", b""),
    };
    let (pieces, proof): (u64, &[u8]) =
        finish.seal.as_ref().map_or((0, b""), |seal| (seal.pieces, &seal.proof));
    FINISH
        .call()
        .key(names.meta(key))
        .key(names.waiters(key))
        .key(names.result(key))
        .key(names.stream(key))
        .key(names.staged(key, finish.flight.id))
        .arg(finish.flight.token)
        .arg(finish.flight.id)
        .arg(word(finish.status))
        .arg(form)
        .bytes(body)
        .arg(u8::from(finish.reusable))
        .arg(millis(finish.keep))
        .arg(&finish.report)
        .arg(names.channel(key))
        .arg(PUSH_MAX)
        .arg(pieces.min(TOKEN_MAX))
        .bytes(proof)
}

pub(super) fn abandon(names: &Names, key: KeyDigest, flight: FlightRef) -> Call {
    ABANDON
        .call()
        .key(names.meta(key))
        .key(names.waiters(key))
        .arg(flight.token)
        .arg(flight.id)
        .arg(names.channel(key))
}

pub(super) fn release(
    names: &Names,
    key: KeyDigest,
    flight: FlightId,
    token: Option<u64>,
    status: EndStatus,
) -> Call {
    RELEASE
        .call()
        .key(names.meta(key))
        .arg(flight)
        .arg(token.unwrap_or(0))
        .arg(word(status))
        .arg(names.channel(key))
}

pub(super) fn leave(names: &Names, key: KeyDigest, waiter: WaiterId) -> Call {
    LEAVE.call().key(names.waiters(key)).arg(waiter)
}

pub(super) fn forget(names: &Names, key: KeyDigest) -> Call {
    FORGET.call().key(names.meta(key)).arg(names.channel(key))
}

/// At least one: a key with no time left would be gone, or stay for ever.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, MILLIS_MAX)
}

fn word(status: EndStatus) -> &'static str {
    match status {
        EndStatus::Done => "done",
        EndStatus::Failed => "failed",
        EndStatus::TimedOut => "timedout",
        EndStatus::Private => "private",
        EndStatus::TooLarge => "toolarge",
        EndStatus::Abandoned => "abandoned",
        EndStatus::Forgotten => "forgotten",
    }
}

/// The status that a word stands for.
pub(super) fn status(word: &[u8]) -> Option<EndStatus> {
    Some(match word {
        b"done" => EndStatus::Done,
        b"failed" => EndStatus::Failed,
        b"timedout" => EndStatus::TimedOut,
        b"private" => EndStatus::Private,
        b"toolarge" => EndStatus::TooLarge,
        b"abandoned" => EndStatus::Abandoned,
        b"forgotten" => EndStatus::Forgotten,
        _ => return None,
    })
}
