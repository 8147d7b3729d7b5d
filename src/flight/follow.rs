//! Waiting for another process's flight, and taking over when its owner is gone.

use super::{
    Driver, FAILED_RUNS, Next,
    inflow::{Flow, Inflow},
    step::{Sighting, Step, failure_in},
    turn::Turn,
};
use crate::{
    error::{Failure, FailureKind},
    flights::{FlightPhase, Origin, Verdict},
    id::FlightRef,
    lease::WatchGuard,
    store::{EndStatus, Join, Joined, StoreError, StreamEnd},
};

const NOT_SHARED: &str = "the rest of it is not shared";
const UNREADABLE: &str = "the rest of it cannot be read from the store";

/// So many flights end without an answer for those who wait here, and without a word of it,
/// until they run alone: where no push is heard, runs that fail elsewhere pass them by.
const PASSED_BY: u32 = 8;

/// How following one flight ended.
enum Way {
    Next(Next),
    /// A newer one runs, and this process's wait is its own.
    Newer(Sighting),
}

impl From<Next> for Way {
    fn from(next: Next) -> Self {
        Self::Next(next)
    }
}

impl Driver {
    /// Follows what was seen, and whoever owns after it, until one of them ends, or its
    /// lease runs out, or nobody is left here.
    pub(super) async fn follow(
        &mut self,
        join: Join,
        mut seen: Sighting,
    ) -> Result<Next, StoreError> {
        self.followed = true;
        loop {
            match self.follow_one(&join, seen).await? {
                Way::Next(next) => return Ok(next),
                Way::Newer(newer) => {
                    self.between_owners();
                    self.passed_by += 1;
                    if self.passed_by >= PASSED_BY {
                        self.leave();
                        self.flight.decide(Verdict::Alone { together: true });
                        return Ok(Next::Over);
                    }
                    seen = newer;
                }
            }
        }
    }

    async fn follow_one(&mut self, join: &Join, seen: Sighting) -> Result<Way, StoreError> {
        let Sighting { flight, pieces, trace, .. } = seen;
        self.flight.at(FlightPhase::Following, flight.token);
        self.flight.set_trace(trace);
        let watched = Join { known: self.known, look_only: true, ..join.clone() };
        let mut watch = WatchGuard::new(&self.core.keeper, self.flight.key(), watched);
        self.see_to_keeper();
        let mut inflow = match self.inflow.take().map(|inflow| *inflow) {
            // It has not ended after all: nobody need begin anew.
            Some(before) if before.goes_on(flight) => {
                self.flight.hold_back(false);
                before
            }
            _ => self.inflow(flight, Origin::Elsewhere),
        };
        let mut turn = Turn::new(&seen, self.core.keeper.terms().beat);
        let mut first = (pieces > 0).then_some(Step::Wait(seen));
        loop {
            let step = match first.take() {
                Some(step) => step,
                None => tokio::select! {
                    biased;
                    () = self.flight.vacated() => {
                        if self.flight.close_if_vacant() {
                            watch.leave();
                            return Ok(Next::Over.into());
                        }
                        continue;
                    }
                    () = self.flight.halt().heard() => {
                        watch.leave();
                        return Ok(Next::Over.into());
                    }
                    pushed = self.session.open().pushed() => {
                        if let Some(kind) = failure_in(&pushed, flight) {
                            self.failed_there = Some(Box::new((flight, kind)));
                        }
                        match Step::from_push(pushed, flight) {
                            step if step.costs(inflow.has_begun()) => {
                                self.confirm(step, flight).await
                            }
                            step => step,
                        }
                    }
                    joined = watch.seen() => {
                        joined.map_or(Step::Elect, |joined| self.step_from_look(joined, flight))
                    }
                    step = turn.comes() => step,
                },
            };
            let has_ended = matches!(step, Step::Done(_));
            let step = match step {
                Step::Done(record) => match self.give_out_pushed(record).await {
                    Some(next) => return Ok(next.into()),
                    None => Step::Look,
                },
                step => step,
            };
            let step = match step {
                Step::Look => {
                    let look = self.join(true);
                    match self.session.open().join(look).await {
                        // Nobody owns again what has ended: who waited for it meets in
                        // one run.
                        Ok(Joined::Missing) if has_ended => Step::Elect,
                        Ok(joined) => self.step_from_look(joined, flight),
                        // Whoever has begun waits as long as the owner's lease stands:
                        // another run would not say the same.
                        Err(_) if inflow.has_begun() && !turn.is_due() => Step::Stay,
                        Err(error) => {
                            watch.leave();
                            return Err(error);
                        }
                    }
                }
                step => step,
            };
            let flow = match step {
                Step::Stay | Step::Look | Step::Done(_) => continue,
                Step::Piece { index, .. } if index < inflow.next() => continue,
                Step::Piece { index, piece: Some(piece) } if index == inflow.next() => {
                    match self.take_piece(&mut inflow, &piece).await {
                        true => Flow::Open,
                        false => self.catch_up(&mut inflow, None).await.unwrap_or(Flow::Open),
                    }
                }
                // What cannot be read now is read at the next beat.
                Step::Piece { index, .. } => {
                    let enough = Some(index.saturating_add(1));
                    self.catch_up(&mut inflow, enough).await.unwrap_or(Flow::Open)
                }
                Step::Wait(seen) => {
                    turn.put_off(&seen);
                    // Whatever a push has told.
                    self.failed_there = None;
                    if seen.pieces <= inflow.next() {
                        continue;
                    }
                    self.catch_up(&mut inflow, Some(seen.pieces)).await.unwrap_or(Flow::Open)
                }
                Step::Ended(end) => Box::pin(self.read_to_end(&mut inflow, end)).await,
                Step::ReadOn => Box::pin(self.read_on(&mut inflow)).await,
                Step::Lost => {
                    turn.wait_for_owner();
                    continue;
                }
                Step::TakeOver => {
                    turn.get_in_line();
                    continue;
                }
                Step::Streamed => Box::pin(self.read_rest(&mut inflow)).await,
                Step::Take(joined) => return Ok(Box::pin(self.take(joined)).await.into()),
                Step::Newer(newer) => return Ok(Way::Newer(newer)),
                Step::Elect => {
                    self.inflow = Some(Box::new(inflow));
                    return Ok(Next::Elect.into());
                }
            };
            match flow {
                Flow::Open => {}
                Flow::Unreadable => {
                    watch.leave();
                    return Ok(self.unreadable(&inflow).into());
                }
                Flow::Ended(end) => return Ok(self.end_of_stream(inflow, &end).into()),
            }
        }
    }

    pub(super) fn step_from_look(&mut self, joined: Joined, followed: FlightRef) -> Step {
        // A newer owner: nothing older is taken from now on.
        if let Joined::Follow { flight, .. } = &joined {
            self.know(flight.token);
        }
        Step::from_look(joined, followed)
    }

    /// Counts a run elsewhere that has failed, unless `joined` says that it goes on. Whether
    /// callers get the failure now: it was the last, and no answer has come since.
    pub(super) fn fails_too(
        &mut self,
        flight: FlightRef,
        kind: FailureKind,
        joined: &Joined,
    ) -> bool {
        let newer = match joined {
            Joined::Follow { flight: found, .. } => Some(*found),
            _ => None,
        };
        if newer == Some(flight) {
            return false;
        }
        self.failed_runs += 1;
        let is_open = newer.is_some() || matches!(joined, Joined::Lapsed | Joined::Missing);
        if self.failed_runs < FAILED_RUNS || !is_open {
            return false;
        }
        if newer.is_some() {
            self.leave();
        }
        self.fail(kind, None);
        true
    }

    /// The flight that was followed has ended, and what there is of its stream is here.
    pub(super) fn end_of_stream(&mut self, mut inflow: Inflow, end: &StreamEnd) -> Next {
        let begun = inflow.has_begun();
        match (end.status, &end.seal) {
            (EndStatus::Done, Some(seal)) => match inflow.close(seal) {
                Some(run) => {
                    let origin = inflow.origin();
                    self.found(inflow.flight(), &run);
                    self.flight.decide(Verdict::Replay { run, origin });
                    Next::Over
                }
                None => {
                    self.core.counts.bad_records();
                    self.unreadable(&inflow)
                }
            },
            // Its callers have begun with an answer that failed: there is no other.
            (EndStatus::Failed, _) if begun => {
                let failure = Failure::new(FailureKind::OwnerFailed, None);
                inflow.break_off(&failure.kind().to_string());
                self.flight.decide(Verdict::Failed(failure));
                Next::Over
            }
            (EndStatus::Private | EndStatus::TooLarge, _) => {
                inflow.break_off(NOT_SHARED);
                self.flight.decide(Verdict::Alone { together: true });
                Next::Over
            }
            _ => Next::Elect,
        }
    }

    /// What is stored of the flight is of no use here: who has begun with it gets no
    /// more, everybody else runs alone.
    pub(super) fn unreadable(&self, inflow: &Inflow) -> Next {
        inflow.break_off(UNREADABLE);
        self.flight.decide(Verdict::Alone { together: true });
        Next::Over
    }
}
