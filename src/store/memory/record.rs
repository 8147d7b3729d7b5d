//! One key's record: the scripts of the store protocol as plain functions.
//!
//! No lock, no clock and no I/O in here: each step gets the time it runs at, and
//! gives back its answer and what is to be pushed to those who wait.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    kept::Kept,
    meta::{End, Meta, after, count},
};
use crate::{
    id::{FlightId, FlightRef, WaiterId},
    store::{
        Abandoned, Append, Appended, Badge, BeatReply, EndStatus, Finish, Finished, Join, Joined,
        Loss, Pieces, Pushed,
    },
};

/// Owners lost in a row after which nobody runs for a while.
const LOSSES: u32 = 3;
/// That while.
const QUARANTINE: Duration = Duration::from_secs(5);

/// What the store holds for one key.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Record {
    pub(super) meta: Option<Meta>,
    pub(super) kept: Kept,
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
        let kept = &self.kept;
        if let Some(answer) = self.meta.as_mut().and_then(|meta| meta.answer(kept, ask, mark, now))
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
        self.kept.begin(prev.map(|(flight, _)| flight));
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
            probe: None,
            waiters,
            since: now,
            badge: Badge::default(),
        });
        Joined::Own { token }
    }

    pub(super) fn renew(&mut self, flight: FlightRef, lease: Duration, now: Instant) -> BeatReply {
        self.purge(now);
        let Some(meta) = &mut self.meta else { return BeatReply::Lost(Loss::Missing) };
        if meta.is_own(flight, now) {
            meta.renew(lease, now);
            self.kept.renew(flight, lease, now);
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
        let Finish { flight, status, record, seal, fresh, keep, report } = finish;
        if !meta.is_own(flight, now) {
            let ended = meta.is_ended(flight);
            let answer = if ended { Finished::Accepted } else { Finished::Lost(meta.loss(flight)) };
            return (answer, None);
        }
        let record = record.filter(|_| status == EndStatus::Done);
        let next = self.kept.next(flight);
        if seal.as_ref().is_some_and(|seal| seal.pieces != next) {
            return (Finished::Gap { next }, None);
        }
        match (status, &record) {
            (EndStatus::Done, None) if seal.is_some() => {}
            (EndStatus::Done, None) | (EndStatus::Abandoned, _) if meta.live(now) > 0 => {
                return (Finished::Wanted, None);
            }
            (EndStatus::Done, None) | (EndStatus::Abandoned, _) => {
                return (Finished::Accepted, Some(meta.let_go(now)));
            }
            (EndStatus::Failed | EndStatus::TimedOut, _) => meta.failures += 1,
            _ => {}
        }
        meta.end = Some(End { status, at: now, fresh, report });
        meta.expires = after(now, keep);
        meta.waiters = Vec::new();
        self.kept.end(flight, status, record.clone(), seal.clone(), meta.expires);
        (Finished::Accepted, Some(Pushed::Ended { flight, status, record, seal }))
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
        if meta.probe.take_if(|probe| *probe == flight).is_some() {
            if let Some(end) = meta.end.as_mut().filter(|_| status == EndStatus::Done) {
                end.status = EndStatus::Abandoned;
            }
            return None;
        }
        let held = meta.end.is_none()
            && status != EndStatus::Done
            && meta.owner.id == flight
            && token.is_none_or(|token| token == meta.owner.token);
        held.then(|| {
            let pushed = meta.let_go(now);
            match (&mut meta.end, status) {
                (Some(end), EndStatus::TimedOut) => {
                    end.status = status;
                    meta.failures += 1;
                    Pushed::Ended { flight: meta.owner, status, record: None, seal: None }
                }
                _ => pushed,
            }
        })
    }

    pub(super) fn forget(&mut self, now: Instant) -> Option<Pushed> {
        self.purge(now);
        let meta = self.meta.as_mut()?;
        if let Some(end) = &mut meta.end {
            end.fresh = Duration::ZERO;
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

    pub(super) fn stop(&mut self, now: Instant) -> Option<Pushed> {
        self.purge(now);
        let meta = self.meta.as_mut().filter(|meta| meta.end.is_none())?;
        if meta.quarantine.is_some() {
            return None;
        }
        // All who took part come to hear of it for as long as the lease would have stood.
        let expires = meta.expires;
        meta.let_go(now);
        meta.expires = meta.expires.max(expires);
        meta.waiters = Vec::new();
        let status = EndStatus::Stopped;
        if let Some(end) = &mut meta.end {
            end.status = status;
        }
        Some(Pushed::Ended { flight: meta.owner, status, record: None, seal: None })
    }

    pub(super) fn leave(&mut self, waiter: WaiterId) {
        if let Some(meta) = &mut self.meta {
            meta.waiters.retain(|known| known.id != waiter);
        }
    }

    /// How old this flight's answer is and may be, where a fresh caller would get it.
    pub(super) fn fresh(
        &mut self,
        flight: FlightRef,
        now: Instant,
    ) -> Option<(Duration, Duration)> {
        self.purge(now);
        let meta = self.meta.as_ref().filter(|meta| meta.owner == flight)?;
        let end = meta.end.as_ref().filter(|end| end.status == EndStatus::Done)?;
        let age = now.saturating_duration_since(end.at);
        let is_whole = self.kept.answer_of(flight).is_some() && !self.kept.is_trimmed(flight);
        (is_whole && age < end.fresh).then_some((age, end.fresh))
    }

    /// How many wait.
    pub(super) fn live(&self, now: Instant) -> u32 {
        self.meta.as_ref().map_or(0, |meta| meta.live(now))
    }

    pub(super) fn fetch(&mut self, now: Instant) -> Option<Bytes> {
        self.purge(now);
        self.kept.record()
    }

    pub(super) fn append(&mut self, append: Append, now: Instant) -> (Appended, Option<Pushed>) {
        self.purge(now);
        let Some(meta) = &self.meta else { return (Appended::Lost(Loss::Missing), None) };
        let flight = append.flight;
        if meta.is_own(flight, now) {
            return match self.kept.append(append, now) {
                Ok(pushed) => (Appended::Accepted { next: self.kept.next(flight) }, pushed),
                Err(next) => (Appended::Gap { next }, None),
            };
        }
        let over = meta.is_ended(flight);
        (if over { Appended::Over } else { Appended::Lost(meta.loss(flight)) }, None)
    }

    pub(super) fn read(&mut self, flight: FlightRef, from: u64, now: Instant) -> Pieces {
        self.purge(now);
        self.kept.read(flight, from)
    }

    /// Drops what has outlived its time.
    pub(super) fn purge(&mut self, now: Instant) {
        self.meta.take_if(|meta| meta.expires <= now);
        self.kept.purge(now);
    }

    /// When the last of it has outlived its time; `None` where nothing is there.
    pub(super) fn expires(&self) -> Option<Instant> {
        let meta = self.meta.as_ref().map(|meta| meta.expires);
        meta.max(self.kept.expires())
    }
}
