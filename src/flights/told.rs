//! What the callers of a flight are told: an answer while it comes, who may have it, and
//! what became of the flight.

use std::sync::Arc;

use super::{
    Flight,
    flight::lock,
    verdict::{Live, Origin, Verdict},
};
use crate::{
    log::{End, SharedRun},
    selection::Selection,
};

impl Flight {
    /// Tells all callers what became of the flight. The first verdict stands.
    pub(crate) fn decide(&self, verdict: Verdict) {
        self.close();
        if let Some(live) = lock(&self.live).take() {
            // For those who have begun with another run; where it is the same, it has
            // ended already.
            live.run.log.end(match &verdict {
                Verdict::Replay { run, .. } => End::Moved(run.clone()),
                Verdict::Failed(failure) => End::Broken(failure.kind().to_string().into()),
                Verdict::Alone { .. } => End::Broken("the next run's answer is not shared".into()),
            });
        }
        // A second verdict is that of the driver's own end, and says nothing new.
        let _ = self.verdict.set(verdict);
        self.stir();
    }

    /// Says which callers may have what the run of this process will give; the others
    /// need not wait for the rest of it. None: all of them, or not known yet.
    pub(crate) fn select(&self, selection: Option<&Arc<Selection>>) {
        let before = std::mem::replace(&mut *lock(&self.selection), selection.cloned());
        if selection.is_some() && before.as_ref() != selection {
            self.stir();
        }
    }

    /// Which callers may have what the run of this process will give.
    pub(crate) fn selection(&self) -> Option<Arc<Selection>> {
        lock(&self.selection).clone()
    }

    /// Hands an answer out while it comes, also to those who come from now on. Who
    /// has begun with an earlier run's goes on with this one if it is the same.
    pub(crate) fn go_live(&self, run: &SharedRun, origin: Origin) {
        let live = Live { run: run.clone(), origin, held_back: false };
        if let Some(before) = lock(&self.live).replace(live) {
            before.run.log.end(End::Moved(run.clone()));
        }
        self.stir();
    }

    /// The answer that is handed out now, for who begins with it.
    pub(crate) fn live(&self) -> Option<(SharedRun, Origin)> {
        let live = lock(&self.live);
        let live = live.as_ref().filter(|live| !live.held_back)?;
        Some((live.run.clone(), live.origin))
    }

    /// Whether callers have begun with an answer that has not ended.
    pub(crate) fn is_live(&self) -> bool {
        lock(&self.live).is_some()
    }

    /// Lets nobody begin with the live answer, or lets them again.
    pub(crate) fn hold_back(&self, held_back: bool) {
        if let Some(live) = &mut *lock(&self.live) {
            live.held_back = held_back;
        }
        if !held_back {
            self.stir();
        }
    }
}
