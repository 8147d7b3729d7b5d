//! Watching over a run: its end, its lease, and whether anybody wants it.

use std::sync::Arc;

use tokio::{task::unconstrained, time::Instant};

use super::{
    Driver,
    conclude::{Answer, Ending, Told},
    hearing::Hearing,
    own::{Outcome, Run},
    publish::Publication,
};
use crate::{
    config::Abandon,
    flights::{Flight, FlightPhase, Origin, RunEnd, Stage},
    id::FlightRef,
    lease::{Lease, LeaseEnd},
    log::SharedRun,
    record::Encoder,
    store::{Abandoned, EndStatus, Joined, Loss},
};

/// Waits until a run without a lease is to be dropped.
async fn unwanted(flight: &Flight, abandon: Abandon) {
    flight.vacated().await;
    if abandon == Abandon::Finish {
        std::future::pending::<()>().await;
    }
}

impl Driver {
    /// Watches over the run until it is over.
    pub(super) async fn attend(&mut self, run: &mut Run) -> Outcome {
        let mut hearing = Hearing::new(self.core.store.is_remote());
        loop {
            let Some(lease) = run.guard.lease().cloned() else {
                return Box::pin(self.attend_without_lease(run)).await;
            };
            self.see_to_keeper();
            if let Some(mut lost) = lease.end() {
                if lost == LeaseEnd::Missing {
                    match Box::pin(self.reclaim(run)).await {
                        Ok(()) => continue,
                        Err(instead) => lost = instead,
                    }
                }
                if lost == LeaseEnd::Stopped {
                    return Outcome::Stopped;
                }
                if !Box::pin(self.goes_on_alone(lost, run)).await {
                    return Outcome::Lost(lost);
                }
                if lost == LeaseEnd::Forgotten {
                    // Who comes from now on begins anew.
                    self.flight.settle();
                } else {
                    self.core.counts.leases_lost();
                }
                run.publication = None;
                run.guard.detach();
                self.flight.at(FlightPhase::Local, 0);
                continue;
            }
            // Made before the look at the lease, which may be saved in its last moment.
            let news = lease.news();
            if lease.stands() {
                self.hand_out(run, &lease);
            }
            let vacant = self.flight.is_vacant();
            lease.set_attentive(vacant);
            if vacant && lease.waiters() == 0 && self.core.config.abandon == Abandon::Abort {
                // Inner is not polled while this is unanswered, nor does anybody begin
                // with what it gave.
                self.flight.hold_back(true);
                match self.session.open().abandon(lease.flight()).await {
                    Ok(Abandoned::Wanted { waiters }) => lease.set_waiters(waiters.max(1)),
                    Ok(Abandoned::Over) => return Outcome::Unwanted { told: true },
                    Ok(Abandoned::Lost(Loss::Stopped)) => return Outcome::Stopped,
                    Ok(Abandoned::Lost(_)) => return Outcome::Lost(LeaseEnd::Superseded),
                    Err(_) => return Outcome::Unwanted { told: false },
                }
                self.flight.hold_back(false);
                continue;
            }
            let Run { guard, stage, publication, live, .. } = &mut *run;
            let session = &mut self.session;
            tokio::select! {
                biased;
                () = self.flight.halt().heard() => return Outcome::Stopped,
                () = self.flight.vacated(), if !vacant => {}
                () = lease.changed() => {}
                () = news, if !*live && stage.opened().is_some() => {}
                () = self.core.drain.drained() => return Outcome::Drained,
                () = stage.stirred() => {
                    if stage.has_begun() {
                        guard.begun();
                    }
                    self.let_others_go(stage);
                }
                () = Publication::outgrown(publication.as_mut()) => {
                    match Box::pin(self.stop_sharing(run)).await {
                        Ok(()) => {}
                        Err(LeaseEnd::Stopped) => return Outcome::Stopped,
                        Err(lost) => return Outcome::Lost(lost),
                    }
                }
                end = guard.run() => return self.ended(run, &lease, end).await,
                () = hearing.hear(session, &lease) => {}
            }
        }
    }

    /// Hands the answer out as it comes, once there is something to be handed out.
    fn hand_out(&self, run: &mut Run, lease: &Arc<Lease>) {
        let Some(opened) = run.stage.opened() else { return };
        if run.publication.is_none() {
            run.publication = Some(self.publication(lease, opened));
        }
        self.go_live(run);
    }

    /// Lets those callers of this process go that may not have what the run gives.
    fn let_others_go(&self, stage: &Stage) {
        if let Some(selection) = stage.selection() {
            self.flight.select(Some(selection));
        }
    }

    /// Lets the callers of this process begin with the answer, once.
    fn go_live(&self, run: &mut Run) {
        if let Some(opened) = run.stage.opened()
            && !std::mem::replace(&mut run.live, true)
        {
            self.flight.go_live(opened, Origin::Here);
        }
    }

    pub(super) fn publication(&self, lease: &Arc<Lease>, run: &SharedRun) -> Publication {
        let key = self.flight.key();
        let session = self.core.store.session(key);
        let encoder = Encoder::new(&self.core.sealer, &key, lease.flight());
        Publication::new(encoder, session, Arc::clone(lease), run, &self.core)
    }

    /// More came than can be shared with those who are yet to come: the store knows the
    /// run no longer, and it goes on for the callers it has here. Unless somebody else
    /// owns by now.
    async fn stop_sharing(&mut self, run: &mut Run) -> Result<(), LeaseEnd> {
        self.core.counts.large_runs();
        run.publication = None;
        if let Some(lease) = run.guard.lease().cloned() {
            let ending = Ending::new(EndStatus::TooLarge, self.core.config.retention);
            let told = self.tell(&lease, ending, Answer::None).await;
            match told {
                Told::Lost(Loss::Superseded { .. }) => return Err(LeaseEnd::Superseded),
                Told::Lost(Loss::Stopped) => return Err(LeaseEnd::Stopped),
                _ => {}
            }
            run.guard.release_to_callers(told != Told::Unheard);
        }
        self.flight.settle();
        Ok(())
    }

    /// The run has come to its end: in time, or too late for all but its own caller.
    async fn ended(&mut self, run: &mut Run, lease: &Arc<Lease>, end: RunEnd) -> Outcome {
        // It may have opened and ended in one go.
        if lease.stands() {
            self.hand_out(run, lease);
        }
        if lease.conclude() || run.live {
            return Outcome::Ran(end);
        }
        // What the run had for its own caller alone is there all the same.
        self.flight.stir();
        let lost = lease.end().unwrap_or(LeaseEnd::Silence);
        if lost == LeaseEnd::Stopped {
            return Outcome::Stopped;
        }
        if Box::pin(self.goes_on_alone(lost, run)).await {
            run.publication = None;
            run.guard.detach();
            Outcome::Ran(end)
        } else {
            Outcome::Lost(lost)
        }
    }

    /// Owns again, with the same run, where the store has lost the record; or says
    /// what became of the lease.
    pub(super) async fn reclaim(&mut self, run: &mut Run) -> Result<(), LeaseEnd> {
        let join = self.join(false);
        let asked = Instant::now();
        let waiters = run.guard.lease().map_or(0, |lease| lease.waiters());
        match self.session.open().join(join.clone()).await {
            Ok(Joined::Own { token }) => {
                self.know(token);
                let flight = FlightRef { token, id: join.flight };
                run.publication = None;
                run.guard.renew(&self.core.keeper, self.flight.key(), flight, asked);
                self.flight.at(FlightPhase::Owning, token);
                // Their marks are lost too; they set them anew within a beat.
                if let Some(lease) = run.guard.lease() {
                    lease.set_waiters(waiters);
                }
                if run.guard.stands() { Ok(()) } else { Err(LeaseEnd::Missing) }
            }
            // Somebody else was faster.
            Ok(joined) => {
                if let Joined::Follow { flight, .. } = joined {
                    self.marked = true;
                    self.know(flight.token);
                }
                Err(LeaseEnd::Superseded)
            }
            Err(_) => {
                self.take_back(join.flight);
                Err(LeaseEnd::Missing)
            }
        }
    }

    pub(super) async fn attend_without_lease(&mut self, run: &mut Run) -> Outcome {
        let idle = self.core.config.idle_timeout;
        loop {
            self.go_live(run);
            let limit = run.guard.limit(idle);
            // Without limits it is there for its callers only.
            let abandon = limit.map_or(Abandon::Abort, |_| self.core.config.abandon);
            let owns = self.flight.owns();
            let Run { guard, stage, .. } = &mut *run;
            tokio::select! {
                biased;
                // First, since most runs come to an end before anything else is looked at.
                end = self.flight.halt().unless_set(guard.run()) => return Outcome::Ran(end),
                () = self.flight.halt().heard() => return Outcome::Stopped,
                () = self.core.drain.drained(), if owns => {
                    // Unless it was forgotten meanwhile: then it is its callers' own.
                    if self.flight.owns() {
                        return Outcome::Drained;
                    }
                }
                () = unwanted(&self.flight, abandon) => {
                    return Outcome::Unwanted { told: true };
                }
                () = stage.stirred() => self.let_others_go(stage),
                () = outgrown(stage), if limit.is_some() => {
                    guard.release_to_callers(true);
                    self.flight.settle();
                }
                // Also where the run has used up what this task may do in one go.
                () = unconstrained(until(limit)) => {
                    // It may have moved on meanwhile.
                    if guard.limit(idle).is_some_and(|limit| limit <= Instant::now()) {
                        return Outcome::Lost(LeaseEnd::HardTimeout);
                    }
                }
            }
        }
    }
}

/// Waits until more came of a run than is held.
async fn outgrown(stage: &Stage) {
    match stage.opened() {
        Some(opened) => opened.log.overflowed().await,
        None => std::future::pending().await,
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
