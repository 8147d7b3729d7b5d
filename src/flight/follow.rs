//! Waiting for another process's flight, and taking over when its owner is gone.

use std::time::Duration;

use tokio::time::Instant;

use super::{Driver, Next};
use crate::{
    flights::{FlightPhase, Origin, Verdict},
    id::FlightRef,
    lease::WatchGuard,
    store::{EndStatus, Join, Joined, Pushed, StoreError},
};

/// Between one waiting process's attempt to take over and the next one's.
const STEP: Duration = Duration::from_millis(50);
/// The most that an attempt is held back, jitter included.
const SPREAD: Duration = Duration::from_millis(500);

/// How long a process with `rank` others before it holds back: the first tries at
/// once, no two at the same moment.
fn hold_back(rank: u32) -> Duration {
    if rank == 0 {
        return Duration::ZERO;
    }
    let jitter = STEP.mul_f64(rand::random::<f64>());
    (STEP * rank + jitter).min(SPREAD - STEP + jitter)
}

impl Driver {
    /// Follows `flight` until it ends, its lease runs out, or nobody is left here.
    pub(super) async fn follow(
        &mut self,
        join: Join,
        flight: FlightRef,
        left: Duration,
        rank: u32,
    ) -> Result<Next, StoreError> {
        self.followed = true;
        self.flight.at(FlightPhase::Following, flight.token);
        let watched = Join { known: self.known, look_only: true, ..join };
        let mut watch = WatchGuard::new(&self.core.keeper, self.flight.key(), watched);
        self.see_to_keeper();
        let mut due = Instant::now() + left;
        let mut lost = false;
        loop {
            let step = tokio::select! {
                biased;
                () = self.flight.vacated() => {
                    if self.flight.close_if_vacant() {
                        watch.leave();
                        return Ok(Next::Over);
                    }
                    continue;
                }
                pushed = self.session.pushed() => Step::from_push(pushed, flight),
                joined = watch.seen() => {
                    joined.map_or(Step::Elect, |joined| Step::from_look(joined, flight))
                }
                () = tokio::time::sleep_until(due) => Step::TakeOver,
            };
            let step = match step {
                Step::Look => Step::from_look(self.session.join(self.join(true)).await?, flight),
                step => step,
            };
            match step {
                Step::Stay | Step::Look => {}
                Step::Wait(left) => due = Instant::now() + left,
                Step::Lost => self.let_it_reclaim(&mut due, &mut lost),
                Step::Alone => {
                    self.flight.decide(Verdict::Alone);
                    return Ok(Next::Over);
                }
                Step::Done(record) => {
                    return Ok(self.deliver(flight, record, Origin::Elsewhere).await);
                }
                Step::Take(joined) => return Ok(self.take(joined).await),
                Step::Elect => return Ok(Next::Elect),
                Step::TakeOver => {
                    // Somebody before us in line may be done by then.
                    due = Instant::now() + hold_back(rank);
                    let early = tokio::select! {
                        biased;
                        () = self.flight.vacated() => continue,
                        pushed = self.session.pushed() => Step::from_push(pushed, flight),
                        () = tokio::time::sleep_until(due) => Step::Elect,
                    };
                    match early {
                        Step::Done(record) => {
                            return Ok(self.deliver(flight, record, Origin::Elsewhere).await);
                        }
                        _ => return Ok(Next::Elect),
                    }
                }
            }
        }
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
    /// Wait on: the lease stands for this long.
    Wait(Duration),
    /// Wait on, though the record is lost.
    Lost,
    /// Deliver the followed flight's answer.
    Done(Option<bytes::Bytes>),
    /// Every caller runs alone.
    Alone,
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
    fn from_push(pushed: Pushed, followed: FlightRef) -> Self {
        match pushed {
            Pushed::Gap => Self::Look,
            Pushed::Ended { flight, .. } | Pushed::Released { flight }
                if flight.token < followed.token =>
            {
                Self::Stay
            }
            Pushed::Ended { flight, .. } | Pushed::Released { flight } if flight != followed => {
                Self::Look
            }
            Pushed::Released { .. } => Self::Elect,
            Pushed::Ended { status: EndStatus::Done, record, .. } => Self::Done(record),
            Pushed::Ended { status: EndStatus::Private | EndStatus::TooLarge, .. } => Self::Alone,
            Pushed::Ended { .. } => Self::Elect,
        }
    }

    fn from_look(joined: Joined, followed: FlightRef) -> Self {
        match joined {
            Joined::Follow { flight, left, .. } if flight == followed => Self::Wait(left),
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
    use super::*;

    #[test]
    fn the_first_in_line_tries_at_once_and_all_within_half_a_second() {
        assert_eq!(hold_back(0), Duration::ZERO);
        for rank in 1..100 {
            let wait = hold_back(rank);
            assert!(wait >= STEP && wait <= SPREAD, "{rank}: {wait:?}");
        }
    }
}
