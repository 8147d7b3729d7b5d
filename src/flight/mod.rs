//! The driver of a flight: one task per key and process, which owns, follows,
//! takes over, or lets every caller run alone.

use std::sync::Arc;

use tokio::{runtime::Handle, time::Instant};
use tracing::{Instrument, Span};

use self::{inflow::Inflow, line::Line, settling::Settling, step::Sighting};
use crate::{
    config::StoreDown,
    core::Core,
    drain::Standing,
    error::{Failure, FailureKind},
    flights::{Flight, Verdict},
    id::{FlightId, FlightRef, WaiterId},
    lease::{OwnerGuard, Probe},
    log::SharedRun,
    store::{Join, Joined, StoreError, StoreErrorKind},
};

mod alone;
mod attend;
mod conclude;
mod deliver;
mod follow;
mod hearing;
mod hold;
mod inflow;
mod line;
mod own;
mod pauses;
mod pending;
mod publish;
mod publisher;
mod settling;
mod step;
mod turn;

/// Starts a flight's driver, which runs until the outcome is delivered and the
/// store knows it. The run is part of the span of the caller that starts it.
pub(crate) fn launch(core: &Arc<Core>, flight: &Arc<Flight>) {
    let driver = Driver::new(Arc::clone(core), Arc::clone(flight));
    // Where there is no runtime the driver is dropped here, and the flight is left
    // for another caller.
    if let Ok(runtime) = Handle::try_current() {
        // Boxed: a task is copied about when it is made and when it ends, and its block is
        // aligned so that the allocator has none at hand.
        runtime.spawn(Box::pin(driver.run()).instrument(Span::current()));
    }
}

/// What a driver knows between two elections.
struct Driver {
    core: Arc<Core>,
    flight: Settling,
    session: Line,
    waiter: WaiterId,
    /// Whether the store has a mark of its wait that no follower keeps: from a look.
    marked: bool,
    /// The greatest token seen for the key.
    known: u64,
    /// Runs that ended in an error or a timeout, here or where this driver followed.
    failed_runs: u32,
    /// The flight that it followed has failed, as a push tells.
    failed_there: Option<Box<(FlightRef, FailureKind)>>,
    /// Flights that it followed, until a look found a newer one in their place.
    passed_by: u32,
    /// Leases that were granted too late to be used.
    late_grants: u32,
    /// Whether this driver has followed: owning is a takeover then.
    followed: bool,
    /// What came of the flight that it followed last, should that go on.
    inflow: Option<Box<Inflow>>,
    /// The flight that was given up since the process is leaving.
    gave_up: Option<FlightRef>,
    /// Whether others wait for the run that it had.
    yields: bool,
    /// How often the key was forgotten here when the store was asked last.
    forgets: u32,
    /// What came of it, where this process may hold that.
    found: Option<Box<(FlightRef, SharedRun)>>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.core.counts.meter.in_air(false);
    }
}

/// What comes after a step of the driver.
enum Next {
    /// Ask the store who runs.
    Elect,
    /// The flight has its outcome, or nobody is left.
    Over,
}

/// Grants that may come too late before the store counts as away.
const LATE_GRANTS: u32 = 3;

/// Runs of a flight that may fail before its callers do.
const FAILED_RUNS: u32 = 2;

impl Driver {
    fn new(core: Arc<Core>, flight: Arc<Flight>) -> Self {
        let session = Line::new(&core, flight.name());
        core.counts.meter.in_air(true);
        Self {
            core,
            flight: Settling(flight),
            session,
            waiter: WaiterId::random(),
            marked: false,
            known: 0,
            failed_runs: 0,
            failed_there: None,
            passed_by: 0,
            late_grants: 0,
            followed: false,
            inflow: None,
            gave_up: None,
            yields: false,
            forgets: 0,
            found: None,
        }
    }

    /// Small, since every flight pays for it: what few flights come to is boxed.
    #[expect(clippy::manual_async_fn, reason = "that would hold the driver twice")]
    fn run(mut self) -> impl Future<Output = ()> + Send + 'static {
        async move {
            if self.flight.has_predecessor() {
                Box::pin(self.flight.predecessor_settled(self.core.config.lease)).await;
            }
            while let Some(token) = self.grant() {
                let guard = OwnerGuard::without_lease(&self.core.keeper);
                if matches!(self.own(guard, Some(token)).await, Next::Over) {
                    return;
                }
            }
            Box::pin(async {
                self.run_by_store().await;
                self.hold().await;
            })
            .await;
        }
    }

    /// Leave to run at once, where there is no other process and nothing that the store
    /// could say.
    fn grant(&self) -> Option<u64> {
        let store = self.core.embedded.as_ref()?;
        if self.flight.is_settled() || self.flight.halt().is_set() {
            return None;
        }
        // Said before the look, so that a drain sees the one or the other.
        self.flight.set_asking(true);
        let open = self.core.drain.standing() == Standing::Open;
        let token = open.then(|| store.grant(self.flight.name())).flatten();
        if token.is_none() {
            self.flight.set_asking(false);
        }
        token
    }

    async fn run_by_store(&mut self) {
        if !self.see_to_keeper() {
            self.run_without_store().await;
            return;
        }
        loop {
            if self.flight.halt().is_set() {
                return;
            }
            if self.flight.is_settled() {
                // Forgotten: the key is another flight's, and those who are left here
                // run alone.
                self.flight.decide(Verdict::Alone { together: true });
                self.unmark();
                return;
            }
            let next = match self.elect().await {
                Ok(next) => next,
                Err(error) => {
                    tracing::debug!(key = ?self.flight.key(), %error, "the store is away");
                    match self.core.config.store_down {
                        StoreDown::Open => self.run_without_store().await,
                        StoreDown::Reject => {
                            self.fail(FailureKind::StoreDown, None);
                            Next::Over
                        }
                    }
                }
            };
            if matches!(next, Next::Over) {
                return;
            }
        }
    }

    /// Sees to it that the keeper runs, also where the runtime that it ran on has gone.
    fn see_to_keeper(&self) -> bool {
        let running = self.core.keeper.ensure_running();
        if let Err(error) = &running {
            tracing::error!(%error, "no keeper can be started");
        }
        running.is_ok()
    }

    /// One round: asks the store, and does what it says.
    async fn elect(&mut self) -> Result<Next, StoreError> {
        self.between_owners();
        if std::mem::take(&mut self.yields) {
            // What failed here may go well elsewhere: the others come first.
            tokio::time::sleep(turn::hold_back(1)).await;
        }
        // Said before the look, so that a drain sees the one or the other.
        self.flight.set_asking(true);
        let failed_there = self.failed_there.take().map(|failed| *failed);
        // No run more: but an answer may have come since.
        let is_last = failed_there.is_some() && self.failed_runs + 1 >= FAILED_RUNS;
        let look_only = is_last || self.core.drain.standing() != Standing::Open;
        if look_only {
            self.flight.set_asking(false);
        }
        let join = self.join(look_only);
        let asked = Instant::now();
        self.forgets = self.flight.forgets();
        let joined = self.session.open().join(join.clone()).await;
        self.core.counts.meter.store(|| self.core.store.state());
        let joined = match joined {
            Ok(joined) => joined,
            Err(error) => {
                // It may have been granted all the same, or have left a mark.
                match error.kind() {
                    StoreErrorKind::Open => {}
                    _ if look_only => self.marked = true,
                    _ => self.take_back(join.flight),
                }
                self.unmark();
                self.flight.set_asking(false);
                return Err(error);
            }
        };
        // Gone with a grant, and else kept or taken away by who follows.
        self.marked = false;
        if let Some((flight, kind)) = failed_there
            && self.fails_too(flight, kind, &joined)
        {
            return Ok(Next::Over);
        }
        if let Joined::Own { token } = joined {
            let flight = FlightRef { token, id: join.flight };
            self.know(token);
            let guard = OwnerGuard::new(&self.core.keeper, self.flight.key(), flight, asked);
            if !guard.stands() {
                // The answer was so late that the lease may be over: not begun.
                drop(guard);
                self.late_grants += 1;
                if self.late_grants < LATE_GRANTS {
                    return Ok(Next::Elect);
                }
                let why = "the store answers later than a lease stands";
                return Err(StoreError::new(StoreErrorKind::TimedOut, why));
            }
            if self.followed {
                self.core.counts.takeovers();
            }
            return Ok(self.own(guard, Some(token)).await);
        }
        self.flight.set_asking(false);
        if let Joined::Follow { flight, left, rank, pieces, trace } = joined {
            if self.gave_up == Some(flight) {
                // The look came before the word that lets it go: nobody runs it.
                self.marked = true;
                // Not for ever: it may be said in vain.
                let heard = self.core.keeper.quiet();
                let _ = tokio::time::timeout(pauses::FIRST, heard).await;
                tokio::time::sleep(pauses::FIRST / 16).await;
                return Ok(Next::Elect);
            }
            self.know(flight.token);
            let seen = Sighting { flight, left, rank, pieces, trace };
            // Apart, and so is what comes seldom: owners that wait hold no room for it.
            return Box::pin(self.follow(join, seen)).await;
        }
        if let Joined::Probe { .. } = joined {
            // One of them finds out, and all run at once.
            let probe = Probe::new(&self.core.keeper, self.flight.key(), join.flight);
            self.flight.leave_probe(Box::new(probe));
            self.flight.decide(Verdict::Alone { together: false });
            return Ok(Next::Over);
        }
        Ok(Box::pin(self.take(joined)).await)
    }

    fn join(&self, look_only: bool) -> Join {
        let config = &self.core.config;
        Join {
            flight: FlightId::random(),
            waiter: self.waiter,
            known: self.known,
            lease: config.lease,
            reuse: config.reuse,
            retention: config.retention,
            look_only,
        }
    }

    /// Undoes a `join` whose answer never came. What ends its wait may come late, and
    /// must not end the next one: that has another name.
    fn take_back(&mut self, flight: FlightId) {
        self.core.keeper.forget(self.flight.key(), flight, self.waiter);
        self.waiter = WaiterId::random();
        self.marked = false;
    }

    /// Takes the mark of a look away, where there is one and nobody waits.
    fn unmark(&mut self) {
        if std::mem::take(&mut self.marked) {
            self.core.keeper.leave(self.flight.key(), self.waiter);
            self.waiter = WaiterId::random();
        }
    }

    /// Ends a wait that no follower keeps: a look has left its mark, or may have.
    fn leave(&mut self) {
        self.marked = true;
        self.unmark();
    }

    /// What was handed out so far has lost its writer, and who may have it says nothing of
    /// the next one's.
    fn between_owners(&self) {
        self.flight.hold_back(true);
        self.flight.select(None);
    }

    fn know(&mut self, token: u64) {
        self.known = self.known.max(token);
    }

    /// Nobody runs, and this process takes no more leases.
    async fn leaving(&mut self) -> Next {
        if self.gave_up.is_some() {
            return self.given_up();
        }
        match self.core.drain.standing() {
            Standing::Open => Next::Elect,
            Standing::Draining | Standing::Drained => self.run_without_store().await,
        }
    }

    fn fail(&self, kind: FailureKind, report: Option<&str>) {
        self.flight.decide(Verdict::Failed(Failure::new(kind, report)));
    }
}
