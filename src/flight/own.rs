//! Owning: one deposited request is run under the lease, or without one where the
//! store is away.

use std::sync::Arc;

use tracing::{Instrument, Span};

use super::{Driver, Next, publish::Publication};
use crate::{
    error::FailureKind,
    flights::{Brief, Deposit, FlightPhase, Origin, RunEnd, Stage, Verdict},
    lease::{LeaseEnd, OwnerGuard},
    store::BoxFuture,
    telemetry::{Ending, run_span},
};

/// A run, and what the driver has of it.
pub(super) struct Run {
    pub(super) guard: OwnerGuard<RunEnd>,
    pub(super) stage: Arc<Stage>,
    /// The request that is run, and its caller's place.
    pub(super) deposit: Arc<dyn Deposit>,
    at: usize,
    span: Span,
    /// There once the answer is handed out as it comes, under a lease.
    pub(super) publication: Option<Publication>,
    /// Whether callers are handed its answer as it comes.
    pub(super) live: bool,
}

/// How an attempt to own went on.
pub(super) enum Outcome {
    Ran(RunEnd),
    /// The run was dropped since the lease is over.
    Lost(LeaseEnd),
    /// It was stopped for all its callers, here or elsewhere.
    Stopped,
    /// The process is leaving.
    Drained,
    /// Nobody wants it any more, here or elsewhere; whether the store knows it.
    Unwanted {
        told: bool,
    },
}

impl Outcome {
    /// What is told of it.
    fn ending(&self) -> Ending {
        match self {
            Self::Ran(RunEnd::Shared(_)) => Ending::Done,
            Self::Ran(RunEnd::Private { .. }) => Ending::Private,
            Self::Ran(RunEnd::TooLarge) => Ending::TooLarge,
            Self::Ran(RunEnd::Failed { .. }) => Ending::Failed,
            Self::Lost(lost) if lost.is_timeout() => Ending::TimedOut,
            Self::Lost(_) => Ending::Lost,
            Self::Stopped => Ending::Stopped,
            Self::Drained => Ending::Drained,
            Self::Unwanted { .. } => Ending::Unwanted,
        }
    }
}

impl Driver {
    /// Runs one deposited request as the owner, under this token if there is one.
    pub(super) async fn own(&mut self, guard: OwnerGuard<RunEnd>, token: Option<u64>) -> Next {
        match self.begin(guard, token) {
            Some(run) => self.see_through(run).await,
            None => self.nothing_to_run(),
        }
    }

    /// Starts a deposited request; `None` where all who are left have used theirs up.
    fn begin(&mut self, guard: OwnerGuard<RunEnd>, token: Option<u64>) -> Option<Run> {
        self.between_owners();
        self.inflow = None;
        let stage = Stage::new(Arc::clone(guard.permit()));
        let brief = Brief {
            name: Arc::clone(self.flight.name()),
            token,
            max_share_bytes: self.core.config.max_share_bytes,
            delivery: self.core.config.delivery,
            reuse: !self.core.config.reuse.is_zero(),
            stage: Arc::clone(&stage),
        };
        // A caller may leave between the two steps: then the next one's is run.
        let started =
            std::iter::from_fn(|| self.flight.next_deposit()).find_map(|(at, deposit)| {
                Some((Arc::clone(&deposit).start(brief.clone())?, at, deposit))
            });
        let (future, at, deposit) = started?;
        let phase = if token.is_some() { FlightPhase::Owning } else { FlightPhase::Local };
        self.flight.at(phase, token.unwrap_or_default());
        self.flight.set_trace(self.core.telemetry.here());
        let span = run_span(|| self.flight.key(), token);
        let future = if span.is_disabled() {
            future
        } else {
            Box::pin(future.instrument(span.clone())) as BoxFuture<'static, RunEnd>
        };
        let mut run = Run { guard, stage, deposit, at, span, publication: None, live: false };
        run.guard.begin(future);
        Some(run)
    }

    /// Drives a run, and does what is to be done at its end.
    #[expect(clippy::manual_async_fn, reason = "that would hold the run twice")]
    fn see_through(&mut self, mut run: Run) -> impl Future<Output = Next> + Send {
        async move {
            let outcome = match run.guard.lease() {
                Some(_) => Box::pin(self.attend(&mut run)).await,
                None => Box::pin(self.attend_without_lease(&mut run)).await,
            };
            let ending = outcome.ending();
            self.core.counts.meter.ran(ending, || run.stage.age());
            if !run.span.is_disabled() {
                run.span.record("outcome", ending.name());
            }
            let has_lease = run.guard.lease().is_some();
            self.yields = run.guard.lease().is_some_and(|lease| lease.waiters() > 0);
            match outcome {
                // Nobody else is to be told.
                Outcome::Ran(RunEnd::Shared(run)) if !has_lease => {
                    self.flight.decide(Verdict::Replay { run, origin: Origin::Here });
                    Next::Over
                }
                Outcome::Ran(end) => Box::pin(self.conclude(run, end)).await,
                Outcome::Unwanted { told } => {
                    run.guard.stop();
                    if told {
                        run.guard.finished();
                    } else {
                        drop(run);
                    }
                    self.over_if_vacant()
                }
                Outcome::Stopped => {
                    self.core.counts.stopped();
                    drop(run);
                    self.fail(FailureKind::Stopped, None);
                    Next::Over
                }
                Outcome::Drained => {
                    self.gave_up = run.guard.lease().map(|lease| lease.flight());
                    self.core.counts.hand_overs();
                    // It only looks from now on: it is in nobody's way.
                    self.yields = false;
                    drop(run);
                    // Without a lease there is no other process that could go on.
                    if has_lease { Next::Elect } else { self.given_up() }
                }
                Outcome::Lost(lost) if lost.is_timeout() => {
                    // The keeper has let the lease go.
                    run.guard.stop();
                    run.guard.finished();
                    self.after_failure(FailureKind::OwnerTimedOut, None)
                }
                Outcome::Lost(_) => {
                    self.core.counts.leases_lost();
                    drop(run.guard);
                    self.flight.give_back(run.at, run.deposit);
                    self.over_if_vacant()
                }
            }
        }
    }

    /// What ran here was given up, and nobody else has it.
    pub(super) fn given_up(&self) -> Next {
        self.fail(FailureKind::Draining, None);
        Next::Over
    }

    fn over_if_vacant(&mut self) -> Next {
        if self.flight.close_if_vacant() {
            self.unmark();
            return Next::Over;
        }
        Next::Elect
    }

    /// All who are left have used their requests up.
    fn nothing_to_run(&self) -> Next {
        if self.flight.close_if_vacant() {
            return Next::Over;
        }
        if !self.flight.close_if_spent() {
            return Next::Elect;
        }
        self.fail(FailureKind::OwnerVanished, None);
        Next::Over
    }

    /// Single flight inside this process only.
    pub(super) async fn run_without_store(&mut self) -> Next {
        loop {
            let guard = OwnerGuard::without_lease(&self.core.keeper);
            match self.own(guard, None).await {
                Next::Elect => {}
                Next::Over => return Next::Over,
            }
        }
    }
}
