//! One key's record: the scripts of the store protocol as plain functions.
//!
//! No lock, no clock and no I/O in here: each step gets the time it runs at, and
//! gives back its answer and what is to be pushed to those who wait.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    id::{FlightId, FlightRef, WaiterId},
    store::{Abandoned, BeatReply, EndStatus, Finish, Finished, Join, Joined, Loss, Pushed},
};

/// Failed runs in a row after which followers get the outcome, not an election.
const FAILURES: u32 = 2;
/// Owners lost in a row after which nobody runs for a while.
const LOSSES: u32 = 3;
/// That while.
const QUARANTINE: Duration = Duration::from_secs(5);

/// What the store holds for one key.
#[derive(Default)]
pub(super) struct Record {
    meta: Option<Meta>,
    /// Of the last flight that ended well; outlives `meta` of later flights.
    result: Option<Stored>,
}

struct Stored {
    flight: FlightRef,
    record: Bytes,
    expires: Instant,
}

struct Meta {
    owner: FlightRef,
    /// `None` while the flight runs, whether or not its lease stands.
    end: Option<End>,
    lease_end: Instant,
    lease: Duration,
    retention: Duration,
    expires: Instant,
    /// The last flight before this one that ended. A flight that was taken over
    /// did not end: it must not pass for one whose outcome was accepted.
    prev: Option<(FlightRef, EndStatus)>,
    failures: u32,
    losses: u32,
    quarantine: Option<Instant>,
    /// In the order of joining: the place is the rank.
    waiters: Vec<Waiter>,
}

struct End {
    status: EndStatus,
    at: Instant,
    reusable: bool,
    report: String,
}

struct Waiter {
    id: WaiterId,
    until: Instant,
}

impl Record {
    /// `join`, or `watch` where there is a `mark`: how long the waiter's mark lasts,
    /// where that is not what is left of the lease and one more.
    /// `next` gives out a token above its argument.
    pub(super) fn join(
        &mut self,
        ask: &Join,
        mark: Option<Duration>,
        now: Instant,
        next: impl FnOnce(u64) -> u64,
    ) -> Joined {
        self.purge(now);
        let result = self.result.as_ref();
        if let Some(answer) =
            self.meta.as_mut().and_then(|meta| meta.answer(result, ask, mark, now))
        {
            return answer;
        }
        if ask.look_only || mark.is_some() {
            let known = self.meta.as_ref().is_some_and(|meta| meta.owner.token >= ask.known);
            return if known { Joined::Lapsed } else { Joined::Missing };
        }
        self.grant(ask, now, next)
    }

    /// Step 6 of `join`.
    fn grant(&mut self, ask: &Join, now: Instant, next: impl FnOnce(u64) -> u64) -> Joined {
        let mut floor = ask.known;
        let (mut failures, mut losses) = (0, 0);
        let mut prev = None;
        let mut waiters = Vec::new();
        if let Some(mut old) = self.meta.take() {
            floor = floor.max(old.owner.token).max(old.prev.map_or(0, |(flight, _)| flight.token));
            // A record from before what the caller knows says nothing of its chain.
            let readable = old.owner.token >= ask.known;
            if readable && old.is_chain(ask.known) {
                (failures, losses) = (old.failures, old.losses);
            }
            // It is here only because its lease is over.
            if readable && old.end.is_none() && old.quarantine.is_none() {
                losses += 1;
            }
            if losses >= LOSSES {
                old.quarantine = Some(now + QUARANTINE);
                old.expires = now + QUARANTINE;
                self.meta = Some(old);
                return Joined::Quarantined { left: QUARANTINE };
            }
            prev = old.end.map(|end| (old.owner, end.status)).or(old.prev);
            waiters = old.waiters;
            waiters.retain(|waiter| waiter.id != ask.waiter && now < waiter.until);
        }
        let token = next(floor);
        self.meta = Some(Meta {
            owner: FlightRef { token, id: ask.flight },
            end: None,
            lease_end: after(now, ask.lease),
            lease: ask.lease,
            retention: ask.retention,
            // One lease of grace, in which a late owner hears who took over.
            expires: after(now, ask.lease.saturating_mul(2)),
            prev,
            failures,
            losses,
            quarantine: None,
            waiters,
        });
        Joined::Own { token }
    }

    pub(super) fn renew(&mut self, flight: FlightRef, lease: Duration, now: Instant) -> BeatReply {
        self.purge(now);
        let Some(meta) = &mut self.meta else { return BeatReply::Lost(Loss::Missing) };
        if meta.is_own(flight, now) {
            meta.renew(lease, now);
            meta.waiters.retain(|waiter| now < waiter.until);
            BeatReply::Renewed { waiters: count(meta.waiters.len()) }
        } else if meta.is_ended(flight) {
            BeatReply::Over
        } else {
            BeatReply::Lost(meta.loss(flight))
        }
    }

    pub(super) fn finish(&mut self, finish: Finish, now: Instant) -> (Finished, Option<Pushed>) {
        self.purge(now);
        let Some(meta) = &mut self.meta else { return (Finished::Lost(Loss::Missing), None) };
        let Finish { flight, status, record, reusable, keep, report } = finish;
        if !meta.is_own(flight, now) {
            let ended = meta.is_ended(flight);
            let answer = if ended { Finished::Accepted } else { Finished::Lost(meta.loss(flight)) };
            return (answer, None);
        }
        let record = record.filter(|_| status == EndStatus::Done);
        match (status, &record) {
            (EndStatus::Done, None) | (EndStatus::Abandoned, _) if meta.live(now) > 0 => {
                return (Finished::Wanted, None);
            }
            (EndStatus::Done, None) | (EndStatus::Abandoned, _) => {
                return (Finished::Accepted, Some(meta.let_go(now)));
            }
            (EndStatus::Failed | EndStatus::TimedOut, _) => meta.failures += 1,
            _ => {}
        }
        meta.end = Some(End { status, at: now, reusable, report });
        meta.expires = after(now, keep);
        meta.waiters = Vec::new();
        if let Some(record) = record.clone() {
            self.result = Some(Stored { flight, record, expires: after(now, keep) });
        }
        (Finished::Accepted, Some(Pushed::Ended { flight, status, record }))
    }

    pub(super) fn abandon(
        &mut self,
        flight: FlightRef,
        now: Instant,
    ) -> (Abandoned, Option<Pushed>) {
        self.purge(now);
        let Some(meta) = &mut self.meta else { return (Abandoned::Lost(Loss::Missing), None) };
        if !meta.is_own(flight, now) {
            return (Abandoned::Lost(meta.loss(flight)), None);
        }
        match meta.live(now) {
            0 => (Abandoned::Over, Some(meta.let_go(now))),
            waiters => (Abandoned::Wanted { waiters }, None),
        }
    }

    pub(super) fn release(
        &mut self,
        flight: FlightId,
        token: Option<u64>,
        status: EndStatus,
        now: Instant,
    ) -> Option<Pushed> {
        self.purge(now);
        let meta = self.meta.as_mut()?;
        let held = meta.end.is_none()
            && meta.owner.id == flight
            && token.is_none_or(|token| token == meta.owner.token);
        held.then(|| {
            let pushed = meta.let_go(now);
            match (&mut meta.end, status) {
                (Some(end), EndStatus::TimedOut) => {
                    end.status = status;
                    meta.failures += 1;
                    Pushed::Ended { flight: meta.owner, status, record: None }
                }
                _ => pushed,
            }
        })
    }

    pub(super) fn forget(&mut self, now: Instant) -> Option<Pushed> {
        self.purge(now);
        let meta = self.meta.as_mut()?;
        if let Some(end) = &mut meta.end {
            end.reusable = false;
            return None;
        }
        // Its owner comes to hear of it as long as it would have renewed.
        let expires = meta.expires;
        let pushed = meta.let_go(now);
        meta.expires = meta.expires.max(expires);
        if let Some(end) = &mut meta.end {
            end.status = EndStatus::Forgotten;
        }
        Some(pushed)
    }

    pub(super) fn leave(&mut self, waiter: WaiterId) {
        if let Some(meta) = &mut self.meta {
            meta.waiters.retain(|known| known.id != waiter);
        }
    }

    pub(super) fn fetch(&mut self, now: Instant) -> Option<Bytes> {
        self.purge(now);
        self.result.as_ref().map(|stored| stored.record.clone())
    }

    /// Drops what has outlived its time.
    pub(super) fn purge(&mut self, now: Instant) {
        self.meta.take_if(|meta| meta.expires <= now);
        self.result.take_if(|stored| stored.expires <= now);
    }

    /// When the last of it has outlived its time; `None` where nothing is there.
    pub(super) fn expires(&self) -> Option<Instant> {
        let meta = self.meta.as_ref().map(|meta| meta.expires);
        meta.max(self.result.as_ref().map(|stored| stored.expires))
    }
}

impl Meta {
    /// Steps 0 to 5 of `join`: every answer but a grant.
    fn answer(
        &mut self,
        result: Option<&Stored>,
        ask: &Join,
        mark: Option<Duration>,
        now: Instant,
    ) -> Option<Joined> {
        if let Some(until) = self.quarantine.filter(|until| now < *until) {
            return Some(Joined::Quarantined { left: until - now });
        }
        if self.owner.token < ask.known {
            return None;
        }
        let Some(end) = &self.end else {
            return self.answer_running(result, ask, mark, now);
        };
        let mine = self.owner.id == ask.flight;
        let fresh = ask.known == 0 && !mine;
        match end.status {
            EndStatus::Done
                if !fresh || end.reusable && now.saturating_duration_since(end.at) < ask.reuse =>
            {
                let record = record_of(result, self.owner);
                Some(Joined::Done { flight: self.owner, record, reused: fresh })
            }
            EndStatus::Private => Some(Joined::Private { left: self.expires - now }),
            // Whoever waited for it runs alone, like the others who did.
            EndStatus::TooLarge if ask.known > 0 => Some(Joined::Private { left: Duration::ZERO }),
            status if mine => Some(Joined::Ended { status }),
            _ if self.prev_of(ask.flight).is_some() => {
                self.prev_of(ask.flight).map(|status| Joined::Ended { status })
            }
            status @ (EndStatus::Failed | EndStatus::TimedOut)
                if ask.known > 0 && self.failures >= FAILURES =>
            {
                let report = end.report.clone();
                Some(Joined::Failed { flight: self.owner, status, report })
            }
            _ => None,
        }
    }

    fn answer_running(
        &mut self,
        result: Option<&Stored>,
        ask: &Join,
        mark: Option<Duration>,
        now: Instant,
    ) -> Option<Joined> {
        let stands = now < self.lease_end;
        if stands && self.owner.id == ask.flight {
            self.renew(ask.lease, now);
            return Some(Joined::Own { token: self.owner.token });
        }
        // The end of the flight before was missed. Where its record is gone there is
        // nothing to be had of it, and the caller follows this one.
        if let Some((flight, EndStatus::Done)) = self.prev
            && ask.known > 0
            && flight.token >= ask.known
            && let Some(record) = record_of(result, flight)
        {
            return Some(Joined::Done { flight, record: Some(record), reused: false });
        }
        if stands {
            let left = self.lease_end - now;
            let until = after(now, mark.unwrap_or(left.saturating_add(ask.lease)));
            let rank = self.mark(ask.waiter, until, now);
            return Some(Joined::Follow { flight: self.owner, left, rank });
        }
        self.prev_of(ask.flight).map(|status| Joined::Ended { status })
    }

    /// Registers a wait, or keeps it; the number of live ones in front of it.
    fn mark(&mut self, id: WaiterId, until: Instant, now: Instant) -> u32 {
        // Its own mark keeps its place, even where it had just run out.
        self.waiters.retain(|waiter| waiter.id == id || now < waiter.until);
        let place = self.waiters.iter().position(|waiter| waiter.id == id);
        match place.and_then(|place| self.waiters.get_mut(place)) {
            Some(waiter) => waiter.until = until,
            None => self.waiters.push(Waiter { id, until }),
        }
        count(place.unwrap_or(self.waiters.len() - 1))
    }

    /// The flight is over without an outcome; whoever asks next may own.
    fn let_go(&mut self, now: Instant) -> Pushed {
        let (status, report) = (EndStatus::Abandoned, String::new());
        self.end = Some(End { status, at: now, reusable: false, report });
        self.lease_end = now;
        // Long enough for late duplicates of this flight's own messages, and no
        // longer: nothing of it is worth keeping.
        self.expires =
            after(now, self.lease.min(self.retention)).max(self.quarantine.unwrap_or(now));
        Pushed::Released { flight: self.owner }
    }

    fn renew(&mut self, lease: Duration, now: Instant) {
        self.lease = lease;
        self.lease_end = after(now, lease);
        self.expires = after(now, lease.saturating_mul(2));
    }

    fn is_own(&self, flight: FlightRef, now: Instant) -> bool {
        self.owner == flight && self.end.is_none() && now < self.lease_end
    }

    /// How this flight ended, if it is this one or the one before.
    fn end_of(&self, flight: FlightRef) -> Option<EndStatus> {
        let own = self.end.as_ref().filter(|_| self.owner == flight).map(|end| end.status);
        own.or(self.prev.filter(|(prev, _)| *prev == flight).map(|(_, status)| status))
    }

    /// Whether its owner ended this flight.
    fn is_ended(&self, flight: FlightRef) -> bool {
        self.end_of(flight).is_some_and(|status| status != EndStatus::Forgotten)
    }

    /// Whether a grant to someone who knows this much carries the counts on.
    fn is_chain(&self, known: u64) -> bool {
        let done = self.end.as_ref().is_some_and(|end| end.status == EndStatus::Done);
        known > 0 && !done && self.quarantine.is_none()
    }

    fn prev_of(&self, id: FlightId) -> Option<EndStatus> {
        self.prev.filter(|(flight, _)| flight.id == id).map(|(_, status)| status)
    }

    fn live(&self, now: Instant) -> u32 {
        count(self.waiters.iter().filter(|waiter| now < waiter.until).count())
    }

    /// Why a flight is not its owner's, where it did not end by its own word.
    fn loss(&self, flight: FlightRef) -> Loss {
        match self.end_of(flight) {
            Some(EndStatus::Forgotten) => Loss::Forgotten,
            _ => Loss::Superseded { by: self.owner.token },
        }
    }
}

fn record_of(result: Option<&Stored>, flight: FlightRef) -> Option<Bytes> {
    result.filter(|stored| stored.flight == flight).map(|stored| stored.record.clone())
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Durations that no clock can hold end in some thirty years.
fn after(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(1 << 30))
}
