//! Whether a run goes on without a lease.

use tokio::time::Instant;

use super::{Driver, own::Run};
use crate::{config::LeaseLoss, lease::LeaseEnd, store::Joined};

impl Driver {
    /// Whether a run goes on without a lease. Where the store can be asked and somebody
    /// else owns by now, its callers follow: the process was paused, not cut off.
    pub(super) async fn goes_on_alone(&mut self, lost: LeaseEnd, run: &mut Run) -> bool {
        let may = self.may_go_on_alone(lost, run);
        if !may || lost == LeaseEnd::Forgotten {
            return may;
        }
        if self.is_superseded().await {
            return false;
        }
        self.unmark();
        self.session.open().deafen();
        if run.stage.has_begun() {
            // It was held up here, and not idle.
            run.guard.permit().beat();
        }
        true
    }

    /// Whether somebody else owns by now. What the store grants to one who has given up
    /// waiting by then is no owner: it is not renewed, and is let go or runs out. So a
    /// newer flight is looked at once a beat until it is renewed, or is gone.
    ///
    /// The run is not polled meanwhile: there may be another.
    async fn is_superseded(&mut self) -> bool {
        let terms = self.core.keeper.terms();
        let (known, mut doubted) = (self.known, None);
        loop {
            let (look, asked) = (self.join(true), Instant::now());
            match self.session.open().join(look).await {
                Ok(Joined::Follow { flight, left, .. }) => {
                    self.marked = true;
                    self.know(flight.token);
                    if flight.token <= known {
                        return false;
                    }
                    let (first, until) = *doubted.get_or_insert((flight, Instant::now() + left));
                    // More than what looks may differ by.
                    if flight != first || asked + left > until + terms.margin {
                        return true;
                    }
                }
                Ok(Joined::Done { flight, .. }) => {
                    self.know(flight.token);
                    return true;
                }
                Ok(_) => return false,
                Err(_) => {
                    // It may have come there all the same.
                    self.marked = true;
                    return false;
                }
            }
            tokio::select! {
                biased;
                // Nobody wants it any more.
                () = self.flight.vacated() => return true,
                () = self.flight.halt().heard() => return false,
                () = tokio::time::sleep(terms.beat) => {}
            }
        }
    }

    /// A run that was forgotten goes on for its own callers, and so does one that is
    /// cut off from the store where they can neither follow nor ask again: its request
    /// cannot be repeated, or they have begun with its answer.
    fn may_go_on_alone(&self, lost: LeaseEnd, run: &Run) -> bool {
        let may = match lost {
            LeaseEnd::Superseded
            | LeaseEnd::Stopped
            | LeaseEnd::HardTimeout
            | LeaseEnd::IdleTimeout => false,
            LeaseEnd::Forgotten => true,
            LeaseEnd::Silence | LeaseEnd::Missing => {
                self.core.config.lease_loss == LeaseLoss::FinishLocally
                    || run.live
                    || !(run.deposit.is_repeatable() || self.flight.has_deposit())
            }
        };
        may && !self.flight.is_vacant()
    }
}
