//! Waiting for another process's flight, and taking over when its owner is gone.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    Driver, Next,
    inflow::{Flow, Inflow},
};
use crate::{
    error::{Failure, FailureKind},
    flights::{FlightPhase, Origin, Verdict},
    id::FlightRef,
    lease::WatchGuard,
    store::{EndStatus, Join, Joined, Pushed, StoreError, StreamEnd},
};

const NOT_SHARED: &str = "the rest of it is not shared";
const UNREADABLE: &str = "the rest of it cannot be read from the store";

/// Between one waiting process's attempt to take over and the next one's.
const STEP: Duration = Duration::from_millis(50);
/// The most that an attempt is held back, jitter included.
const SPREAD: Duration = Duration::from_millis(500);

/// How long a process with `rank` others before it holds back: the first tries at
/// once, no two at the same moment.
pub(super) fn hold_back(rank: u32) -> Duration {
    if rank == 0 {
        return Duration::ZERO;
    }
    let jitter = STEP.mul_f64(rand::random::<f64>());
    (STEP * rank + jitter).min(SPREAD - STEP + jitter)
}

impl Driver {
    /// Follows `flight`, of whose stream some pieces are there, until it ends, its lease
    /// runs out, or nobody is left here.
    pub(super) async fn follow(
        &mut self,
        join: Join,
        flight: FlightRef,
        left: Duration,
        rank: u32,
        pieces: u64,
    ) -> Result<Next, StoreError> {
        self.followed = true;
        self.flight.at(FlightPhase::Following, flight.token);
        let watched = Join { known: self.known, look_only: true, ..join };
        let mut watch = WatchGuard::new(&self.core.keeper, self.flight.key(), watched);
        self.see_to_keeper();
        let mut inflow = match self.inflow.take() {
            // It has not ended after all: nobody need begin anew.
            Some(before) if before.goes_on(flight) => {
                self.flight.hold_back(false);
                before
            }
            _ => self.inflow(flight, Origin::Elsewhere),
        };
        let mut due = Instant::now() + left;
        let mut lost = false;
        let mut first = (pieces > 0).then_some(Step::Wait { left, pieces });
        loop {
            let step = match first.take() {
                Some(step) => step,
                None => tokio::select! {
                    biased;
                    () = self.flight.vacated() => {
                        if self.flight.close_if_vacant() {
                            watch.leave();
                            return Ok(Next::Over);
                        }
                        continue;
                    }
                    () = self.flight.halt().heard() => {
                        watch.leave();
                        return Ok(Next::Over);
                    }
                    pushed = self.session.open().pushed() => match Step::from_push(pushed, flight) {
                        step if step.costs(inflow.has_begun()) => {
                            let runs = self.still_runs(flight).await;
                            runs.map_or(step, |(left, pieces)| Step::Wait { left, pieces })
                        }
                        step => step,
                    },
                    joined = watch.seen() => {
                        joined.map_or(Step::Elect, |joined| self.step_from_look(joined, flight))
                    }
                    () = tokio::time::sleep_until(due) => Step::TakeOver,
                },
            };
            let has_ended = matches!(step, Step::Done(_));
            let step = match step {
                Step::Done(record) => match self.give_out_pushed(record).await {
                    Some(next) => return Ok(next),
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
                        Err(_) if inflow.has_begun() && Instant::now() < due => Step::Stay,
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
                Step::Wait { left, pieces } => {
                    due = Instant::now() + left;
                    if pieces <= inflow.next() {
                        continue;
                    }
                    self.catch_up(&mut inflow, Some(pieces)).await.unwrap_or(Flow::Open)
                }
                Step::Ended(end) => self.read_to_end(&mut inflow, end).await,
                Step::Lost => {
                    self.let_it_reclaim(&mut due, &mut lost);
                    continue;
                }
                Step::Streamed => self.read_rest(&mut inflow).await,
                Step::Take(joined) => return Ok(self.take(joined).await),
                Step::Elect => {
                    self.inflow = Some(inflow);
                    return Ok(Next::Elect);
                }
                Step::TakeOver => {
                    // Somebody before us in line may be done by then.
                    due = Instant::now() + hold_back(rank);
                    let early = tokio::select! {
                        biased;
                        () = self.flight.vacated() => continue,
                        pushed = self.session.open().pushed() => Step::from_push(pushed, flight),
                        () = tokio::time::sleep_until(due) => Step::Elect,
                    };
                    match early {
                        Step::Done(record) => {
                            return Ok(self.deliver(flight, record, Origin::Elsewhere).await);
                        }
                        Step::Ended(end) => self.read_to_end(&mut inflow, end).await,
                        Step::Take(joined) => return Ok(self.take(joined).await),
                        _ => {
                            self.inflow = Some(inflow);
                            return Ok(Next::Elect);
                        }
                    }
                }
            };
            match flow {
                Flow::Open => {}
                Flow::Unreadable => {
                    watch.leave();
                    return Ok(self.unreadable(&inflow));
                }
                Flow::Ended(end) => return Ok(self.end_of_stream(inflow, &end)),
            }
        }
    }

    fn step_from_look(&mut self, joined: Joined, followed: FlightRef) -> Step {
        // A newer owner: nothing older is taken from now on.
        if let Joined::Follow { flight, .. } = &joined {
            self.know(flight.token);
        }
        Step::from_look(joined, followed)
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

    /// The store has lost the flight's record: its owner hears of it at its next beat
    /// and owns again. It is given the time, once.
    fn let_it_reclaim(&self, due: &mut Instant, lost: &mut bool) {
        if !std::mem::replace(lost, true) {
            *due = (*due).max(Instant::now() + self.core.keeper.terms().beat * 3 / 2);
        }
    }
}

/// What a follower does about something it heard.
#[derive(Debug)]
enum Step {
    /// Nothing.
    Stay,
    /// Wait on: the lease stands for this long, and so many pieces are there.
    Wait { left: Duration, pieces: u64 },
    /// A piece came, or several from this one on.
    Piece { index: u64, piece: Option<Bytes> },
    /// The followed flight has ended, and had a stream.
    Ended(StreamEnd),
    /// It has ended well: its answer is in its stream.
    Streamed,
    /// Wait on, though the record is lost.
    Lost,
    /// Deliver the followed flight's answer.
    Done(Option<Bytes>),
    /// Take what a look found.
    Take(Joined),
    /// Ask what stands now, without asking to own.
    Look,
    /// Ask to own at once: the flight is over, and nobody is to be waited for.
    Elect,
    /// The lease has run out: ask to own, in line with the others.
    TakeOver,
}

impl Step {
    /// Whether it costs callers the answer that they wait for, who may have begun.
    fn costs(&self, begun: bool) -> bool {
        match self {
            Self::Ended(end) => match end.status {
                EndStatus::Private | EndStatus::TooLarge => true,
                EndStatus::Failed => begun,
                _ => false,
            },
            Self::Take(_) => true,
            _ => false,
        }
    }

    fn from_push(pushed: Pushed, followed: FlightRef) -> Self {
        match pushed {
            Pushed::Gap => Self::Look,
            Pushed::Watched { .. } => Self::Stay,
            Pushed::Piece { flight, index, piece } if flight == followed => {
                Self::Piece { index, piece }
            }
            Pushed::Piece { flight, .. } if flight.token < followed.token => Self::Stay,
            Pushed::Piece { .. } => Self::Look,
            Pushed::Ended { flight, .. } | Pushed::Released { flight }
                if flight.token < followed.token =>
            {
                Self::Stay
            }
            Pushed::Ended { flight, .. } | Pushed::Released { flight } if flight != followed => {
                Self::Look
            }
            Pushed::Released { .. } => Self::Elect,
            Pushed::Ended { flight, status: status @ EndStatus::Stopped, .. } => {
                Self::Take(Joined::Failed { flight, status, report: String::new() })
            }
            Pushed::Ended { status, seal: seal @ Some(_), .. } => {
                Self::Ended(StreamEnd { status, seal })
            }
            Pushed::Ended { status: EndStatus::Done, record, .. } => Self::Done(record),
            Pushed::Ended { status: status @ EndStatus::Failed, .. } => {
                Self::Ended(StreamEnd { status, seal: None })
            }
            Pushed::Ended {
                status: status @ (EndStatus::Private | EndStatus::TooLarge), ..
            } => Self::Ended(StreamEnd { status, seal: None }),
            Pushed::Ended { .. } => Self::Elect,
        }
    }

    fn from_look(joined: Joined, followed: FlightRef) -> Self {
        match joined {
            Joined::Follow { flight, left, pieces, .. } if flight == followed => {
                Self::Wait { left, pieces }
            }
            Joined::Done { flight, streamed: true, .. } if flight == followed => Self::Streamed,
            // A newer owner: join it, so that this wait is its own.
            Joined::Follow { .. } => Self::Elect,
            // Nobody runs: ask to own, in line with the others.
            Joined::Lapsed => Self::TakeOver,
            // The data was lost: the owner, if it lives, owns again within a beat. If
            // not, the lease runs out as if nothing had been lost.
            Joined::Missing => Self::Lost,
            joined => Self::Take(joined),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{id::FlightId, store::Seal};

    fn pushes() -> impl Strategy<Value = Pushed> {
        let flight = (0_u64..4, 0_u128..3)
            .prop_map(|(token, id)| FlightRef { token, id: FlightId::from_u128(id) });
        let status = prop::sample::select(vec![
            EndStatus::Done,
            EndStatus::Failed,
            EndStatus::TimedOut,
            EndStatus::Private,
            EndStatus::TooLarge,
            EndStatus::Abandoned,
            EndStatus::Stopped,
        ]);
        let bytes = || proptest::option::of(Just(Bytes::from_static(b"x")));
        (0..4, flight, status, bytes(), bytes(), any::<u64>()).prop_map(
            |(kind, flight, status, record, proof, index)| match kind {
                0 => {
                    let seal = proof.map(|proof| Seal { pieces: index, proof });
                    Pushed::Ended { flight, status, record, seal }
                }
                1 => Pushed::Piece { flight, index, piece: record },
                2 => Pushed::Watched { flight },
                _ => Pushed::Released { flight },
            },
        )
    }

    proptest! {
        /// What is said of another flight ends nothing and gives nothing.
        #[test]
        fn pushes_of_other_flights_are_a_word_to_look_at_most(pushed in pushes()) {
            let followed = FlightRef { token: 2, id: FlightId::from_u128(1) };
            let of = match &pushed {
                Pushed::Ended { flight, .. }
                | Pushed::Piece { flight, .. }
                | Pushed::Watched { flight }
                | Pushed::Released { flight } => *flight,
                _ => followed,
            };
            let step = Step::from_push(pushed, followed);
            if of.token < followed.token {
                prop_assert!(matches!(step, Step::Stay), "{step:?}");
            } else if of != followed {
                prop_assert!(matches!(step, Step::Stay | Step::Look), "{step:?}");
            }
        }
    }

    #[test]
    fn the_first_in_line_tries_at_once_and_all_within_half_a_second() {
        assert_eq!(hold_back(0), Duration::ZERO);
        for rank in 1..100 {
            let wait = hold_back(rank);
            assert!(wait >= STEP && wait <= SPREAD, "{rank}: {wait:?}");
        }
    }
}
