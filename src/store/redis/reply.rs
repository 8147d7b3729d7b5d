//! What the scripts answer. Whatever has another form is an error, never a panic.

use std::time::Duration;

use bb8_redis::redis::Value;
use bytes::Bytes;

use super::{error, push, step};
use crate::{
    id::{FlightRef, KeyDigest},
    store::{
        Abandoned, Appended, Badge, BeatReply, EndStatus, Finished, Joined, KeyStatus, KeyView,
        Loss, StoreError, StoreErrorKind,
    },
    trace::TraceParent,
};

pub(super) fn joined(value: Value) -> Result<Joined, StoreError> {
    let is_token = matches!(value, Value::BulkString(_));
    let mut reply = Reply::new(value)?;
    if is_token {
        return Ok(Joined::Own { token: reply.number()? });
    }
    Ok(match reply.word()?.as_str() {
        "OWN" => Joined::Own { token: reply.number()? },
        "FOLLOW" => Joined::Follow {
            flight: reply.flight()?,
            left: reply.left()?,
            rank: reply.small()?,
            pieces: reply.number()?,
            trace: reply.trace(),
        },
        "DONE" => {
            let flight = reply.flight()?;
            let streamed = reply.number()? == 1;
            let (record, is_reused) = (reply.record()?, reply.number()? == 1);
            let age = if is_reused { Some(reply.left()?) } else { None };
            Joined::Done { flight, streamed, record, age }
        }
        "FAILED" => Joined::Failed {
            flight: reply.flight()?,
            status: reply.status()?,
            report: reply.word()?,
        },
        "PRIVATE" => Joined::Private { left: reply.left()? },
        "PROBE" => Joined::Probe { left: reply.left()? },
        "ENDED" => Joined::Ended { status: reply.status()? },
        "QUARANTINED" => Joined::Quarantined { left: reply.left()? },
        "OTHER" => Joined::OtherFormat,
        "LAPSED" => Joined::Lapsed,
        "MISSING" => Joined::Missing,
        _ => return Err(error::bad_reply()),
    })
}

pub(super) fn renewed(value: Value) -> Result<BeatReply, StoreError> {
    let mut reply = Reply::new(value)?;
    Ok(match reply.word()?.as_str() {
        "OK" if reply.is_over() => BeatReply::Renewed { waiters: 0 },
        "OK" => BeatReply::Renewed { waiters: reply.small()? },
        "OVER" => BeatReply::Over,
        other => BeatReply::Lost(reply.loss(other)?),
    })
}

pub(super) fn appended(value: Value) -> Result<Appended, StoreError> {
    let mut reply = Reply::new(value)?;
    Ok(match reply.word()?.as_str() {
        "OK" => Appended::Accepted { next: reply.number()? },
        "GAP" => Appended::Gap { next: reply.number()? },
        "OVER" => Appended::Over,
        "FULL" => {
            let why = "the server has no memory left for the pieces";
            return Err(StoreError::new(StoreErrorKind::OutOfMemory, why));
        }
        other => Appended::Lost(reply.loss(other)?),
    })
}

pub(super) fn finished(value: Value) -> Result<Finished, StoreError> {
    let mut reply = Reply::new(value)?;
    Ok(match reply.word()?.as_str() {
        "OK" => Finished::Accepted,
        "WANTED" => Finished::Wanted,
        "GAP" => Finished::Gap { next: reply.number()? },
        other => Finished::Lost(reply.loss(other)?),
    })
}

pub(super) fn abandoned(value: Value) -> Result<Abandoned, StoreError> {
    let mut reply = Reply::new(value)?;
    Ok(match reply.word()?.as_str() {
        "OK" => Abandoned::Over,
        "WANTED" => Abandoned::Wanted { waiters: reply.small()? },
        other => Abandoned::Lost(reply.loss(other)?),
    })
}

pub(super) fn gone(value: Value) -> Result<BeatReply, StoreError> {
    match Reply::new(value)?.word()?.as_str() {
        "OK" | "NOTHING" => Ok(BeatReply::Gone),
        _ => Err(error::bad_reply()),
    }
}

/// What there is of a key.
pub(super) fn viewed(value: Value, key: KeyDigest) -> Result<Option<KeyView>, StoreError> {
    let mut reply = Reply::new(value)?;
    match reply.word()?.as_str() {
        "KEY" => {}
        "NONE" | "OTHER" => return Ok(None),
        _ => return Err(error::bad_reply()),
    }
    let flight = reply.flight()?;
    let (word, age) = (reply.bytes()?, reply.left()?);
    let (lease, renewed) = (reply.left()?, reply.left()?);
    let (ended, mark) = (reply.left()?, reply.left()?);
    let status = match &word[..] {
        b"running" if lease.is_zero() => KeyStatus::Lapsed,
        b"running" => KeyStatus::Running,
        b"lost" => KeyStatus::Quarantined,
        word => KeyStatus::Ended(step::status(word).ok_or_else(error::bad_reply)?),
    };
    let mut view = KeyView::new(key, flight, status);
    view.age = age;
    view.lease_left = view.is_in_air().then_some(lease);
    view.heartbeat = view.is_in_air().then_some(renewed);
    view.ended = (!view.is_in_air()).then_some(ended);
    let marked = matches!(status, KeyStatus::Quarantined | KeyStatus::Ended(EndStatus::Private));
    view.mark_left = marked.then_some(mark);
    view.waiters = reply.small()?;
    view.stored_bytes = push::number(&reply.bytes()?);
    view.pieces = reply.number()?;
    let badge = reply.word()?;
    view.owner = Badge::new(badge.split(' ').next().unwrap_or_default()).owner;
    Ok(Some(view))
}

/// The number that tokens go on from.
pub(super) fn counted(value: Value) -> Result<u64, StoreError> {
    Reply::new(value)?.number()
}

/// How many have joined a flight, and how many pieces it has, of one that runs; none where
/// another state is told of.
pub(super) fn runs(value: Value, flight: FlightRef) -> Option<(u32, u64)> {
    let mut reply = Reply::new(value).ok()?;
    let is_it = reply.flight().ok()? == flight && reply.bytes().ok()? == b"running";
    // What is not written is none.
    is_it.then(|| (reply.small().unwrap_or(0), reply.number().unwrap_or(0)))
}

/// The parts of an answer; what comes most often is one part alone.
struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    fn new(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(parts) => Ok(Self(parts.into_iter())),
            part @ Value::BulkString(_) => Ok(Self(vec![part].into_iter())),
            Value::ServerError(error) => Err(error::from_server(&error)),
            _ => Err(error::bad_reply()),
        }
    }

    fn is_over(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            _ => Err(error::bad_reply()),
        }
    }

    fn word(&mut self) -> Result<String, StoreError> {
        Ok(String::from_utf8_lossy(&self.bytes()?).into_owned())
    }

    /// Where an owner with this badge is in its trace. Whatever else is there is none.
    fn trace(&mut self) -> Option<TraceParent> {
        let Some(Value::BulkString(badge)) = self.0.next() else { return None };
        let (_, trace) = std::str::from_utf8(&badge).ok()?.split_once(' ')?;
        trace.parse().ok()
    }

    /// No number of ours is beyond what a script can count.
    fn number(&mut self) -> Result<u64, StoreError> {
        match self.0.next() {
            Some(Value::Int(number)) => u64::try_from(number).ok(),
            Some(Value::BulkString(bytes)) => push::number(&bytes),
            _ => None,
        }
        .filter(|number| *number < step::TOKEN_MAX)
        .ok_or_else(error::bad_reply)
    }

    fn small(&mut self) -> Result<u32, StoreError> {
        Ok(u32::try_from(self.number()?).unwrap_or(u32::MAX))
    }

    /// No longer than what any step asks for.
    fn left(&mut self) -> Result<Duration, StoreError> {
        self.number().map(|left| Duration::from_millis(left.min(step::MILLIS_MAX)))
    }

    fn flight(&mut self) -> Result<FlightRef, StoreError> {
        let token = self.number()?;
        let id = push::flight_id(&self.bytes()?).ok_or_else(error::bad_reply)?;
        Ok(FlightRef { token, id })
    }

    fn record(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => Ok(Some(bytes.into())),
            Some(Value::Nil | Value::Boolean(false)) | None => Ok(None),
            _ => Err(error::bad_reply()),
        }
    }

    fn status(&mut self) -> Result<EndStatus, StoreError> {
        step::status(&self.bytes()?).ok_or_else(error::bad_reply)
    }

    fn loss(&mut self, word: &str) -> Result<Loss, StoreError> {
        match word {
            "MISSING" => Ok(Loss::Missing),
            "FORGOTTEN" => Ok(Loss::Forgotten),
            "STOPPED" => Ok(Loss::Stopped),
            "SUPERSEDED" => Ok(Loss::Superseded { by: self.number()? }),
            _ => Err(error::bad_reply()),
        }
    }
}
