//! Owning: one deposited request is run under the lease, or without one where the
//! store is away.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{Driver, FAILED_RUNS, Next};
use crate::{
    config::{Abandon, LeaseLoss},
    error::FailureKind,
    flights::{Brief, Deposit, Flight, FlightPhase, Origin, RunEnd, SharedRun, Verdict},
    id::FlightRef,
    lease::{Lease, LeaseEnd, OwnerGuard},
    record,
    store::{Abandoned, EndStatus, Finish, Finished, Joined, Loss},
};

/// How an attempt to own went on.
enum Outcome {
    Ran(RunEnd),
    /// The run was dropped since the lease is over.
    Lost(LeaseEnd),
    /// The process is leaving.
    Drained,
    /// Nobody wants it any more, here or elsewhere; whether the store knows it.
    Unwanted {
        told: bool,
    },
}

/// An end, before it is known which flight's it is.
struct Ending {
    status: EndStatus,
    record: Option<Bytes>,
    reusable: bool,
    keep: Duration,
    report: String,
}

impl Ending {
    fn new(status: EndStatus, keep: Duration) -> Self {
        Self { status, record: None, reusable: false, keep, report: String::new() }
    }

    fn of(self, flight: FlightRef) -> Finish {
        let Self { status, record, reusable, keep, report } = self;
        Finish { flight, status, record, reusable, keep, report }
    }
}

/// The most bytes of a text, up to `most`, that end with a whole character.
fn whole_chars(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Waits until a run without a lease is to be dropped.
async fn unwanted(flight: &Flight, abandon: Abandon) {
    flight.vacated().await;
    if abandon == Abandon::Finish {
        std::future::pending::<()>().await;
    }
}

impl Driver {
    /// Runs one deposited request as the owner.
    pub(super) async fn own(&mut self, mut guard: OwnerGuard) -> Next {
        let token = guard.lease().map(|lease| lease.flight().token);
        let brief = Brief { token, max_share_bytes: self.core.config.max_share_bytes };
        // A caller may leave between the two steps: then the next one's is run.
        let started = std::iter::from_fn(|| self.flight.next_deposit())
            .find_map(|(at, deposit)| Some((Arc::clone(&deposit).start(brief)?, at, deposit)));
        let Some((run, at, deposit)) = started else {
            drop(guard);
            return self.nothing_to_run();
        };
        let phase = if token.is_some() { FlightPhase::Owning } else { FlightPhase::Local };
        self.flight.at(phase, token.unwrap_or_default());
        guard.begin(run);
        match self.attend(&mut guard, &*deposit).await {
            Outcome::Ran(end) => self.conclude(guard, end).await,
            Outcome::Unwanted { told } => {
                guard.stop();
                if told {
                    guard.finished();
                } else {
                    drop(guard);
                }
                if self.flight.close_if_vacant() { Next::Over } else { Next::Elect }
            }
            Outcome::Drained => {
                self.gave_up = true;
                self.core.counts.hand_overs();
                drop(guard);
                Next::Elect
            }
            Outcome::Lost(LeaseEnd::HardTimeout) => {
                // The keeper has let the lease go.
                guard.stop();
                guard.finished();
                self.after_failure(FailureKind::OwnerTimedOut, None)
            }
            Outcome::Lost(_) => {
                self.core.counts.leases_lost();
                drop(guard);
                self.flight.give_back(at, deposit);
                if self.flight.close_if_vacant() { Next::Over } else { Next::Elect }
            }
        }
    }

    /// All who are left have used their requests up.
    fn nothing_to_run(&self) -> Next {
        if !self.flight.close_if_vacant() {
            self.fail(FailureKind::OwnerVanished, None);
        }
        Next::Over
    }

    /// Watches over the run: its end, the lease, and whether anybody wants it.
    async fn attend(&mut self, guard: &mut OwnerGuard, own: &dyn Deposit) -> Outcome {
        loop {
            let Some(lease) = guard.lease().cloned() else {
                return self.attend_without_lease(guard).await;
            };
            self.see_to_keeper();
            if let Some(mut lost) = lease.end() {
                if lost == LeaseEnd::Missing {
                    match self.reclaim(guard).await {
                        Ok(()) => continue,
                        Err(instead) => lost = instead,
                    }
                }
                if !self.goes_on_alone(lost, own).await {
                    return Outcome::Lost(lost);
                }
                if lost == LeaseEnd::Forgotten {
                    // Who comes from now on begins anew.
                    self.flight.settle();
                } else {
                    self.core.counts.leases_lost();
                }
                guard.detach();
                continue;
            }
            let vacant = self.flight.is_vacant();
            lease.set_attentive(vacant);
            if vacant && lease.waiters() == 0 && self.core.config.abandon == Abandon::Abort {
                // Inner is not polled while this is unanswered.
                match self.session.abandon(lease.flight()).await {
                    Ok(Abandoned::Wanted { waiters }) => lease.set_waiters(waiters.max(1)),
                    Ok(Abandoned::Over) => return Outcome::Unwanted { told: true },
                    Ok(Abandoned::Lost(_)) => return Outcome::Lost(LeaseEnd::Superseded),
                    Err(_) => return Outcome::Unwanted { told: false },
                }
                continue;
            }
            tokio::select! {
                biased;
                () = self.flight.vacated(), if !vacant => {}
                () = lease.changed() => {}
                () = self.core.drain.drained() => return Outcome::Drained,
                end = guard.run() => return self.ended(guard, &lease, end, own).await,
            }
        }
    }

    /// The run has come to its end: in time, or too late for all but its own caller.
    async fn ended(
        &mut self,
        guard: &mut OwnerGuard,
        lease: &Lease,
        end: RunEnd,
        own: &dyn Deposit,
    ) -> Outcome {
        if lease.conclude() {
            return Outcome::Ran(end);
        }
        // What the run had for its own caller alone is there all the same.
        self.flight.stir();
        let lost = lease.end().unwrap_or(LeaseEnd::Silence);
        if self.goes_on_alone(lost, own).await {
            guard.detach();
            Outcome::Ran(end)
        } else {
            Outcome::Lost(lost)
        }
    }

    /// Owns again, with the same run, where the store has lost the record; or says
    /// what became of the lease.
    async fn reclaim(&mut self, guard: &mut OwnerGuard) -> Result<(), LeaseEnd> {
        let join = self.join(false);
        let asked = Instant::now();
        match self.session.join(join.clone()).await {
            Ok(Joined::Own { token }) => {
                self.know(token);
                let flight = FlightRef { token, id: join.flight };
                guard.renew(&self.core.keeper, self.flight.key(), flight, asked);
                if guard.stands() { Ok(()) } else { Err(LeaseEnd::Missing) }
            }
            // Somebody else was faster.
            Ok(_) => Err(LeaseEnd::Superseded),
            Err(_) => {
                self.core.keeper.forget(self.flight.key(), join.flight, self.waiter);
                Err(LeaseEnd::Missing)
            }
        }
    }

    /// Whether a run goes on without a lease. Where the store can be asked and somebody
    /// else owns by now, its callers follow: the process was paused, not cut off.
    async fn goes_on_alone(&mut self, lost: LeaseEnd, own: &dyn Deposit) -> bool {
        let may = self.may_go_on_alone(lost, own);
        if !may || lost == LeaseEnd::Forgotten {
            return may;
        }
        let look = self.join(true);
        match self.session.join(look).await {
            Ok(Joined::Follow { flight, .. }) => flight.token <= self.known,
            Ok(Joined::Done { .. }) => false,
            _ => true,
        }
    }

    /// A run that was forgotten goes on for its own callers, and so does one that is
    /// cut off from the store where they can neither follow nor ask again.
    fn may_go_on_alone(&self, lost: LeaseEnd, own: &dyn Deposit) -> bool {
        let may = match lost {
            LeaseEnd::Superseded | LeaseEnd::HardTimeout => false,
            LeaseEnd::Forgotten => true,
            LeaseEnd::Silence | LeaseEnd::Missing => {
                self.core.config.lease_loss == LeaseLoss::FinishLocally
                    || !(own.is_repeatable() || self.flight.has_deposit())
            }
        };
        may && !self.flight.is_vacant()
    }

    async fn attend_without_lease(&mut self, guard: &mut OwnerGuard) -> Outcome {
        let limit = pin!(tokio::time::sleep_until(guard.limit()));
        tokio::select! {
            biased;
            end = guard.run() => Outcome::Ran(end),
            () = unwanted(&self.flight, self.core.config.abandon) => Outcome::Unwanted { told: true },
            () = limit => Outcome::Lost(LeaseEnd::HardTimeout),
        }
    }

    /// Hands the outcome on: to the callers here at once, then to the store.
    async fn conclude(&mut self, guard: OwnerGuard, end: RunEnd) -> Next {
        match end {
            RunEnd::Shared(run) => {
                let verdict = Verdict::Replay { run: run.clone(), origin: Origin::Here };
                self.flight.decide(verdict);
                self.publish(guard, &run).await;
                Next::Over
            }
            RunEnd::Private { took } => {
                self.flight.decide(Verdict::Alone);
                let keep = self.core.config.private_mark(took);
                self.tell(guard, Ending::new(EndStatus::Private, keep), Bytes::new).await;
                Next::Over
            }
            RunEnd::TooLarge => {
                self.flight.decide(Verdict::Alone);
                self.end_flight(guard, EndStatus::TooLarge, String::new()).await;
                Next::Over
            }
            RunEnd::Failed { mut report } => {
                report.truncate(whole_chars(&report, REPORT));
                // Its own caller need not wait for the store.
                self.flight.stir();
                self.end_flight(guard, EndStatus::Failed, report.clone()).await;
                self.after_failure(FailureKind::OwnerFailed, Some(&report))
            }
        }
    }

    /// A run has failed: its callers get another, or the failure.
    fn after_failure(&mut self, kind: FailureKind, report: Option<&str>) -> Next {
        self.failed_runs += 1;
        self.core.counts.failed_runs();
        if self.flight.close_if_vacant() {
            return Next::Over;
        }
        if self.failed_runs >= FAILED_RUNS || !self.flight.has_deposit() {
            self.fail(kind, report);
            return Next::Over;
        }
        Next::Elect
    }

    /// Puts the answer where other processes find it, unless none asks for it.
    async fn publish(&mut self, guard: OwnerGuard, run: &SharedRun) {
        let Some(flight) = guard.lease().map(|lease| lease.flight()) else { return };
        let wanted = self.core.config.reuse > Duration::ZERO
            || guard.lease().is_some_and(|lease| lease.waiters() > 0)
            || (self.core.store.is_remote() && run.log.data_bytes() <= SMALL);
        let key = self.flight.key();
        let encode = || record::encode(&key, flight, &run.head, &run.log.frames());
        let ending = Ending {
            record: wanted.then(encode),
            reusable: run.reusable,
            ..Ending::new(EndStatus::Done, self.core.config.retention)
        };
        self.tell(guard, ending, encode).await;
    }

    /// Tells the store that a flight ended without an answer for all.
    async fn end_flight(&mut self, guard: OwnerGuard, status: EndStatus, report: String) {
        let ending = Ending { report, ..Ending::new(status, self.core.config.retention) };
        self.tell(guard, ending, Bytes::new).await;
    }

    /// Sends `finish` until it is answered. What the store does not hear before the
    /// deadline it takes for a lost owner; the guard then lets the lease go.
    async fn tell(&mut self, guard: OwnerGuard, ending: Ending, record: impl Fn() -> Bytes) {
        let Some(lease) = guard.lease().cloned() else { return };
        let mut finish = ending.of(lease.flight());
        self.flight.at(FlightPhase::Ending, finish.flight.token);
        for _ in 0..TRIES {
            match self.session.finish(finish.clone()).await {
                Ok(Finished::Wanted) if finish.record.is_none() => finish.record = Some(record()),
                Ok(finished) => {
                    if matches!(finished, Finished::Lost(Loss::Missing | Loss::Superseded { .. })) {
                        self.core.counts.fenced();
                    }
                    return guard.finished();
                }
                Err(_) if lease.stands() => {}
                Err(_) => return,
            }
        }
    }

    /// Single flight inside this process only.
    pub(super) async fn run_without_store(&mut self) -> Next {
        loop {
            let guard = OwnerGuard::without_lease(&self.core.keeper);
            match self.own(guard).await {
                Next::Elect => {}
                Next::Over => return Next::Over,
            }
        }
    }
}

/// Answers of at most this many bytes go along with the first `finish`.
const SMALL: u64 = 3 * 1024;
/// The most bytes of an error's text that others get to see.
const REPORT: usize = 512;
/// How often `finish` is sent at most.
const TRIES: u32 = 4;
