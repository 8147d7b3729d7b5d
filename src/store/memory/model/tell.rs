//! What an owner tells the store: mirrors `publish`, `tell` and `send` of
//! `flight/conclude.rs`, the
//! sending in `flight/publisher.rs`, and renewals in `lease/keeper.rs`.

use super::{
    node::{Doubt, Ending, Feed, Own, Step},
    rules::Rules,
    wire::{Ask, Id, Lane, Lost, Purpose, Said, With},
    world::World,
};
use crate::store::EndStatus;

/// How often `finish` is sent at most, where it is heard.
const TRIES: u8 = 4;

impl World {
    /// Whether the owner has something to do at once.
    pub(super) fn is_owner_due(&self, n: usize, own: &Own) -> bool {
        let beat = own.beat == Some(0) && !self.is_busy(n, Lane::Beat);
        let free = !self.is_busy(n, Lane::Driver);
        match own.step {
            Step::Running => {
                let unwanted = self.nodes[n].callers == 0 && own.waiters == 0 && free;
                beat || unwanted && own.lost.is_none() || self.is_feed_due(own)
            }
            Step::Finishing(_) => beat || free && !own.feed.busy && !own.feed.rests,
            Step::Wondering(Some(doubt)) => {
                beat || free && (!doubt.rests || self.nodes[n].callers == 0)
            }
            _ => beat,
        }
    }

    pub(super) fn is_feed_due(&self, own: &Own) -> bool {
        let made = own.run.map_or(0, |run| run.pieces);
        let Feed { stored, busy, over, rests, .. } = own.feed;
        own.waiters > 0 && own.lost.is_none() && stored < made && !busy && !over && !rests
    }

    /// What an owner does at once.
    pub(super) fn settle_owner(&mut self, n: usize, rules: &Rules) {
        let Some(own) = self.nodes[n].own().copied() else { return };
        if own.beat == Some(0) && !self.is_busy(n, Lane::Beat) {
            if let Some(own) = self.own_mut(n) {
                own.beat = None;
            }
            self.send(n, Lane::Beat, Ask::Renew(own.flight));
        }
        let free = !self.is_busy(n, Lane::Driver);
        match own.step {
            Step::Running => {
                if self.nodes[n].callers == 0 && own.waiters == 0 && free && own.lost.is_none() {
                    self.set_step(n, Step::Abandoning);
                    self.send(n, Lane::Driver, Ask::Abandon(own.flight));
                } else if self.is_feed_due(&own) {
                    self.append(n, own.run.map_or(0, |run| run.pieces));
                }
            }
            Step::Finishing(Ending { unheard, .. })
                if free && !own.feed.busy && !own.feed.rests =>
            {
                if unheard && own.deadline == 0 {
                    return self.concluded(n, false, rules);
                }
                self.finish(n, rules);
            }
            // Nobody wants it any more.
            Step::Wondering(Some(_)) if free && self.nodes[n].callers == 0 => {
                self.give_up(n, rules);
            }
            Step::Wondering(Some(Doubt { rests: false, .. })) if free => {
                self.ask_join(n, Id::NONE, Purpose::Look);
            }
            _ => {}
        }
    }

    pub(super) fn append(&mut self, n: usize, to: u8) {
        let Some(own) = self.own_mut(n) else { return };
        own.feed.busy = true;
        own.feed.begun = true;
        let ask = Ask::Append { flight: own.flight, first: own.feed.stored, to };
        self.send(n, Lane::Feed, ask);
    }

    /// The next step of telling the store how the flight ended.
    pub(super) fn finish(&mut self, n: usize, rules: &Rules) {
        let Some(own) = self.own_mut(n) else { return };
        let Step::Finishing(ending) = &mut own.step else { return };
        let Ending { status, wanted, with, tries, unheard, .. } = ending;
        if *wanted && *with == With::Nothing {
            if own.feed.begun && !own.feed.over {
                if own.feed.stored < own.made {
                    if own.deadline == 0 {
                        return self.concluded(n, false, rules);
                    }
                    let made = own.made;
                    return self.append(n, made);
                }
                *with = With::Seal(own.made);
            } else if own.feed.begun {
                // What others have of it ends here.
                if *status == EndStatus::Done {
                    *status = EndStatus::TooLarge;
                }
            } else if *status == EndStatus::Done {
                *with = With::Record;
            }
        }
        if !std::mem::take(unheard) {
            *tries += 1;
        }
        if *tries > TRIES {
            return self.concluded(n, false, rules);
        }
        let ask = Ask::Finish { flight: own.flight, status: *status, with: *with };
        self.send(n, Lane::Driver, ask);
    }

    /// An answer to `finish`.
    pub(super) fn told(&mut self, n: usize, said: Option<Said>, rules: &Rules) {
        let cut = self.nodes[n].cut > 0;
        let Some(own) = self.own_mut(n) else { return };
        let stands = own.deadline > 0;
        let Step::Finishing(ending) = &mut own.step else { return };
        match said {
            Some(Said::Wanted) => ending.wanted = true,
            Some(Said::Gap(next)) => {
                ending.with = With::Nothing;
                own.feed.stored = next;
            }
            // Tried again, and a little later where it comes to nothing anyway.
            None if stands => {
                (ending.unheard, ending.doubted) = (true, true);
                own.feed.rests |= cut;
            }
            None => return self.concluded(n, false, rules),
            Some(Said::Lost(Lost::Missing))
                if ending.offer && !ending.doubted && stands && own.lost.is_none() =>
            {
                return self.own_again(n, rules);
            }
            Some(_) => return self.concluded(n, true, rules),
        }
        self.settle(n, rules);
    }

    /// The store has lost the record, and had not heard of the end: nobody can have owned
    /// since, or that will be said.
    fn own_again(&mut self, n: usize, rules: &Rules) {
        let id: Id = self.fresh(n, rules);
        self.set_step(n, Step::Again { id });
        self.ask_join(n, id, Purpose::Own);
    }

    /// The store was told, or could not be.
    pub(super) fn concluded(&mut self, n: usize, told: bool, rules: &Rules) {
        self.forget_calls(n, |lane| lane != Lane::Errand);
        let Some(own) = self.nodes[n].own().copied() else { return };
        if !told {
            self.release(n, own.flight);
        }
        let decided = self.nodes[n].driver.as_ref().is_some_and(|driver| driver.decided);
        if decided { self.over(n, rules) } else { self.after_failure(n, None, rules) }
    }

    /// An answer to a renewal.
    pub(super) fn renewed(&mut self, n: usize, said: Option<Said>, age: u8, rules: &Rules) {
        let stands = rules.stands().saturating_sub(age);
        let Some(own) = self.own_mut(n) else { return };
        match said {
            Some(Said::Renewed(waiters)) => {
                own.deadline = own.deadline.max(stands);
                own.waiters = waiters;
                own.missed = false;
                own.beat = Some(1_u8.saturating_sub(age));
            }
            // The run has ended: only the clock ends the lease.
            Some(Said::Lost(lost)) => {
                if !matches!(own.step, Step::Finishing(_) | Step::Again { .. }) {
                    own.lost.get_or_insert(lost);
                }
            }
            Some(_) => {}
            None => {
                own.beat = Some(if own.missed { 1_u8.saturating_sub(age) } else { 0 });
                own.missed = true;
            }
        }
        self.settle(n, rules);
    }

    /// An answer to `append`.
    pub(super) fn fed(&mut self, n: usize, said: Option<Said>, rules: &Rules) {
        let Some(own) = self.own_mut(n) else { return };
        own.feed.busy = false;
        match said {
            Some(Said::Next(next) | Said::Gap(next)) => own.feed.stored = next,
            // Tried again a little later.
            None if own.deadline > 0 => own.feed.rests = true,
            _ => own.feed.over = true,
        }
        self.settle(n, rules);
    }
}
