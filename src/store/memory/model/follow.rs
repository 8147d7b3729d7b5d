//! A driver that follows: mirrors `follow` and `end_of_stream` of `flight/follow.rs`,
//! `flight/turn.rs`, `confirm` of `flight/deliver.rs`, `catch_up`, `read_to_end` and `read_on`
//! of `flight/inflow.rs`, and the watch of `lease/keeper.rs`.

use super::{
    conduct::{Event, Voice},
    node::{Follow, Goal, Node, State, Verdict, Wait},
    rules::{Mutant, Rules},
    step::Heard,
    wire::{Ask, Close, Found, Id, Lane, Name, Purpose, Push, Said, byte, costs},
    world::World,
};
use crate::store::EndStatus;

/// How often a record is asked for at most.
pub(super) const FETCHES: u8 = 2;

/// Nodes of which one takes over before the others try: those wait a beat for it.
const FIRST_IN_LINE: usize = 2;

impl World {
    pub(super) fn follow_mut(&mut self, n: usize) -> Option<&mut Follow> {
        match &mut self.nodes[n].driver.as_mut()?.state {
            State::Follow(follow) => Some(follow),
            _ => None,
        }
    }

    pub(super) fn wait(&mut self, n: usize, step: Wait) {
        if let Some(follow) = self.follow_mut(n) {
            follow.step = step;
        }
    }

    /// Asks who runs; what came of the followed flight is kept, should that go on.
    pub(super) fn elect_anew(&mut self, n: usize, rules: &Rules) {
        let follow = self.nodes[n].follow().filter(|follow| follow.next > 0);
        let inflow = follow.map(|follow| (follow.flight, follow.next));
        if let Some(driver) = &mut self.nodes[n].driver {
            driver.inflow = inflow;
        }
        self.elect(n, rules);
    }

    pub(super) fn unreadable(&mut self, n: usize, rules: &Rules) {
        self.decide(n, Verdict::Alone, rules);
        self.over(n, rules);
    }

    /// The stream is here up to its end.
    pub(super) fn stream_ended(
        &mut self,
        n: usize,
        flight: Name,
        next: u8,
        end: Close,
        rules: &Rules,
    ) {
        let begun = next > 0;
        match end {
            (EndStatus::Done, Some(seal)) => match self.close(n, flight, next, seal, rules) {
                true => self.over(n, rules),
                false => self.unreadable(n, rules),
            },
            (EndStatus::Failed, _) if begun => {
                self.decide(n, Verdict::Failed(Some(flight)), rules);
                self.over(n, rules);
            }
            (EndStatus::Private | EndStatus::TooLarge, _) => self.unreadable(n, rules),
            _ => self.elect(n, rules),
        }
    }

    /// Whether a push is there that a follower looks at now.
    pub(super) fn has_push(&self, n: usize) -> bool {
        let Some(driver) = &self.nodes[n].driver else { return false };
        let waits = self.nodes[n].follow().is_some_and(|follow| follow.step == Wait::Waiting);
        waits && !driver.inbox.is_empty()
    }

    pub(super) fn push(&mut self, n: usize, rules: &Rules) {
        let Some(driver) = &mut self.nodes[n].driver else { return };
        let push = driver.inbox.remove(0);
        self.events.push((n, Some(Event::Pushed(Voice::Driver(0), push))));
        let State::Follow(Follow { flight, .. }) = driver.state else { return };
        if let Push::Ended { flight: of, status: EndStatus::Failed | EndStatus::TimedOut, .. } =
            push
            && of == flight
        {
            driver.failed_there = Some(flight);
        }
        self.heed(n, Heard::from_push(push, flight, rules), rules);
    }

    fn known(&self, n: usize) -> u8 {
        self.nodes[n].driver.as_ref().map_or(0, |driver| driver.known)
    }

    fn heed_look(&mut self, n: usize, found: Found, followed: Name, rules: &Rules) {
        // A newer owner: nothing older is taken from now on.
        if let Found::Follow { flight, .. } = found {
            self.know(n, flight);
        }
        self.heed(n, Heard::from_look(found, followed), rules);
    }

    fn heed(&mut self, n: usize, heard: Heard, rules: &Rules) {
        let Some(Follow { flight, next, .. }) = self.nodes[n].follow().copied() else { return };
        match heard {
            Heard::Stay => {}
            Heard::Look { ended } => {
                self.wait(n, Wait::Looking { ended });
                self.ask_join(n, Id::NONE, Purpose::Look);
            }
            Heard::Piece { index, .. } if index < next => {}
            Heard::Piece { index, piece: Some(piece) }
                if index == next || rules.is(Mutant::Hole) =>
            {
                self.take_piece(n, flight, piece, rules);
            }
            Heard::Piece { index, .. } => self.catch_up(n, Goal::Enough(index + 1), 0),
            Heard::Wait { left, pieces } => {
                if let Some(follow) = self.follow_mut(n) {
                    (follow.due, follow.in_line) = (left, false);
                }
                // Whatever a push has told.
                self.nodes[n].driver.iter_mut().for_each(|driver| driver.failed_there = None);
                if pieces > next {
                    self.catch_up(n, Goal::Enough(pieces), 0);
                }
            }
            Heard::Ended(end) if costs(end.0, next > 0) => {
                self.wait(n, Wait::Confirming(end));
                self.ask_join(n, Id::NONE, Purpose::Look);
            }
            Heard::Ended(end) => return self.read_to_end(n, flight, next, end, rules),
            Heard::Streamed => self.catch_up(n, Goal::Whole, 0),
            Heard::Lost => {
                if let Some(follow) = self.follow_mut(n)
                    && !std::mem::replace(&mut follow.lost, true)
                {
                    (follow.due, follow.in_line) = (follow.due.max(2), false);
                }
            }
            Heard::Newer { flight, left, pieces } => {
                self.forget_calls(n, |lane| lane != Lane::Errand);
                let Some(Follow { id, .. }) = self.nodes[n].follow().copied() else { return };
                self.set_state(n, State::Follow(Follow::new(flight, id, left, 1, 0)));
                if pieces > 0 {
                    self.catch_up(n, Goal::Enough(pieces), 0);
                }
            }
            Heard::Done(Some(record))
                if record.token < self.known(n) && !rules.is(Mutant::OlderPush) =>
            {
                return self.heed(n, Heard::Look { ended: true }, rules);
            }
            Heard::Done(Some(record)) => return self.deliver(n, flight, Some(record), rules),
            Heard::Done(None) => {
                self.wait(n, Wait::Fetching { tries: 1 });
                self.send(n, Lane::Driver, Ask::Fetch);
            }
            Heard::Take(found) => return self.take_found(n, found, rules),
            Heard::Elect => return self.elect_anew(n, rules),
            Heard::TakeOver if rules.is(Mutant::NeverTakesOver) => {}
            Heard::TakeOver => self.get_in_line(n),
        }
        self.settle(n, rules);
    }

    pub(super) fn read_to_end(
        &mut self,
        n: usize,
        flight: Name,
        next: u8,
        end: Close,
        rules: &Rules,
    ) {
        let all = end.1.is_none_or(|seal| seal <= next) || rules.is(Mutant::ShortBody);
        if all {
            self.stream_ended(n, flight, next, end, rules);
        } else {
            self.catch_up(n, Goal::End(end), 0);
        }
    }

    pub(super) fn catch_up(&mut self, n: usize, goal: Goal, tries: u8) {
        let Some(Follow { flight, next, .. }) = self.nodes[n].follow().copied() else { return };
        self.wait(n, Wait::Reading { goal, tries });
        self.send(n, Lane::Driver, Ask::Read { flight, from: next });
    }

    /// An answer to what a follower asked.
    pub(super) fn follower_hears(&mut self, n: usize, said: Option<Said>, rules: &Rules) {
        let Some(follow) = self.follow_mut(n) else { return };
        let step = std::mem::replace(&mut follow.step, Wait::Waiting);
        let Follow { flight, due, in_line, next, .. } = *follow;
        match (step, said) {
            (Wait::Looking { ended: true }, Some(Said::Found(Found::Missing))) => {
                self.elect_anew(n, rules);
            }
            (Wait::Looking { .. }, Some(Said::Found(found))) => {
                self.heed_look(n, found, flight, rules);
            }
            (Wait::Confirming(end), said) => self.confirmed(n, end, said, rules),
            (Wait::Fetching { .. }, Some(Said::Record(Some(record))))
                if record.token >= self.known(n) =>
            {
                self.deliver(n, flight, Some(record), rules);
            }
            (Wait::Fetching { tries }, None) if tries < FETCHES => {
                self.wait(n, Wait::Fetching { tries: tries + 1 });
                self.send(n, Lane::Driver, Ask::Fetch);
            }
            (Wait::Fetching { .. }, _) => self.heed(n, Heard::Look { ended: true }, rules),
            (Wait::Looking { .. }, _) if next > 0 && (due > 0 || in_line) => {
                self.settle(n, rules);
            }
            (Wait::Looking { .. }, _) => {
                self.leave(n);
                self.run_alone(n, rules);
            }
            (Wait::Reading { goal, tries }, Some(Said::Pieces { first, pieces, end })) => {
                let came = byte(pieces.len());
                if came > 0 && first != next {
                    self.leave(n);
                    return self.unreadable(n, rules);
                }
                for piece in pieces {
                    self.take_piece(n, flight, piece, rules);
                }
                let next = next + came;
                match (end, goal) {
                    (Some(end), _) => self.stream_ended(n, flight, next, end, rules),
                    (None, Goal::Enough(enough)) if came > 0 && next < enough => {
                        self.catch_up(n, goal, tries);
                    }
                    (None, Goal::Enough(_)) => self.settle(n, rules),
                    (None, _) if came > 0 => self.catch_up(n, goal, tries),
                    (None, Goal::End(_)) => self.settle(n, rules),
                    (None, Goal::Whole) => {
                        self.leave(n);
                        self.unreadable(n, rules);
                    }
                }
            }
            // Read at the next beat.
            (Wait::Reading { goal: Goal::Enough(_), .. }, _) => self.settle(n, rules),
            (Wait::Reading { goal, tries }, _) if tries + 1 < FETCHES => {
                self.catch_up(n, goal, tries + 1);
            }
            (Wait::Reading { .. }, _) => {
                self.leave(n);
                self.unreadable(n, rules);
            }
            _ => {}
        }
    }

    /// What a look has found after a push that told of an end.
    fn confirmed(&mut self, n: usize, end: Close, said: Option<Said>, rules: &Rules) {
        let Some(Follow { flight, next, .. }) = self.nodes[n].follow().copied() else { return };
        match said {
            Some(Said::Found(Found::Follow { flight: of, left, pieces })) if of == flight => {
                return self.heed(n, Heard::Wait { left, pieces }, rules);
            }
            Some(Said::Found(Found::Follow { .. })) if end.0 != EndStatus::Failed => {
                self.mark(n);
                self.unmark(n, rules);
                return self.take_found(n, Found::Private, rules);
            }
            Some(Said::Found(found @ (Found::Follow { .. } | Found::Done { .. }))) => {
                return self.heed_look(n, found, flight, rules);
            }
            Some(Said::Found(found @ Found::Failed(of))) if of != flight => {
                return self.take_found(n, found, rules);
            }
            // A run that failed leaves no more in the record than one that was lost.
            Some(Said::Found(Found::Lapsed)) if end.0 == EndStatus::Failed => {
                return self.catch_up(n, Goal::End(end), 0);
            }
            Some(Said::Found(Found::Lapsed)) => return self.heed(n, Heard::TakeOver, rules),
            None => {
                self.mark(n);
                self.unmark(n, rules);
            }
            Some(_) => {}
        }
        self.read_to_end(n, flight, next, end, rules);
    }

    /// An answer to a watch.
    pub(super) fn watched(&mut self, n: usize, said: Option<Said>, age: u8, rules: &Rules) {
        let Some(follow) = self.follow_mut(n) else { return };
        let flight = follow.flight;
        let next = Some(1_u8.saturating_sub(age));
        match said {
            Some(Said::Found(found)) => {
                if matches!(found, Found::Follow { .. } | Found::Lapsed | Found::Missing) {
                    follow.beat = next;
                }
                follow.missed = false;
                if !rules.is(Mutant::NeverLooks) {
                    self.heed_look(n, found, flight, rules);
                }
            }
            _ => {
                follow.beat = if follow.missed { next } else { Some(0) };
                follow.missed = true;
                self.settle(n, rules);
            }
        }
    }

    pub(super) fn may_take_over(&self, n: usize, rules: &Rules) -> bool {
        self.nodes[n].follow().is_some_and(|follow| {
            let looks = !rules.is(Mutant::NeverTakesOver) && !rules.is(Mutant::NeverLooks);
            let may = follow.in_line || follow.due == 0 && looks;
            follow.step == Wait::Waiting && may
        })
    }

    pub(super) fn take_over(&mut self, n: usize, rules: &Rules) {
        match self.nodes[n].follow() {
            Some(Follow { in_line: true, .. }) => self.elect_anew(n, rules),
            _ => self.get_in_line(n),
        }
    }

    /// The lease has run out: one of the first takes over, or the others do.
    fn get_in_line(&mut self, n: usize) {
        match self.follow_mut(n) {
            Some(follow) if n >= FIRST_IN_LINE && !follow.patient && !follow.in_line => {
                (follow.patient, follow.due) = (true, 2);
            }
            Some(follow) => follow.in_line = true,
            None => {}
        }
    }

    /// Whether something is due that a node does by itself.
    pub(super) fn is_asleep(&self, n: usize) -> bool {
        let Node { driver: Some(driver), callers, .. } = &self.nodes[n] else { return false };
        match &driver.state {
            State::Own(own) => self.is_owner_due(n, own),
            State::Follow(follow) => {
                let beat = follow.beat == Some(0) && !self.is_busy(n, Lane::Beat);
                beat || *callers == 0 && follow.step == Wait::Waiting
            }
            State::Local { .. } => *callers == 0,
            _ => false,
        }
    }

    /// What a node does at once.
    pub(super) fn settle(&mut self, n: usize, rules: &Rules) {
        let Node { driver: Some(driver), callers, .. } = &self.nodes[n] else { return };
        let vacant = *callers == 0;
        match driver.state {
            State::Own(_) => self.settle_owner(n, rules),
            State::Local { .. } if vacant => self.over(n, rules),
            State::Follow(follow) => {
                if vacant && follow.step == Wait::Waiting {
                    self.leave(n);
                    return self.over(n, rules);
                }
                if follow.beat == Some(0) && !self.is_busy(n, Lane::Beat) {
                    if let Some(follow) = self.follow_mut(n) {
                        follow.beat = None;
                    }
                    self.ask_join(n, follow.id, Purpose::Watch);
                }
            }
            _ => {}
        }
    }
}
