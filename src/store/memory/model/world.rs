//! The whole: nodes, store, what is on its way, and what has been.

use tokio::time::Instant;

use super::{
    conduct::Event,
    node::{Health, Node, Own, State, Step},
    rules::{Fault, Rules},
    shop::{self, Shop},
    wire::{Ask, Call, Lane, Name},
};
use crate::store::EndStatus;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// The store takes in a request.
    Serve(usize),
    /// Its answer arrives.
    Answer(usize),
    /// A node sees its next push.
    Push(usize),
    /// A node that was paused does what was due meanwhile.
    Wake(usize),
    /// A driver sees that its lease is over.
    Lose(usize),
    /// A follower's owner is gone; then, its place in line is reached.
    TakeOver(usize),
    /// Inner gives a piece.
    Piece(usize),
    /// Inner ends.
    End(usize, EndStatus),
    Arrive(usize),
    Leave(usize),
    Tick,
    Resume(usize),
    Heal(usize),
    /// A request of a node that is cut off comes to nothing.
    Fail(usize),
    // Faults.
    Silence(usize),
    Twice(usize),
    LosePush(usize),
    Pause(usize),
    Cut(usize),
    Crash(usize),
    Loss,
    /// The replica hears no more.
    Lag,
    /// It takes the place of the store.
    Failover,
    Forget,
}

/// A flight that was granted, and what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Granted {
    pub(super) flight: Name,
    pub(super) ended: bool,
    /// The store has lost it or was told to forget it: another may own meanwhile.
    pub(super) shaken: bool,
}

impl Action {
    /// Taken by the system itself; all else is done to it. Who comes or leaves is
    /// neither, and ends too.
    pub(super) fn is_onward(self) -> bool {
        !matches!(
            self,
            Self::Silence(_)
                | Self::Twice(_)
                | Self::LosePush(_)
                | Self::Pause(_)
                | Self::Cut(_)
                | Self::Crash(_)
                | Self::Loss
                | Self::Lag
                | Self::Failover
                | Self::Forget
        )
    }
}

#[derive(Clone, Debug)]
pub(super) struct World {
    /// Ticks since the start.
    pub(super) now: u32,
    pub(super) shop: Shop,
    /// As of when it heard last, where that was before now: what it has, and of how many
    /// flights it has heard, and which of them had ended.
    pub(super) replica: Option<(Shop, Vec<bool>)>,
    pub(super) nodes: Vec<Node>,
    pub(super) calls: Vec<Call>,
    /// All flights in the order in which they were granted.
    pub(super) granted: Vec<Granted>,
    pub(super) faults: u8,
    /// The rule that the last step broke.
    pub(super) broken: Option<&'static str>,
    /// What went between nodes and the store in the last step, and who has a new driver.
    pub(super) events: Vec<(usize, Option<Event>)>,
    /// What the last step was an example of.
    pub(super) notes: Vec<&'static str>,
}

impl World {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            now: 0,
            shop: Shop::default(),
            replica: None,
            nodes: (0..rules.nodes).map(|_| Node::new(rules.callers)).collect(),
            calls: Vec::new(),
            granted: Vec::new(),
            faults: rules.faults,
            broken: None,
            events: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn instant(&self, rules: &Rules) -> Instant {
        rules.base + shop::TICK * self.now
    }

    /// Says that a rule is broken; the first one stands.
    pub(super) fn blame(&mut self, rule: &'static str) {
        self.broken.get_or_insert(rule);
    }

    pub(super) fn note(&mut self, what: &'static str) {
        self.notes.push(what);
    }

    pub(super) fn is_good(&self, rules: &Rules) -> bool {
        self.nodes.iter().all(|node| {
            node.callers == 0 && node.queued == 0 && (!rules.endless || node.run().is_none())
        })
    }

    /// Nothing more can come.
    pub(super) fn is_over(&self) -> bool {
        self.nodes.iter().all(|node| match node.health {
            Health::Down => true,
            _ => node.driver.is_none() && node.to_come == 0,
        })
    }

    pub(super) fn actions(&self, rules: &Rules, out: &mut Vec<Action>) {
        if self.is_over() {
            return;
        }
        let may = |fault| self.faults > 0 && rules.kinds.contains(&fault);
        for (at, call) in self.calls.iter().enumerate() {
            let node = &self.nodes[usize::from(call.node)];
            let up = node.is_up();
            if node.cut > 0 && !call.orphan && call.said.is_none() {
                // What is to be said once waits.
                if up && call.lane != Lane::Errand {
                    out.push(Action::Fail(at));
                }
                continue;
            }
            match &call.said {
                None => out.push(Action::Serve(at)),
                Some(_) if up && self.is_ready(call) => out.push(Action::Answer(at)),
                Some(_) => {}
            }
            if call.said.is_none() && !call.orphan && may(Fault::Twice) {
                out.push(Action::Twice(at));
            }
            if !call.orphan && up && may(Fault::Silence) {
                out.push(Action::Silence(at));
            }
        }
        for (n, node) in self.nodes.iter().enumerate() {
            match node.health {
                Health::Up => self.actions_of(n, node, rules, out),
                Health::Paused(_) => out.push(Action::Resume(n)),
                Health::Down => {}
            }
        }
        if may(Fault::Loss) && self.shop.record.meta.is_some() {
            out.push(Action::Loss);
        }
        if may(Fault::Failover) && self.replica.is_none() {
            out.push(Action::Lag);
        }
        if self.replica.is_some() {
            out.push(Action::Failover);
        }
        if may(Fault::Forget) && self.shop.record.meta.is_some() {
            out.push(Action::Forget);
        }
        let arrived = self.calls.iter().all(|call| !call.orphan || call.late);
        if arrived && (0..self.nodes.len()).all(|n| self.may_time_pass(n, rules)) {
            out.push(Action::Tick);
        }
    }

    pub(super) fn actions_of(&self, n: usize, node: &Node, rules: &Rules, out: &mut Vec<Action>) {
        let may = |fault| self.faults > 0 && rules.kinds.contains(&fault);
        if node.to_come > 0 {
            out.push(Action::Arrive(n));
        }
        if node.callers > 0 && (rules.endless || may(Fault::Depart)) {
            out.push(Action::Leave(n));
        }
        if may(Fault::Pause) && node.driver.is_some() {
            out.push(Action::Pause(n));
        }
        if node.cut > 0 {
            out.push(Action::Heal(n));
        } else if may(Fault::Cut) && node.driver.is_some() {
            out.push(Action::Cut(n));
        }
        if may(Fault::Crash) && node.driver.is_some() {
            out.push(Action::Crash(n));
        }
        let Some(driver) = &node.driver else { return };
        if self.has_push(n) {
            out.push(Action::Push(n));
        }
        if may(Fault::LostPush) && !driver.inbox.is_empty() {
            out.push(Action::LosePush(n));
        }
        if self.is_asleep(n) {
            out.push(Action::Wake(n));
        }
        if self.is_lost(n) {
            out.push(Action::Lose(n));
        }
        if self.may_take_over(n, rules) {
            out.push(Action::TakeOver(n));
        }
        if self.may_hand_on(n, rules) {
            out.push(Action::Piece(n));
        }
        if self.may_end(n) && !rules.endless {
            let run = node.run().map_or(0, |run| run.pieces);
            let ends = rules.ends.iter().copied();
            // Without a lease only its end matters.
            let whole = node.own().is_none() || run == rules.pieces;
            let ends = ends.filter(|end| *end != EndStatus::Done || whole);
            out.extend(ends.map(|end| Action::End(n, end)));
        }
    }

    /// Whether nothing is left that this node does before time moves on.
    pub(super) fn may_time_pass(&self, n: usize, rules: &Rules) -> bool {
        let node = &self.nodes[n];
        match node.health {
            Health::Down => true,
            Health::Paused(ticks) => ticks < rules.pause,
            Health::Up => {
                let mut calls = self.calls.iter().filter(|call| usize::from(call.node) == n);
                let late = node.run().is_some_and(|run| run.ticks >= rules.longest);
                let cut = node.cut > 0;
                calls.all(|call| call.orphan || cut && call.lane == Lane::Errand)
                    && !(self.has_push(n) || self.is_asleep(n) || self.is_lost(n))
                    && !self.may_take_over(n, rules)
                    && !(late && !rules.endless && self.may_end(n))
                    && !(rules.endless && node.waited >= rules.longest && node.callers > 0)
            }
        }
    }

    /// One step of the world.
    pub(super) fn act(&mut self, rules: &Rules, action: Action) {
        self.notes.clear();
        self.events.clear();
        match action {
            Action::Serve(at) => self.serve(at, rules, false),
            Action::Answer(at) => self.answer(at, rules),
            Action::Push(n) => self.push(n, rules),
            Action::Wake(n) => self.settle(n, rules),
            Action::Lose(n) => self.lose(n, rules),
            Action::TakeOver(n) => self.take_over(n, rules),
            Action::Piece(n) => self.hand_on(n, rules),
            Action::End(n, status) => self.end(n, status, rules),
            Action::Arrive(n) => self.arrive(n, rules),
            Action::Leave(n) => {
                self.faults -= u8::from(!rules.endless);
                self.nodes[n].callers -= 1;
                self.settle(n, rules);
            }
            Action::Tick => self.tick(rules),
            Action::Heal(n) => self.heal(n),
            Action::Fail(at) => self.silence(at, rules),
            Action::Resume(n) => {
                self.nodes[n].health = Health::Up;
                self.nodes[n].stalled = true;
            }
            Action::Failover => self.fail_over(rules),
            fault => {
                self.faults -= 1;
                self.fault(fault, rules);
            }
        }
    }

    pub(super) fn arrive(&mut self, n: usize, rules: &Rules) {
        let node = &mut self.nodes[n];
        node.to_come -= 1;
        match &node.driver {
            Some(driver) if driver.decided => node.queued += 1,
            Some(_) => node.callers += 1,
            None => {
                node.callers = 1;
                self.begin(n, rules);
            }
        }
    }

    pub(super) fn tick(&mut self, rules: &Rules) {
        self.now += 1;
        let now = self.instant(rules);
        self.shop.record.purge(now);
        let waiters = self.shop.record.meta.as_mut().map(|meta| &mut meta.waiters);
        if let Some(waiters) = waiters {
            waiters.retain(|waiter| now < waiter.until);
        }
        for call in &mut self.calls {
            // What is not waited for has no time.
            call.age = if call.orphan { 0 } else { call.age.saturating_add(1) };
        }
        for n in 0..self.nodes.len() {
            let node = &mut self.nodes[n];
            if let Health::Paused(ticks) = &mut node.health {
                *ticks += 1;
            }
            if rules.endless && node.callers > 0 {
                node.waited = (node.waited + 1).min(rules.longest);
            }
            let (up, cut) = (node.is_up(), node.cut);
            if up {
                node.stalled = false;
                if let Some(run) = node.run_mut() {
                    run.ticks = (run.ticks + 1).min(rules.longest);
                }
            }
            match node.driver.as_mut().map(|driver| &mut driver.state) {
                Some(State::Own(Own { deadline, beat, feed, step, .. })) => {
                    feed.rests = false;
                    if let Step::Wondering(Some(doubt)) = step {
                        (doubt.left, doubt.rests) = (doubt.left.saturating_sub(1), false);
                    }
                    *deadline = deadline.saturating_sub(1);
                    *beat = beat.map(|beat| beat.saturating_sub(1));
                }
                Some(State::Follow(follow)) => {
                    follow.due = follow.due.saturating_sub(1);
                    follow.beat = follow.beat.map(|beat| beat.saturating_sub(1));
                }
                _ => {}
            }
            if cut > 0 {
                self.nodes[n].cut -= 1;
                if cut == 1 {
                    self.heal(n);
                }
            }
            if up {
                self.settle(n, rules);
            }
        }
    }

    /// Sends a request.
    pub(super) fn send(&mut self, n: usize, lane: Lane, ask: Ask) {
        let callers = self.nodes[n].callers;
        self.events.push((n, Some(Event::Asked(lane.into(), ask, callers))));
        let node = u8::try_from(n).unwrap_or(u8::MAX);
        self.calls.push(Call { node, lane, ask, said: None, age: 0, orphan: false, late: false });
    }

    pub(super) fn is_busy(&self, n: usize, lane: Lane) -> bool {
        let mut calls = self.calls.iter().filter(|call| !call.orphan && call.lane == lane);
        calls.any(|call| usize::from(call.node) == n)
    }

    /// Nobody waits for these any more; what is on its way to the store may arrive.
    pub(super) fn forget_calls(&mut self, n: usize, which: impl Fn(Lane) -> bool) {
        for call in &mut self.calls {
            call.orphan |= usize::from(call.node) == n && which(call.lane);
        }
        // What changes nothing need not arrive.
        let idle = |ask| matches!(ask, Ask::Read { .. } | Ask::Fetch);
        self.calls.retain(|call| !(call.orphan && (call.said.is_some() || idle(call.ask))));
    }
}
