//! What processes hold of answers, and the server's word that the records are as they were.
//!
//! The server tells a push connection of the next change of each record that was read on
//! it (`CLIENT TRACKING`), whoever makes it and in whatever way: by a script, by eviction,
//! by a flush. A connection that broke tells nothing, so with it all that rests on it is
//! over; one that is gone without a word is found out by a question, three times in the
//! silence that is allowed.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bb8_redis::redis::{Cmd, Pipeline, Value};

use super::{
    error,
    hub::Hub,
    keys::Names,
    line::Sent,
    push::{flight_id, number},
    seat::Mark,
    step::MILLIS_MAX,
    suspect::Suspect,
};
use crate::{
    id::{FORMAT, FlightRef, KeyDigest},
    store::{StoreError, Vigil},
};

/// A line that is silent for longer is given up.
const PATIENCE: Duration = Duration::from_secs(1);
/// Questions in the silence that is allowed.
const QUESTIONS: u32 = 3;

/// Who is to be told of which record.
#[derive(Debug, Default)]
pub(super) struct Vigils {
    fallen: HashMap<KeyDigest, Vec<Arc<AtomicBool>>>,
    /// The line on which the server knows that it is to tell; 0: none.
    told_on: u64,
    silence: Duration,
    /// After that nothing that rests on it is of use.
    until: Option<Instant>,
}

impl Vigils {
    /// A record has changed.
    pub(super) fn fall(&mut self, key: KeyDigest) {
        let fallen = self.fallen.remove(&key).into_iter().flatten();
        fallen.for_each(|fallen| fallen.store(true, Ordering::Release));
    }

    /// All may have changed.
    pub(super) fn fall_all(&mut self) {
        let fallen = self.fallen.drain().flat_map(|(_, fallen)| fallen);
        fallen.for_each(|fallen| fallen.store(true, Ordering::Release));
    }
}

/// The last moment of which a line is known to have told all that came before.
#[derive(Debug)]
pub(super) struct Pulse {
    origin: Instant,
    micros: AtomicU64,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { origin: Instant::now(), micros: AtomicU64::new(0) }
    }
}

impl Pulse {
    /// What was asked then is answered.
    fn beat(&self, asked: Instant) {
        let micros = asked.saturating_duration_since(self.origin).as_micros();
        self.micros.fetch_max(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    fn age(&self) -> Duration {
        let beat = Duration::from_micros(self.micros.load(Ordering::Acquire));
        self.origin.elapsed().saturating_sub(beat)
    }
}

/// Watches over one record.
pub(super) struct RedisVigil {
    hub: Weak<Hub>,
    pulse: Arc<Pulse>,
    key: KeyDigest,
    fallen: Arc<AtomicBool>,
    silence: Duration,
    asked: Instant,
}

impl RedisVigil {
    /// How long ago the record was read, and no less.
    pub(super) fn age(&self) -> Duration {
        self.asked.elapsed()
    }

    /// It is of use for so long from now on.
    pub(super) fn keep(&self, time: Duration) {
        let Some(hub) = self.hub.upgrade() else { return };
        let now = Instant::now();
        let vigils = &mut hub.table().vigils;
        let rested = vigils.until.is_none_or(|until| until <= now);
        vigils.silence = self.silence;
        vigils.until = vigils.until.max(now.checked_add(time));
        if rested {
            hub.changed.notify_waiters();
        }
    }
}

impl Vigil for RedisVigil {
    fn stands(&self) -> bool {
        if self.pulse.age() >= self.silence {
            self.fallen.store(true, Ordering::Release);
        }
        !self.fallen.load(Ordering::Acquire)
    }
}

impl Drop for RedisVigil {
    fn drop(&mut self) {
        let Some(hub) = self.hub.upgrade() else { return };
        let mut table = hub.table();
        let Some(fallen) = table.vigils.fallen.get_mut(&self.key) else { return };
        fallen.retain(|fallen| !Arc::ptr_eq(fallen, &self.fallen));
        if fallen.is_empty() {
            table.vigils.fallen.remove(&self.key);
        }
    }
}

impl fmt::Debug for RedisVigil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisVigil").field("stands", &self.stands()).finish_non_exhaustive()
    }
}

impl Hub {
    /// Reads a record, by this command, and listens for its next change; with it comes the
    /// server's time. Nothing where the server, or its user, cannot do that.
    pub(super) async fn track(
        self: &Arc<Self>,
        key: KeyDigest,
        read: &Cmd,
        silence: Duration,
    ) -> Result<(Value, Option<RedisVigil>), StoreError> {
        let mut pipe = Pipeline::with_capacity(5);
        let asked = Instant::now();
        let (line, vigil, mark, sent) = {
            let mut table = self.table();
            let Some(line) = table.line.clone().filter(|line| !self.is_deaf(line.number)) else {
                return Ok((Value::Nil, None));
            };
            // Told until it is known to have been heard: it may be lost with its sender.
            if table.vigils.told_on != line.number {
                pipe.add_command(tracking());
            }
            pipe.cmd("CLIENT").arg("CACHING").arg("YES");
            pipe.add_command(read.clone()).cmd("TIME");
            let fallen = Arc::default();
            // Before it is asked: what comes right after the answer is not missed.
            table.vigils.fallen.entry(key).or_default().push(Arc::clone(&fallen));
            let (hub, pulse) = (Arc::downgrade(self), Arc::clone(&self.pulse));
            let vigil = RedisVigil { hub, pulse, key, fallen, silence, asked };
            let mark = Mark::on(&mut table, self, &mut pipe);
            (line.number, vigil, mark, Sent::new(line.connection, pipe))
        };
        let suspect = Suspect::new(self.limit, || self.give_up(line));
        let answers = mark.check(sent.await);
        suspect.answered(answers.as_ref().err());
        let mut values = answers.map_err(|cause| error::from_redis(&cause))?;
        let (Some(time), Some(read)) = (values.pop(), values.pop()) else {
            return Err(error::bad_reply());
        };
        if error::is_redirection(&read) {
            return Ok((read, None));
        }
        if values.iter().chain([&read]).any(|value| is_refused(value, &read)) {
            self.deafen(line);
            return Ok((Value::Nil, None));
        }
        self.table().vigils.told_on = line;
        self.pulse.beat(asked);
        Ok((Value::Array(vec![read, time]), Some(vigil)))
    }

    /// Until the next question is due; none where nothing rests on the line.
    pub(super) fn rest(&self) -> Option<Duration> {
        let vigils = &self.table().vigils;
        vigils.until.filter(|until| Instant::now() < *until).map(|_| vigils.silence / QUESTIONS)
    }

    /// Asks whether the line is there. What was pushed before comes before the answer.
    pub(super) async fn take_pulse(&self, line: u64) {
        let mut pipe = Pipeline::with_capacity(2);
        pipe.add_command(tracking());
        let asked = Instant::now();
        let (mark, sent) = {
            let mut table = self.table();
            let Some(open) = table.line.clone().filter(|open| open.number == line) else { return };
            let mark = Mark::on(&mut table, self, &mut pipe);
            (mark, Sent::new(open.connection, pipe))
        };
        let answered = tokio::time::timeout(self.limit.max(PATIENCE), sent).await;
        match answered.map(|answer| mark.check(answer)) {
            Ok(Ok(_)) => self.pulse.beat(asked),
            Ok(Err(_)) | Err(_) => self.give_up(line),
        }
    }
}

fn tracking() -> Cmd {
    let mut tracking = Cmd::new();
    tracking.arg("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN");
    tracking
}

/// Whether the server, or its user, cannot do it. A record of another type is another
/// matter.
fn is_refused(value: &Value, read: &Value) -> bool {
    match value {
        Value::ServerError(refusal) => !std::ptr::eq(value, read) || refusal.code() == "NOPERM",
        _ => false,
    }
}

const FIELDS: [&str; 7] =
    ["format", "ownerToken", "flight", "status", "trimmed", "fresh", "endedAt"];

/// What reads of a record whether its answer is there for fresh callers.
pub(super) fn read(names: &Names, key: KeyDigest) -> Cmd {
    let mut read = Cmd::new();
    read.arg("HMGET").arg(names.meta(key)).arg(&FIELDS);
    read
}

/// How old this flight's answer was when its record was read, and may be; none where it
/// is not what a fresh caller gets.
pub(super) fn fresh(answer: Value, flight: FlightRef) -> Option<(Duration, Duration)> {
    let Value::Array(parts) = answer else { return None };
    let [Value::Array(fields), Value::Array(time)] = <[Value; 2]>::try_from(parts).ok()? else {
        return None;
    };
    let fields: Vec<&[u8]> = fields.iter().map(field).collect::<Option<_>>()?;
    let [format, token, id, status, trimmed, fresh, ended] = fields[..] else { return None };
    let [seconds, micros] = &time[..] else { return None };
    let now =
        number(bytes(seconds)?)?.checked_mul(1_000_000)?.checked_add(number(bytes(micros)?)?)?;
    let is_it = number(format) == Some(FORMAT.into())
        && number(token) == Some(flight.token)
        && flight_id(id) == Some(flight.id)
        && status == b"done"
        && trimmed == b"0";
    let age = Duration::from_micros(now.saturating_sub(number(ended)?));
    let fresh = Duration::from_millis(number(fresh)?.min(MILLIS_MAX));
    (is_it && age < fresh).then_some((age, fresh))
}

/// What is not written is zero.
fn field(value: &Value) -> Option<&[u8]> {
    if matches!(value, Value::Nil) { Some(b"0") } else { bytes(value) }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}
