//! The protocol's steps as calls of scripts.

use std::time::Duration;

use super::{
    keys::Names,
    script::{ABANDON, Call, FINISH, FORGET, JOIN, LEAVE, RELEASE, RENEW},
};
use crate::{
    id::{FlightId, FlightRef, KeyDigest, WaiterId},
    store::{EndStatus, Finish, Join},
};

/// Records up to this many bytes go through a script; larger ones are staged.
pub(super) const INLINE_MAX: usize = 4096;
/// Records up to this many bytes travel inside the push.
const PUSH_MAX: usize = 16_384;
// Beyond, a Lua number is not exact; no honest token comes near.
const TOKEN_MAX: u64 = 9_000_000_000_000_000;

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
}

pub(super) fn renew(names: &Names, key: KeyDigest, flight: FlightRef, lease: Duration) -> Call {
    RENEW
        .call()
        .key(names.meta(key))
        .key(names.waiters(key))
        .arg(flight.token)
        .arg(flight.id)
        .arg(millis(lease))
}

pub(super) fn finish(names: &Names, key: KeyDigest, finish: &Finish) -> Call {
    let (form, body): (&str, &[u8]) = match &finish.record {
        None => ("kept", b""),
        Some(record) if record.len() <= INLINE_MAX => ("inline", record),
        Some(_) => ("staged", b""),
    };
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
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 40)
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
