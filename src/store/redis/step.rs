//! The protocol's steps as calls of scripts.

use std::{fmt, time::Duration};

use bb8_redis::redis::Cmd;

use super::{
    keys::Names,
    script::{
        ABANDON, APPEND, Call, FINISH, FORGET, INSPECT, JOIN, LEAVE, RELEASE, RENEW, SEQ, STOP,
    },
};
use crate::{
    id::{FlightId, FlightRef, KeyDigest, WaiterId},
    store::{Append, Badge, EndStatus, Finish, Join},
};

/// Records up to this many bytes go through a script; larger ones are staged.
pub(super) const INLINE_MAX: usize = 4096;
/// Records and pieces up to this many bytes travel inside the push: what holds 16 KiB of
/// data, with all that comes with it.
pub(super) const PUSH_MAX: usize = 20_480;
/// The longest time that a step asks for, some thirty years.
pub(super) const MILLIS_MAX: u64 = 1 << 40;
// Beyond, a Lua number is not exact; no honest token comes near.
pub(super) const TOKEN_MAX: u64 = 9_000_000_000_000_000;

/// `prefetched` is a number that the token of a grant will be no less than.
pub(super) fn join(
    names: &Names,
    key: KeyDigest,
    join: &Join,
    badge: Option<&Badge>,
    mark: Option<Duration>,
    prefetched: u64,
) -> Call {
    let mut call = JOIN
        .call()
        .key(names.meta(key))
        .key(names.waiters(key))
        .key(names.result(key))
        .key(names.stream(key));
    if !names.is_sharded() {
        call = call.key(names.owner_seq());
    }
    call = call
        .arg(join.flight)
        .arg(join.waiter)
        .arg(join.known.min(TOKEN_MAX))
        .arg(millis(join.lease))
        .arg(join.reuse.as_millis())
        .arg(millis(join.retention))
        .arg(Worn(badge))
        .arg(names.channels());
    if join.look_only {
        call = call.arg(mark.map_or(0, millis));
    } else if names.is_sharded() {
        call = call.arg("");
    }
    if names.is_sharded() { call.arg(prefetched.min(TOKEN_MAX)).publish(names) } else { call }
}

/// A badge as it lies in the record: the name, and after a space the trace.
struct Worn<'a>(Option<&'a Badge>);

impl fmt::Display for Worn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Badge { owner, trace }) = self.0 else { return Ok(()) };
        f.write_str(owner)?;
        trace.map_or(Ok(()), |trace| write!(f, " {trace}"))
    }
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

/// As [`renew`], of the record alone: what a cluster allows while it moves the slot.
pub(super) fn renew_alone(
    names: &Names,
    key: KeyDigest,
    flight: FlightRef,
    lease: Duration,
) -> Call {
    RENEW.call().key(names.meta(key)).arg(flight.token).arg(flight.id).arg(millis(lease))
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
        .arg(names.channels())
        .arg(names.publish());
    append.pieces.iter().fold(call, |call, piece| call.bytes(piece))
}

/// What there is nothing of is not sent: few bytes go for an answer that nobody waits for.
pub(super) fn finish(names: &Names, key: KeyDigest, finish: &Finish) -> Call {
    let (form, body): (&str, &[u8]) = match (&finish.seal, &finish.record) {
        (Some(_), _) => ("sealed", b""),
        (None, None) => ("kept", b""),
        (None, Some(record)) if record.len() <= INLINE_MAX => ("inline", record),
        (None, Some(_)) => ("staged", b""),
    };
    let mut call = FINISH.call().key(names.meta(key)).key(names.waiters(key));
    let is_kept = form == "kept" && finish.status == EndStatus::Done;
    if !is_kept {
        call = call.key(names.stream(key)).key(names.result(key));
    }
    if form == "staged" {
        call = call.key(names.staged(key, finish.flight.id));
    }
    call = call
        .arg(finish.flight.token)
        .arg(finish.flight.id)
        .arg(word(finish.status))
        .arg(millis(finish.keep))
        .arg(names.channels());
    let says_more = !finish.report.is_empty() || finish.seal.is_some() || names.is_sharded();
    if !is_kept || says_more {
        let fresh = finish.fresh.as_millis().min(MILLIS_MAX.into());
        call = call.arg(form).arg(fresh).bytes(body);
    }
    if says_more {
        let (pieces, proof): (u64, &[u8]) =
            finish.seal.as_ref().map_or((0, b""), |seal| (seal.pieces, &seal.proof));
        call = call.arg(&finish.report).arg(pieces.min(TOKEN_MAX)).bytes(proof).publish(names);
    }
    call
}

pub(super) fn abandon(names: &Names, key: KeyDigest, flight: FlightRef) -> Call {
    ABANDON
        .call()
        .key(names.meta(key))
        .key(names.waiters(key))
        .arg(flight.token)
        .arg(flight.id)
        .arg(names.channels())
        .publish(names)
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
        .arg(names.channels())
        .publish(names)
}

pub(super) fn leave(names: &Names, key: KeyDigest, waiter: WaiterId) -> Call {
    LEAVE.call().key(names.waiters(key)).arg(waiter)
}

pub(super) fn forget(names: &Names, key: KeyDigest) -> Call {
    FORGET.call().key(names.meta(key)).arg(names.channels()).publish(names)
}

pub(super) fn stop(names: &Names, key: KeyDigest) -> Call {
    STOP.call().key(names.meta(key)).key(names.waiters(key)).arg(names.channels()).publish(names)
}

pub(super) fn inspect(names: &Names, key: KeyDigest) -> Call {
    INSPECT
        .call()
        .key(names.meta(key))
        .key(names.waiters(key))
        .key(names.result(key))
        .key(names.stream(key))
}

/// In a cluster: says what token was given out, and asks for a number above it.
pub(super) fn count_on(names: &Names, token: u64) -> Call {
    SEQ.call().key(names.owner_seq()).arg(token.min(TOKEN_MAX))
}

/// What stands in the record of a flight that runs, without a script.
pub(super) fn state(names: &Names, key: KeyDigest) -> Cmd {
    let mut get = Cmd::new();
    get.arg("HMGET").arg(names.meta(key));
    get.arg("ownerToken").arg("flight").arg("status").arg("joins").arg("next");
    get
}

/// At least one: a key with no time left would be gone, or stay for ever.
pub(super) fn millis(duration: Duration) -> u64 {
    // Up: nobody counts on a lease for longer than the server does.
    let millis = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).unwrap_or(u64::MAX).clamp(1, MILLIS_MAX)
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
        EndStatus::Stopped => "stopped",
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
        b"stopped" => EndStatus::Stopped,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::cluster::{slot_of, slot_of_flight};

    /// Every step on one key, as it is sent.
    fn steps(names: &Names, key: KeyDigest) -> Vec<Call> {
        let (id, waiter, lease) = (FlightId::random(), WaiterId::random(), Duration::from_secs(3));
        let flight = FlightRef { token: 7, id };
        let ask = Join {
            flight: id,
            waiter,
            known: 0,
            lease,
            reuse: lease,
            retention: lease,
            look_only: false,
        };
        let pieces = Append {
            flight,
            first: 0,
            pieces: vec![],
            kept_from: 0,
            keep: lease,
            inline: true,
            to_come: 0,
        };
        let end = Finish {
            flight,
            status: EndStatus::Done,
            record: None,
            seal: None,
            fresh: lease,
            keep: lease,
            report: String::new(),
        };
        vec![
            join(names, key, &ask, None, None, 7),
            join(names, key, &ask, None, Some(lease), 7),
            renew(names, key, flight, lease),
            renew_alone(names, key, flight, lease),
            append(names, key, &pieces),
            finish(names, key, &end),
            abandon(names, key, flight),
            release(names, key, id, None, EndStatus::Abandoned),
            leave(names, key, waiter),
            forget(names, key),
            stop(names, key),
            inspect(names, key),
        ]
    }

    #[test]
    fn g4_the_keys_of_a_step_are_in_one_slot() {
        let names = Names::new("ai:flight", 0).sharded();
        for n in 0..500_u32 {
            let key = KeyDigest::from_bytes(*blake3::hash(&n.to_le_bytes()).as_bytes());
            let slot = slot_of_flight(key);
            assert_eq!(slot_of(names.channel(key).as_bytes()), slot);
            for call in steps(&names, key) {
                assert!(!call.keys().is_empty());
                for name in call.keys() {
                    assert_eq!(slot_of(name.as_bytes()), slot, "{name}");
                    assert!(name.starts_with("ai:flight:"), "{name}");
                }
            }
        }
        assert_eq!(count_on(&names, 7).keys(), ["ai:flight:owner-seq"]);
    }
}
