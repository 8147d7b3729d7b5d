//! Stored answers and ends: what callers get that asks for no run here.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{Driver, Next, inflow::Flow, step::Step};
use crate::{
    error::FailureKind,
    flights::{Origin, Verdict},
    id::FlightRef,
    log::{Log, Reuse, SharedRun},
    record,
    store::{EndStatus, Joined, StreamEnd},
};

/// How often a record is asked for at most.
pub(super) const FETCHES: u32 = 2;

impl Driver {
    /// Takes an answer that asks for no run here.
    pub(super) async fn take(&mut self, joined: Joined) -> Next {
        match joined {
            Joined::Done { flight, streamed, record, age } => {
                let origin = age.map_or(Origin::Elsewhere, |age| Origin::Reused { age });
                return match streamed {
                    true => self.deliver_stream(flight, origin).await,
                    false => self.deliver(flight, record, origin).await,
                };
            }
            Joined::Failed { status, report, .. } => {
                self.fail(failure_of(status), Some(&report));
            }
            Joined::Private { .. } => {
                // Who comes to a key that is marked has waited for no run.
                self.flight.decide(Verdict::Alone { together: self.known > 0 });
            }
            Joined::Quarantined { .. } => {
                self.core.counts.quarantined();
                self.fail(FailureKind::Quarantined, None);
            }
            Joined::OtherFormat => {
                self.core.counts.bad_records();
                return self.run_without_store().await;
            }
            Joined::Lapsed | Joined::Missing => return self.leaving().await,
            Joined::Ended { status: EndStatus::Stopped } => self.fail(FailureKind::Stopped, None),
            Joined::Ended { .. }
            | Joined::Own { .. }
            | Joined::Probe { .. }
            | Joined::Follow { .. } => {
                return Next::Elect;
            }
        }
        Next::Over
    }

    /// Gives a stored answer to all callers; what cannot be read is a miss.
    pub(super) async fn deliver(
        &mut self,
        flight: FlightRef,
        record: Option<Bytes>,
        origin: Origin,
    ) -> Next {
        let record = match record {
            Some(record) => Some(record),
            None => self.fetch().await,
        };
        if self.is_forgotten(origin) {
            return Next::Elect;
        }
        let is_reused = matches!(origin, Origin::Reused { .. });
        let least = if is_reused { flight.token } else { self.known };
        if let Some(next) = record.and_then(|record| self.give_out(&record, least, origin)) {
            return next;
        }
        // Past this flight, or the next look would find the same again.
        self.know(flight.token.saturating_add(1));
        Next::Elect
    }

    /// Gives the answer to all callers that a push has told of. A push is a hint: none
    /// where it is to be looked up in the store.
    pub(super) async fn give_out_pushed(&mut self, record: Option<Bytes>) -> Option<Next> {
        let record = match record {
            Some(record) => record,
            None => self.fetch().await?,
        };
        self.give_out(&record, self.known, Origin::Elsewhere)
    }

    /// Asks the store about an end that a push has told of and that costs callers their
    /// answer, since whoever may publish can tell of one: what is to be done. Who hears of
    /// a newer flight meanwhile takes nothing of the older one.
    pub(super) async fn confirm(&mut self, told: Step, followed: FlightRef) -> Step {
        let look = self.join(true);
        match self.session.open().join(look).await {
            Ok(Joined::Follow { flight, .. }) if flight != followed && told.leaves_alone() => {
                self.leave();
                // With nothing of either: a newer one might end the same way for ever.
                Step::Take(Joined::Private { left: Duration::ZERO })
            }
            Ok(joined @ (Joined::Follow { .. } | Joined::Done { .. })) => {
                self.step_from_look(joined, followed)
            }
            Ok(Joined::Failed { flight, status, report }) if flight != followed => {
                Step::Take(Joined::Failed { flight, status, report })
            }
            Ok(Joined::Lapsed) => match told {
                // Nobody runs, which the record says of a run that failed as well.
                Step::Ended(StreamEnd { status: EndStatus::Failed, .. }) => Step::ReadOn,
                // It would say of any other end.
                _ => Step::TakeOver,
            },
            Ok(_) => told,
            Err(_) => {
                // It may wait for nobody there.
                self.leave();
                told
            }
        }
    }

    /// Gives a record's answer to all callers. None where it cannot be read, or is of a
    /// flight before `least`.
    pub(super) fn give_out(&mut self, record: &Bytes, least: u64, origin: Origin) -> Option<Next> {
        match record::decode(&self.core.sealer, &self.flight.key(), record) {
            Ok(found) if found.flight.token >= least => {
                let run = SharedRun {
                    head: Arc::new(found.head),
                    log: Log::complete(found.frames),
                    reuse: Reuse::Never,
                    selection: found.terms.selection,
                };
                self.found(found.flight, &run);
                self.flight.decide(Verdict::Replay { run, origin });
                Some(Next::Over)
            }
            _ => {
                self.core.counts.bad_records();
                None
            }
        }
    }

    /// Gives a stored answer to all callers that is there as a stream; what cannot be
    /// read is a miss.
    async fn deliver_stream(&mut self, flight: FlightRef, origin: Origin) -> Next {
        let mut inflow = self.inflow(flight, origin);
        match self.read_rest(&mut inflow).await {
            Flow::Ended(end) if self.is_forgotten(origin) => {
                // Whole for those who have begun with it.
                let seal = end.seal.as_ref();
                return match seal.is_some_and(|seal| inflow.close(seal).is_some()) {
                    true => Next::Elect,
                    false => self.unreadable(&inflow),
                };
            }
            Flow::Ended(end) => return self.end_of_stream(inflow, &end),
            _ if inflow.has_begun() => return self.unreadable(&inflow),
            _ => {}
        }
        // Past this flight, or the next look would find the same again.
        self.know(flight.token.saturating_add(1));
        Next::Elect
    }

    /// Whether an answer that is used again was asked for before the key was forgotten:
    /// somebody may wait for it who has come since.
    fn is_forgotten(&self, origin: Origin) -> bool {
        matches!(origin, Origin::Reused { .. }) && self.flight.forgets() != self.forgets
    }

    /// The key's stored record. An answer that was costly to make is worth a second
    /// try.
    async fn fetch(&mut self) -> Option<Bytes> {
        for _ in 0..FETCHES {
            if let Ok(record) = self.session.open().fetch().await {
                return record;
            }
        }
        None
    }
}

fn failure_of(status: EndStatus) -> FailureKind {
    match status {
        EndStatus::TimedOut => FailureKind::OwnerTimedOut,
        EndStatus::Stopped => FailureKind::Stopped,
        _ => FailureKind::OwnerFailed,
    }
}
