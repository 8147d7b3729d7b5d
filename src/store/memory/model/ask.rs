//! A driver that asks who runs, or takes what others left: mirrors `run`, `elect`, `take`,
//! `deliver`, `take_back` and `unmark` of `flight/mod.rs`, and `read_rest` of `flight/inflow.rs`.

use super::{
    conduct::Event,
    follow::FETCHES,
    node::{Driver, Follow, Goal, State, Verdict, Wait},
    rules::{Mutant, Rules},
    wire::{Ask, Found, Id, Lane, Name, Purpose, Said, byte},
    world::World,
};
use crate::store::EndStatus;

impl World {
    /// A new driver for the callers of this node.
    pub(super) fn begin(&mut self, n: usize, rules: &Rules) {
        self.events.push((n, None));
        let waiter = self.fresh(n, rules);
        self.nodes[n].driver = Some(Driver {
            waiter,
            marked: false,
            known: 0,
            newest: 0,
            failed: 0,
            failed_there: None,
            late: 0,
            decided: false,
            subscribed: false,
            inbox: Vec::new(),
            body: None,
            inflow: None,
            state: State::Asking { id: Id::NONE },
        });
        self.elect(n, rules);
    }

    /// An id that nobody else has.
    pub(super) fn fresh(&mut self, n: usize, rules: &Rules) -> Id {
        let node = &mut self.nodes[n];
        node.ids += 1;
        Id(byte(n + 1) + rules.nodes * (node.ids - 1))
    }

    pub(super) fn set_state(&mut self, n: usize, state: State) {
        if let Some(driver) = &mut self.nodes[n].driver {
            driver.state = state;
        }
    }

    /// The driver is through; who came meanwhile gets another.
    pub(super) fn over(&mut self, n: usize, rules: &Rules) {
        self.forget_calls(n, |lane| lane != Lane::Errand);
        let node = &mut self.nodes[n];
        node.driver = None;
        node.callers = std::mem::take(&mut node.queued);
        if node.callers > 0 {
            self.begin(n, rules);
        }
    }

    pub(super) fn ask_join(&mut self, n: usize, id: Id, purpose: Purpose) {
        let Some(Driver { waiter, known, .. }) = self.nodes[n].driver else { return };
        let lane = if purpose == Purpose::Watch { Lane::Beat } else { Lane::Driver };
        self.send(n, lane, Ask::Join { id, waiter, known, purpose });
    }

    /// Asks the store who runs.
    pub(super) fn elect(&mut self, n: usize, rules: &Rules) {
        self.forget_calls(n, |lane| lane != Lane::Errand);
        let id = self.fresh(n, rules);
        self.set_state(n, State::Asking { id });
        let driver = self.nodes[n].driver.as_ref();
        let is_last =
            driver.is_some_and(|driver| driver.failed_there.is_some() && driver.failed > 0);
        self.ask_join(n, id, if is_last { Purpose::Look } else { Purpose::Own });
    }

    /// An attempt that was not answered may have been granted, or have left a mark. That
    /// mark's end must not be the end of the next wait's.
    pub(super) fn unsay(&mut self, n: usize, id: Id, rules: &Rules) {
        let status = EndStatus::Abandoned;
        self.send(n, Lane::Errand, Ask::Release { id, token: None, status });
        self.mark(n);
        self.unmark(n, rules);
    }

    pub(super) fn mark(&mut self, n: usize) {
        if let Some(driver) = &mut self.nodes[n].driver {
            driver.marked = true;
        }
    }

    /// Takes the mark of a look away, where there is one and nobody waits.
    pub(super) fn unmark(&mut self, n: usize, rules: &Rules) {
        if !self.nodes[n].driver.as_ref().is_some_and(|driver| driver.marked) {
            return;
        }
        let fresh = match rules.is(Mutant::SameWaiter) {
            true => None,
            false => Some(self.fresh(n, rules)),
        };
        let Some(Driver { waiter, marked, .. }) = &mut self.nodes[n].driver else { return };
        let old = *waiter;
        *waiter = fresh.unwrap_or(old);
        *marked = false;
        self.send(n, Lane::Errand, Ask::Leave(old));
    }

    /// Ends the wait of a follower that is over before its flight.
    pub(super) fn leave(&mut self, n: usize) {
        let Some(Driver { waiter, .. }) = self.nodes[n].driver else { return };
        self.send(n, Lane::Errand, Ask::Leave(waiter));
    }

    /// Whether the answer finds somebody who takes it.
    pub(super) fn is_ready(&self, call: &super::wire::Call) -> bool {
        let follow = self.nodes[usize::from(call.node)].follow();
        call.lane != Lane::Beat || follow.is_none_or(|follow| follow.step == Wait::Waiting)
    }

    pub(super) fn answer(&mut self, at: usize, rules: &Rules) {
        let call = self.calls.remove(at);
        self.take(call.node.into(), call.lane, call.ask, call.said, call.age, rules);
    }

    /// An answer, or that there is none.
    pub(super) fn take(
        &mut self,
        n: usize,
        lane: Lane,
        ask: Ask,
        said: Option<Said>,
        age: u8,
        rules: &Rules,
    ) {
        self.events.push((n, Some(Event::Heard(lane.into(), ask, said.clone()))));
        let Some(driver) = &self.nodes[n].driver else { return };
        match (lane, &driver.state) {
            (Lane::Beat, State::Own(_)) => self.renewed(n, said, age, rules),
            (Lane::Beat, State::Follow(_)) => self.watched(n, said, age, rules),
            (Lane::Feed, State::Own(_)) => self.fed(n, said, rules),
            (Lane::Driver, State::Own(_)) => self.owner_hears(n, said, age, rules),
            (Lane::Driver, State::Asking { id }) => {
                let id = *id;
                match (said, ask) {
                    (Some(Said::Found(found)), Ask::Join { .. }) => {
                        self.joined(n, id, found, age, rules);
                    }
                    (_, Ask::Join { purpose: Purpose::Look, .. }) => {
                        self.mark(n);
                        self.unmark(n, rules);
                        self.run_alone(n, rules);
                    }
                    _ => {
                        self.unsay(n, id, rules);
                        self.run_alone(n, rules);
                    }
                }
            }
            (Lane::Driver, State::Follow(_)) => self.follower_hears(n, said, rules),
            (Lane::Driver, State::Fetching { .. }) => self.fetched(n, said, rules),
            (Lane::Driver, State::Reading { .. }) => self.read(n, said, rules),
            _ => {}
        }
    }

    pub(super) fn joined(&mut self, n: usize, id: Id, found: Found, age: u8, rules: &Rules) {
        // Gone with a grant, and else kept or taken away by who follows.
        if let Some(driver) = &mut self.nodes[n].driver {
            driver.marked = false;
        }
        if self.fails_too(n, found, rules) {
            return;
        }
        match found {
            Found::Own(token) => self.own(n, Name { token, id }, age, rules),
            Found::Follow { flight, left, pieces } => {
                self.know(n, flight);
                let id = if self.is_alive(id) { id } else { Id::NONE };
                let driver = self.nodes[n].driver.as_mut();
                let before = driver.and_then(|driver| driver.inflow.take());
                let next = before.filter(|(of, _)| *of == flight).map_or(0, |(_, next)| next);
                let (due, beat) = (left.saturating_sub(age), 1_u8.saturating_sub(age));
                self.set_state(n, State::Follow(Follow::new(flight, id, due, beat, next)));
                if pieces > next {
                    self.catch_up(n, Goal::Enough(pieces), 0);
                }
                self.settle(n, rules);
            }
            found => self.take_found(n, found, rules),
        }
    }

    /// Whether callers get the failure of a run elsewhere: it was the last, and no answer
    /// has come since.
    fn fails_too(&mut self, n: usize, found: Found, rules: &Rules) -> bool {
        let Some(driver) = &mut self.nodes[n].driver else { return false };
        let Some(failed) = driver.failed_there.take() else { return false };
        let newer = match found {
            Found::Follow { flight, .. } if flight == failed => return false,
            Found::Follow { .. } => true,
            _ => false,
        };
        driver.failed += 1;
        if driver.failed < 2 || !(newer || matches!(found, Found::Lapsed | Found::Missing)) {
            return false;
        }
        driver.marked = newer;
        self.note("failed elsewhere");
        self.unmark(n, rules);
        self.decide(n, Verdict::Failed(None), rules);
        self.over(n, rules);
        true
    }

    /// Whether the store has seen an id of an attempt, or may see it again: to all others
    /// it is like any that was never used, and so are the states that differ in it.
    pub(super) fn is_alive(&self, id: Id) -> bool {
        let meta = self.shop.record.meta.as_ref();
        let prev = meta.and_then(|meta| meta.prev).map(|(flight, _)| flight);
        let mut seen = meta.map(|meta| meta.owner).into_iter().chain(prev);
        let mut calls = self.calls.iter();
        seen.any(|flight| Name::from(flight).id == id)
            || calls.any(|call| matches!(call.ask, Ask::Join { id: asked, .. } if asked == id))
    }

    /// Takes an answer that asks for no run here.
    pub(super) fn take_found(&mut self, n: usize, found: Found, rules: &Rules) {
        match found {
            Found::Done { flight, streamed: true, .. } => {
                self.forget_calls(n, |lane| lane != Lane::Errand);
                self.set_state(n, State::Reading { flight, next: 0, tries: 0 });
                self.send(n, Lane::Driver, Ask::Read { flight, from: 0 });
            }
            Found::Done { flight, record, .. } => self.deliver(n, flight, record, rules),
            Found::Failed(flight) => {
                self.decide(n, Verdict::Failed(Some(flight)), rules);
                self.over(n, rules);
            }
            Found::Private => {
                self.decide(n, Verdict::Alone, rules);
                self.over(n, rules);
            }
            Found::Quarantined => {
                self.decide(n, Verdict::Failed(None), rules);
                self.over(n, rules);
            }
            _ => self.elect(n, rules),
        }
    }

    /// Gives a stored answer to all callers; what is not there is a miss.
    pub(super) fn deliver(&mut self, n: usize, flight: Name, record: Option<Name>, rules: &Rules) {
        self.forget_calls(n, |lane| lane != Lane::Errand);
        match record {
            Some(record) => self.delivered(n, flight, Some(record), rules),
            None => {
                self.set_state(n, State::Fetching { flight, tries: 1 });
                self.send(n, Lane::Driver, Ask::Fetch);
            }
        }
    }

    pub(super) fn delivered(
        &mut self,
        n: usize,
        flight: Name,
        record: Option<Name>,
        rules: &Rules,
    ) {
        let Some(driver) = &mut self.nodes[n].driver else { return };
        match record {
            Some(record) if record.token >= driver.known || rules.is(Mutant::OlderPush) => {
                self.decide(n, Verdict::Whole(record.id, Some(record)), rules);
                self.over(n, rules);
            }
            _ => self.past(n, flight, rules),
        }
    }

    /// Past this flight, or the next look would find the same again.
    pub(super) fn past(&mut self, n: usize, flight: Name, rules: &Rules) {
        if let Some(driver) = &mut self.nodes[n].driver {
            driver.known = driver.known.max(flight.token + 1);
        }
        self.note("an answer was gone");
        self.elect(n, rules);
    }

    pub(super) fn fetched(&mut self, n: usize, said: Option<Said>, rules: &Rules) {
        let Some(Driver { state: State::Fetching { flight, tries }, .. }) =
            &mut self.nodes[n].driver
        else {
            return;
        };
        let flight = *flight;
        match said {
            Some(Said::Record(record)) => self.delivered(n, flight, record, rules),
            None if *tries < FETCHES => {
                *tries += 1;
                self.send(n, Lane::Driver, Ask::Fetch);
            }
            _ => self.past(n, flight, rules),
        }
    }

    /// Reads a stream that has ended, whole.
    pub(super) fn read(&mut self, n: usize, said: Option<Said>, rules: &Rules) {
        let Some(Driver { state: State::Reading { flight, next, tries }, body, .. }) =
            &mut self.nodes[n].driver
        else {
            return;
        };
        let (flight, from) = (*flight, *next);
        let begun = body.is_some_and(|body| body.source == flight.id);
        match said {
            None if *tries + 1 < FETCHES => {
                *tries += 1;
                self.send(n, Lane::Driver, Ask::Read { flight, from });
            }
            Some(Said::Pieces { first, pieces, end: Some(end) })
                if first == from || pieces.is_empty() =>
            {
                let next = from + byte(pieces.len());
                for piece in pieces {
                    self.take_piece(n, flight, piece, rules);
                }
                self.stream_ended(n, flight, next, end, rules);
            }
            _ if begun => self.unreadable(n, rules),
            _ => self.past(n, flight, rules),
        }
    }
}
