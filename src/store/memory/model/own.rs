//! A driver that owns: mirrors `own` of `flight/own.rs`, `attend` and `reclaim` of
//! `flight/attend.rs`, and `conclude`, `own_again` and `after_failure` of
//! `flight/conclude.rs`.

use super::{
    node::{Alone, Body, Driver, Ending, Feed, Own, Run, State, Step, Verdict},
    rules::{Mutant, Rules},
    wire::{Ask, Found, Id, Lane, Lost, Name, Purpose, Said},
    world::World,
};
use crate::store::EndStatus;

impl World {
    pub(super) fn own_mut(&mut self, n: usize) -> Option<&mut Own> {
        match &mut self.nodes[n].driver.as_mut()?.state {
            State::Own(own) => Some(own),
            _ => None,
        }
    }

    pub(super) fn set_step(&mut self, n: usize, step: Step) {
        if let Some(own) = self.own_mut(n) {
            own.step = step;
        }
    }

    /// A lease was granted, and asked for some ticks ago.
    pub(super) fn own(&mut self, n: usize, flight: Name, age: u8, rules: &Rules) {
        self.know_own(n, flight);
        let deadline = rules.stands().saturating_sub(age);
        if deadline == 0 && !rules.is(Mutant::LateGrant) {
            self.note("granted too late");
            self.release(n, flight);
            return self.too_late(n, rules);
        }
        if self.nodes[n].callers == 0 {
            self.release(n, flight);
            return self.over(n, rules);
        }
        self.judge_start(n, flight, rules);
        if let Some(driver) = &mut self.nodes[n].driver {
            driver.inflow = None;
        }
        let run = Run { id: flight.id, pieces: 0, ticks: 0 };
        self.set_state(
            n,
            State::Own(Own {
                flight,
                deadline,
                waiters: 0,
                beat: Some(1_u8.saturating_sub(age)),
                missed: false,
                lost: None,
                step: Step::Running,
                run: Some(run),
                made: 0,
                live: false,
                feed: Feed::default(),
            }),
        );
        self.know(n, flight);
        self.settle(n, rules);
    }

    pub(super) fn know_own(&mut self, n: usize, flight: Name) {
        if let Some(driver) = &mut self.nodes[n].driver {
            driver.known = driver.known.max(flight.token);
        }
    }

    pub(super) fn too_late(&mut self, n: usize, rules: &Rules) {
        let Some(driver) = &mut self.nodes[n].driver else { return };
        driver.late += 1;
        if driver.late < 3 { self.elect(n, rules) } else { self.run_alone(n, rules) }
    }

    pub(super) fn release(&mut self, n: usize, flight: Name) {
        let (token, status) = (Some(flight.token), EndStatus::Abandoned);
        self.send(n, Lane::Errand, Ask::Release { id: flight.id, token, status });
    }

    /// The store cannot be asked: single flight inside the process only.
    pub(super) fn run_alone(&mut self, n: usize, rules: &Rules) {
        self.forget_calls(n, |lane| lane != Lane::Errand);
        if self.nodes[n].callers == 0 {
            return self.over(n, rules);
        }
        self.note("without the store");
        let run = Run { id: self.fresh(n, rules), pieces: 0, ticks: 0 };
        self.set_state(n, State::Local { run, why: Alone::Away });
    }

    pub(super) fn is_lost(&self, n: usize) -> bool {
        let own = self.nodes[n].own();
        own.is_some_and(|own| {
            own.step == Step::Running && (own.lost.is_some() || own.deadline == 0)
        })
    }

    /// The driver sees that its lease is over.
    pub(super) fn lose(&mut self, n: usize, rules: &Rules) {
        let Some(own) = self.own_mut(n) else { return };
        let lost = *own.lost.get_or_insert(Lost::Silence);
        if lost == Lost::Missing {
            let id = self.fresh(n, rules);
            self.set_step(n, Step::Reclaiming { id });
            return self.ask_join(n, id, Purpose::Own);
        }
        self.part(n, lost, rules);
    }

    /// Drops the run first, then lets the lease go.
    pub(super) fn give_up(&mut self, n: usize, rules: &Rules) {
        self.note("gave its run up");
        self.forget_calls(n, |lane| lane != Lane::Errand);
        let Some(own) = self.own_mut(n) else { return };
        own.run = None;
        let flight = own.flight;
        self.release(n, flight);
        if self.nodes[n].callers > 0 {
            return self.elect(n, rules);
        }
        self.unmark(n, rules);
        self.over(n, rules);
    }

    /// Whether inner can hand a piece on: read from the clock.
    pub(super) fn may_hand_on(&self, n: usize, rules: &Rules) -> bool {
        let own = self.nodes[n].own();
        own.is_some_and(|own| {
            let stands = own.deadline > 0 && own.lost.is_none() || rules.is(Mutant::NoDeadline);
            let more = own.run.is_some_and(|run| run.pieces < rules.pieces);
            own.step == Step::Running && stands && more
        })
    }

    pub(super) fn hand_on(&mut self, n: usize, rules: &Rules) {
        let Some(own) = self.own_mut(n) else { return };
        let Some(run) = &mut own.run else { return };
        run.pieces += 1;
        own.live = true;
        let own = *own;
        self.judge_handing_on(&own);
        let (source, pieces) = own.run.map_or((Id::NONE, 0), |run| (run.id, run.pieces));
        let Some(driver) = &mut self.nodes[n].driver else { return };
        let body = driver.body.get_or_insert(Body { source, pieces });
        body.pieces = pieces;
        if body.source != source {
            self.decide(n, Verdict::Broken, rules);
        }
        self.settle(n, rules);
    }

    pub(super) fn may_end(&self, n: usize) -> bool {
        let node = &self.nodes[n];
        node.run().is_some() && node.own().is_none_or(|own| own.step == Step::Running)
    }

    /// Inner ends.
    pub(super) fn end(&mut self, n: usize, status: EndStatus, rules: &Rules) {
        let Some(run) = self.nodes[n].run().copied() else { return };
        if let Some(Driver { state: State::Local { why, .. }, .. }) = &self.nodes[n].driver {
            let why = *why;
            return match status {
                EndStatus::Done => {
                    self.decide(n, Verdict::Whole(run.id, None), rules);
                    self.over(n, rules);
                }
                EndStatus::Private => {
                    self.decide(n, Verdict::Alone, rules);
                    self.over(n, rules);
                }
                _ => self.after_failure(n, Some(why), rules),
            };
        }
        let Some(own) = self.own_mut(n) else { return };
        let stands = own.lost.is_none() && own.deadline > 0;
        if !stands && !own.live {
            if own.lost == Some(Lost::Forgotten) && self.nodes[n].callers > 0 {
                self.go_on_alone(n, Alone::Forgotten);
                return self.end(n, status, rules);
            }
            return self.give_up(n, rules);
        }
        own.run = None;
        own.made = run.pieces;
        let (flight, live, waiters) = (own.flight, own.live, own.waiters);
        if status == EndStatus::TimedOut {
            // The keeper lets it go.
            self.note("timed out");
            let (token, status) = (Some(flight.token), EndStatus::TimedOut);
            self.forget_calls(n, |lane| lane != Lane::Errand);
            self.send(n, Lane::Errand, Ask::Release { id: flight.id, token, status });
            return self.after_failure(n, None, rules);
        }
        own.step = Step::Finishing(Ending::new(status, waiters > 0));
        match status {
            EndStatus::Done => self.decide(n, Verdict::Whole(run.id, None), rules),
            EndStatus::Private => self.decide(n, Verdict::Alone, rules),
            _ if live => self.decide(n, Verdict::Failed(None), rules),
            _ => {}
        }
        self.settle(n, rules);
    }

    pub(super) fn after_failure(&mut self, n: usize, alone: Option<Alone>, rules: &Rules) {
        let callers = self.nodes[n].callers;
        let Some(driver) = &mut self.nodes[n].driver else { return };
        driver.failed += 1;
        if callers > 0 && driver.failed >= 2 {
            self.decide(n, Verdict::Failed(None), rules);
        }
        match (self.nodes[n].callers, alone) {
            (0, _) => self.over(n, rules),
            (_, Some(Alone::Away)) => self.run_alone(n, rules),
            (_, Some(Alone::Forgotten)) => {
                self.decide(n, Verdict::Alone, rules);
                self.over(n, rules);
            }
            _ => self.elect(n, rules),
        }
    }

    /// An answer to what the owner's driver asked.
    pub(super) fn owner_hears(&mut self, n: usize, said: Option<Said>, age: u8, rules: &Rules) {
        let Some(own) = self.own_mut(n) else { return };
        match &mut own.step {
            Step::Running => {}
            Step::Abandoning => match said {
                Some(Said::Wanted) => {
                    own.waiters = own.waiters.max(1);
                    own.step = Step::Running;
                    self.note("went on for others");
                    self.settle(n, rules);
                }
                Some(Said::Over) => {
                    own.run = None;
                    self.forget_calls(n, |lane| lane != Lane::Errand);
                    if self.nodes[n].callers == 0 {
                        self.over(n, rules)
                    } else {
                        self.elect(n, rules)
                    }
                }
                _ => self.give_up(n, rules),
            },
            Step::Reclaiming { id } => {
                let id = *id;
                match said {
                    Some(Said::Found(Found::Own(token))) => {
                        self.reclaimed(n, Name { token, id }, age, rules);
                    }
                    Some(said) => {
                        self.was_slower(n, &said);
                        self.part(n, Lost::Superseded, rules);
                    }
                    None => {
                        self.unsay(n, id, rules);
                        self.part(n, Lost::Missing, rules);
                    }
                }
            }
            Step::Wondering(doubt) => {
                let doubt = *doubt;
                self.wondered(n, doubt, said, age, rules);
            }
            Step::Finishing(_) => self.told(n, said, rules),
            Step::Again { id } => {
                let id = *id;
                self.owned_again(n, id, said, age, rules);
            }
        }
    }

    /// Another flight was there when a lease was asked for anew.
    fn was_slower(&mut self, n: usize, said: &Said) {
        if let Said::Found(Found::Follow { flight, .. }) = said {
            self.mark(n);
            self.know(n, *flight);
        }
    }

    /// A run that has ended is owned again, where nobody else has owned since.
    fn owned_again(&mut self, n: usize, id: Id, said: Option<Said>, age: u8, rules: &Rules) {
        let Some(said) = said else {
            self.unsay(n, id, rules);
            return self.concluded(n, true, rules);
        };
        let Said::Found(Found::Own(token)) = said else {
            self.was_slower(n, &said);
            self.unmark(n, rules);
            return self.concluded(n, true, rules);
        };
        self.hold_anew(n, Name { token, id }, age, rules);
        let Some(own) = self.own_mut(n) else { return };
        // Nobody knows who waits: their marks are lost.
        own.waiters = own.waiters.max(1);
        let ending = Ending { offer: false, ..Ending::new(EndStatus::Done, true) };
        own.step = Step::Finishing(ending);
        if own.deadline == 0 {
            self.note("owned again too late");
            return self.concluded(n, false, rules);
        }
        self.note("owned again");
        self.settle(n, rules);
    }

    /// Owns again, with the same run; who waited is taken to wait on.
    pub(super) fn reclaimed(&mut self, n: usize, flight: Name, age: u8, rules: &Rules) {
        self.hold_anew(n, flight, age, rules);
        let Some(own) = self.own_mut(n) else { return };
        own.step = Step::Running;
        if own.deadline == 0 {
            return self.part(n, Lost::Missing, rules);
        }
        self.note("reclaimed");
        self.settle(n, rules);
    }

    fn hold_anew(&mut self, n: usize, flight: Name, age: u8, rules: &Rules) {
        self.forget_calls(n, |lane| lane != Lane::Errand);
        self.know(n, flight);
        let deadline = rules.stands().saturating_sub(age);
        let Some(own) = self.own_mut(n) else { return };
        let beat = Some(1_u8.saturating_sub(age));
        let old = *own;
        let feed = Feed::default();
        *own = Own { flight, deadline, beat, missed: false, lost: None, feed, ..old };
    }
}
