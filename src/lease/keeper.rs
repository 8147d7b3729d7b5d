//! What to send, and when: a state machine without clock or I/O.

use std::{sync::Arc, time::Duration};

use slab::Slab;
use tokio::{sync::mpsc, time::Instant};

use super::{Lease, LeaseEnd, Permit, Terms};
use crate::{
    id::{FlightId, FlightRef, KeyDigest, WaiterId},
    store::{Beat, BeatReply, EndStatus, Join, Joined, Loss, StoreError},
};

/// Renews the leases of a process and watches the flights that it follows.
#[derive(Debug)]
pub(crate) struct Keeper {
    terms: Terms,
    posts: Slab<Post>,
    serial: u64,
    /// The earliest due time of what was posted since it was last taken.
    posted: Option<Instant>,
    /// From here on it is a beat from each tick to the next.
    first_tick: Option<Instant>,
}

/// A place in the keeper, for who registered there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    at: usize,
    serial: u64,
}

#[derive(Debug)]
struct Post {
    serial: u64,
    key: KeyDigest,
    duty: Duty,
    /// When it is sent next; `None` while an answer is awaited, or for good.
    due: Option<Instant>,
    missed: u32,
}

#[derive(Debug)]
enum Duty {
    Lease {
        lease: Arc<Lease>,
        permit: Arc<Permit>,
        hard_deadline: Instant,
    },
    Watch {
        join: Join,
        seen: mpsc::UnboundedSender<Joined>,
    },
    /// Something to be said once; tried until `until`.
    Errand {
        beat: Beat,
        until: Instant,
    },
}

impl Keeper {
    pub(crate) fn new(terms: Terms) -> Self {
        Self { terms, posts: Slab::new(), serial: 0, posted: None, first_tick: None }
    }

    fn post(&mut self, key: KeyDigest, duty: Duty, due: Instant) -> Place {
        self.serial += 1;
        self.posted = Some(self.posted.map_or(due, |posted| posted.min(due)));
        let serial = self.serial;
        let at = self.posts.insert(Post { serial, key, duty, due: Some(due), missed: 0 });
        Place { at, serial }
    }

    /// Ticks are counted from what comes when there is nothing else.
    fn first_due(&mut self, asked: Instant) -> Instant {
        let first = self.first_tick.filter(|_| !self.posts.is_empty()).unwrap_or(asked);
        self.first_tick = Some(first);
        self.terms.first_tick_after(asked, first)
    }

    /// Keeps this lease, which was asked for at `asked`, until its run is over its
    /// time limit, or idle for too long.
    pub(crate) fn hold(
        &mut self,
        key: KeyDigest,
        lease: Arc<Lease>,
        permit: Arc<Permit>,
        asked: Instant,
        hard_deadline: Instant,
    ) -> Place {
        let due = self.first_due(asked);
        self.post(key, Duty::Lease { lease, permit, hard_deadline }, due)
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        self.terms.idle_timeout
    }

    /// Looks again at this time, which is sooner than it knew.
    pub(crate) fn look(&mut self, at: Option<Instant>) {
        self.posted = self.posted.into_iter().chain(at).min();
    }

    /// Watches the flight that `join` follows; what is found goes to `seen`.
    pub(crate) fn watch(
        &mut self,
        key: KeyDigest,
        join: Join,
        seen: mpsc::UnboundedSender<Joined>,
        now: Instant,
    ) -> Place {
        let due = self.first_due(now);
        self.post(key, Duty::Watch { join, seen }, due)
    }

    /// Lets a flight go.
    pub(crate) fn release(
        &mut self,
        key: KeyDigest,
        flight: FlightId,
        token: Option<u64>,
        now: Instant,
    ) {
        self.release_as(key, flight, token, EndStatus::Abandoned, now);
    }

    /// As [`release`](Self::release), with a word on what came of it.
    pub(crate) fn release_as(
        &mut self,
        key: KeyDigest,
        flight: FlightId,
        token: Option<u64>,
        status: EndStatus,
        now: Instant,
    ) {
        let beat = Beat::Release { key, flight, token, status };
        self.post(key, Duty::Errand { beat, until: now + self.terms.lease }, now);
    }

    /// Ends a wait.
    pub(crate) fn leave(&mut self, key: KeyDigest, waiter: WaiterId, now: Instant) {
        let beat = Beat::Leave { key, waiter };
        self.post(key, Duty::Errand { beat, until: now + self.terms.mark() }, now);
    }

    /// Forgets what is at this place; nothing more is sent for it.
    pub(crate) fn dismiss(&mut self, place: Place) {
        if self.posts.get(place.at).is_some_and(|post| post.serial == place.serial) {
            self.posts.remove(place.at);
        }
    }

    /// Whether anything is left to be said before the keeper may end.
    pub(crate) fn has_errands(&self) -> bool {
        self.posts.iter().any(|(_, post)| matches!(post.duty, Duty::Errand { .. }))
    }

    /// Nobody drives the keeper any more: what was on its way is due again, and
    /// whoever relies on it is woken to start another. A watch ends with it.
    pub(crate) fn desert(&mut self, now: Instant) {
        self.posts.retain(|_, post| {
            match &post.duty {
                Duty::Watch { .. } => return false,
                Duty::Lease { lease, .. } if lease.end().is_some() => return true,
                Duty::Lease { lease, .. } => lease.call(),
                Duty::Errand { .. } => {}
            }
            post.due.get_or_insert(now);
            true
        });
    }

    /// The earliest due time of what was posted since the last call.
    pub(crate) fn take_posted(&mut self) -> Option<Instant> {
        self.posted.take()
    }

    /// When [`poll`](Self::poll) has something to do next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.posts.iter().filter_map(|(_, post)| post.next(&self.terms)).min()
    }

    /// When [`expire`](Self::expire) has something to do next.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.posts.iter().filter_map(|(_, post)| post.expiry(&self.terms)).min()
    }

    /// Ends the leases that are over by our own clock. A run that passed its time
    /// limit is let go from here, since its own runtime may be blocked.
    pub(crate) fn expire(&mut self, now: Instant) {
        let until = now + self.terms.lease;
        for (_, post) in &mut self.posts {
            let Duty::Lease { lease, permit, hard_deadline } = &post.duty else { continue };
            if post.expiry(&self.terms).is_none_or(|expiry| expiry > now) {
                continue;
            }
            let idle = permit.idle_at(self.terms.idle_timeout).is_some_and(|idle| idle <= now);
            let timeout = match now < *hard_deadline {
                true if lease.is_held() && idle => LeaseEnd::IdleTimeout,
                true => {
                    lease.finish(LeaseEnd::Silence);
                    post.due = None;
                    continue;
                }
                false => LeaseEnd::HardTimeout,
            };
            if !lease.finish(timeout) {
                // In time, but its driver does not come to say so: the lease runs out.
                post.due = None;
                continue;
            }
            let FlightRef { token, id: flight } = lease.flight();
            let (key, status) = (post.key, EndStatus::TimedOut);
            let beat = Beat::Release { key, flight, token: Some(token), status };
            // Not the owner's any more, and deaf to the answer of a renewal.
            self.serial += 1;
            let serial = self.serial;
            *post =
                Post { serial, key, duty: Duty::Errand { beat, until }, due: Some(now), missed: 0 };
        }
    }

    /// What is to be sent now. What falls due a little later goes along, so that
    /// many leases make few packets.
    pub(crate) fn poll(&mut self, now: Instant) -> (Vec<Place>, Vec<Beat>) {
        let soon = now + self.terms.soon();
        let (terms, mut places, mut batch) = (self.terms, Vec::new(), Vec::new());
        self.expire(now);
        if self.posts.iter().all(|(_, post)| post.due.is_none_or(|due| due > now)) {
            return (places, batch);
        }
        self.posts.retain(|at, post| {
            if post.due.is_some_and(|due| due <= soon) {
                if let Duty::Errand { until, .. } = post.duty
                    && now > until
                {
                    return false;
                }
                post.due = None;
                places.push(Place { at, serial: post.serial });
                batch.push(post.beat(&terms));
            }
            true
        });
        (places, batch)
    }

    /// What came back for one of them; `sent` is the time before the send.
    pub(crate) fn answer(
        &mut self,
        place: Place,
        sent: Instant,
        now: Instant,
        reply: Result<BeatReply, StoreError>,
    ) {
        let terms = self.terms;
        let Some(post) = self.posts.get_mut(place.at).filter(|post| post.serial == place.serial)
        else {
            return;
        };
        match reply {
            Err(_) if post.is_over() => {}
            Err(_) => {
                // The first miss is tried again at once, the next ones each beat, and
                // once more shortly before the lease is over.
                let next = if post.missed == 0 { now } else { sent + terms.beat };
                post.due = Some(post.last_try(now, &terms).map_or(next, |last| next.min(last)));
                post.missed = post.missed.saturating_add(1);
            }
            Ok(reply) => {
                post.missed = 0;
                if post.take(reply, sent, &terms) {
                    let first = *self.first_tick.get_or_insert(sent);
                    post.due = Some(terms.tick_after(sent, first));
                } else if matches!(post.duty, Duty::Errand { .. }) {
                    self.posts.remove(place.at);
                }
            }
        }
    }
}

impl Post {
    fn next(&self, terms: &Terms) -> Option<Instant> {
        self.due.into_iter().chain(self.expiry(terms)).min()
    }

    fn expiry(&self, terms: &Terms) -> Option<Instant> {
        match &self.duty {
            Duty::Lease { lease, permit, hard_deadline } if lease.is_held() => {
                let idle = permit.idle_at(terms.idle_timeout);
                idle.into_iter().chain([lease.deadline(), *hard_deadline]).min()
            }
            Duty::Lease { lease, hard_deadline, .. } if lease.end().is_none() => {
                self.due.map(|_| *hard_deadline)
            }
            _ => None,
        }
    }

    /// When a lease can still be saved, if that is yet to come.
    fn last_try(&self, now: Instant, terms: &Terms) -> Option<Instant> {
        let Duty::Lease { lease, .. } = &self.duty else { return None };
        Some(lease.deadline() - terms.beat / 4).filter(|last| *last > now)
    }

    /// Whether it is about a lease that has ended.
    fn is_over(&self) -> bool {
        matches!(&self.duty, Duty::Lease { lease, .. } if lease.end().is_some())
    }

    fn beat(&self, terms: &Terms) -> Beat {
        match &self.duty {
            Duty::Lease { lease, .. } => {
                Beat::Renew { key: self.key, flight: lease.flight(), lease: terms.lease }
            }
            Duty::Watch { join, .. } => {
                Beat::Watch { key: self.key, join: join.clone(), mark: terms.mark() }
            }
            Duty::Errand { beat, .. } => beat.clone(),
        }
    }

    /// Takes an answer in; true when the next beat is wanted.
    fn take(&mut self, reply: BeatReply, sent: Instant, terms: &Terms) -> bool {
        match (&self.duty, reply) {
            (Duty::Lease { lease, .. }, BeatReply::Renewed { waiters }) => {
                lease.renewed(sent, terms.stands(), waiters);
                lease.end().is_none()
            }
            (Duty::Lease { lease, .. }, BeatReply::Lost(loss)) => {
                lease.finish(match loss {
                    Loss::Missing => LeaseEnd::Missing,
                    Loss::Forgotten => LeaseEnd::Forgotten,
                    Loss::Stopped => LeaseEnd::Stopped,
                    Loss::Superseded { .. } => LeaseEnd::Superseded,
                });
                false
            }
            (Duty::Watch { seen, .. }, BeatReply::Watched(joined)) => {
                let goes_on =
                    matches!(joined, Joined::Follow { .. } | Joined::Lapsed | Joined::Missing);
                seen.send(joined).is_ok() && goes_on
            }
            // Ended by its own `finish`, or an answer to another question.
            _ => false,
        }
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
