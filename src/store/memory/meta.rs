//! What is held of one key's last flight, and what can be read off it.

use std::time::Duration;

use tokio::time::Instant;

use super::kept::{Answer, Kept};
use crate::{
    id::{FlightId, FlightRef, WaiterId},
    store::{Badge, EndStatus, Join, Joined, Loss, Pushed},
};

/// Failed runs in a row after which followers get the outcome, not an election.
const FAILURES: u32 = 2;

#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Meta {
    pub(super) owner: FlightRef,
    /// `None` while the flight runs, whether or not its lease stands.
    pub(super) end: Option<End>,
    pub(super) lease_end: Instant,
    pub(super) lease: Duration,
    pub(super) retention: Duration,
    pub(super) expires: Instant,
    /// The last flight before this one that ended. A flight that was taken over
    /// did not end: it must not pass for one whose outcome was accepted.
    pub(super) prev: Option<(FlightRef, EndStatus)>,
    pub(super) failures: u32,
    pub(super) losses: u32,
    pub(super) quarantine: Option<Instant>,
    /// Who finds out whether the private mark is still right.
    pub(super) probe: Option<FlightId>,
    /// In the order of joining: the place is the rank.
    pub(super) waiters: Vec<Waiter>,
    /// When the lease was granted.
    pub(super) since: Instant,
    pub(super) badge: Badge,
}

#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct End {
    pub(super) status: EndStatus,
    pub(super) at: Instant,
    pub(super) fresh: Duration,
    pub(super) report: String,
}

#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Waiter {
    pub(super) id: WaiterId,
    pub(super) until: Instant,
}

impl Meta {
    /// Steps 0 to 5 of `join`: every answer but a grant.
    pub(super) fn answer(
        &mut self,
        kept: &Kept,
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
        if let Some(flight) = self.stopped_for(ask) {
            let (status, report) = (EndStatus::Stopped, String::new());
            return Some(Joined::Failed { flight, status, report });
        }
        let Some(end) = &self.end else {
            return self.answer_running(kept, ask, mark, now);
        };
        let mine = self.owner.id == ask.flight;
        let fresh = ask.known == 0 && !mine;
        // Whoever begins now begins at the start.
        let reusable = now.saturating_duration_since(end.at) < ask.reuse.min(end.fresh)
            && !kept.is_trimmed(self.owner);
        match end.status {
            EndStatus::Done if !fresh || reusable => {
                let (record, streamed) = match kept.answer_of(self.owner) {
                    Some(answer) => (answer.record, answer.streamed),
                    None => (None, false),
                };
                let age = fresh.then(|| now.saturating_duration_since(end.at));
                Some(Joined::Done { flight: self.owner, streamed, record, age })
            }
            EndStatus::Private => {
                let left = self.expires - now;
                let asks = fresh && !ask.look_only && mark.is_none();
                if !asks || self.probe.is_some_and(|probe| probe != ask.flight) {
                    return Some(Joined::Private { left });
                }
                self.probe = Some(ask.flight);
                Some(Joined::Probe { left })
            }
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

    /// The stopped flight that somebody took part in, or comes after.
    fn stopped_for(&self, ask: &Join) -> Option<FlightRef> {
        let last = self.end.as_ref().map(|end| (self.owner, end.status));
        let mine = self.owner.id == ask.flight || self.prev_of(ask.flight).is_some();
        last.into_iter().chain(self.prev).find_map(|(flight, status)| {
            let stopped = status == EndStatus::Stopped && flight.token >= ask.known;
            (stopped && ask.known > 0 && !mine).then_some(flight)
        })
    }

    pub(super) fn answer_running(
        &mut self,
        kept: &Kept,
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
            && let Some(Answer { record, streamed }) = kept.answer_of(flight)
        {
            return Some(Joined::Done { flight, streamed, record, age: None });
        }
        if stands && ask.known == 0 && kept.is_trimmed(self.owner) {
            // Its start is gone: who has none of it yet runs alone.
            return Some(Joined::Private { left: Duration::ZERO });
        }
        if stands {
            let left = self.lease_end - now;
            let until = after(now, mark.unwrap_or(left.saturating_add(ask.lease)));
            let rank = self.mark(ask.waiter, until, now);
            let pieces = kept.next(self.owner);
            let trace = self.badge.trace;
            return Some(Joined::Follow { flight: self.owner, left, rank, pieces, trace });
        }
        self.prev_of(ask.flight).map(|status| Joined::Ended { status })
    }

    /// Registers a wait, or keeps it; the number of live ones in front of it.
    pub(super) fn mark(&mut self, id: WaiterId, until: Instant, now: Instant) -> u32 {
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
    pub(super) fn let_go(&mut self, now: Instant) -> Pushed {
        let (status, report) = (EndStatus::Abandoned, String::new());
        self.end = Some(End { status, at: now, fresh: Duration::ZERO, report });
        self.lease_end = now;
        // Long enough for late duplicates of this flight's own messages, and no
        // longer: nothing of it is worth keeping.
        self.expires =
            after(now, self.lease.min(self.retention)).max(self.quarantine.unwrap_or(now));
        Pushed::Released { flight: self.owner }
    }

    pub(super) fn renew(&mut self, lease: Duration, now: Instant) {
        self.lease = lease;
        self.lease_end = after(now, lease);
        self.expires = after(now, lease.saturating_mul(2));
    }

    pub(super) fn is_own(&self, flight: FlightRef, now: Instant) -> bool {
        self.owner == flight && self.end.is_none() && now < self.lease_end
    }

    /// How this flight ended, if it is this one or the one before.
    pub(super) fn end_of(&self, flight: FlightRef) -> Option<EndStatus> {
        let own = self.end.as_ref().filter(|_| self.owner == flight).map(|end| end.status);
        own.or(self.prev.filter(|(prev, _)| *prev == flight).map(|(_, status)| status))
    }

    /// Whether its owner ended this flight.
    pub(super) fn is_ended(&self, flight: FlightRef) -> bool {
        self.end_of(flight)
            .is_some_and(|status| !matches!(status, EndStatus::Forgotten | EndStatus::Stopped))
    }

    /// Whether a grant to someone who knows this much carries the counts on.
    pub(super) fn is_chain(&self, known: u64) -> bool {
        let done = self.end.as_ref().is_some_and(|end| end.status == EndStatus::Done);
        known > 0 && !done && self.quarantine.is_none()
    }

    pub(super) fn prev_of(&self, id: FlightId) -> Option<EndStatus> {
        self.prev.filter(|(flight, _)| flight.id == id).map(|(_, status)| status)
    }

    pub(super) fn live(&self, now: Instant) -> u32 {
        count(self.waiters.iter().filter(|waiter| now < waiter.until).count())
    }

    /// Why a flight is not its owner's, where it did not end by its own word.
    pub(super) fn loss(&self, flight: FlightRef) -> Loss {
        match self.end_of(flight) {
            Some(EndStatus::Forgotten) => Loss::Forgotten,
            Some(EndStatus::Stopped) => Loss::Stopped,
            _ => Loss::Superseded { by: self.owner.token },
        }
    }
}

pub(super) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Durations that no clock can hold end in some thirty years.
pub(super) fn after(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(1 << 30))
}
