//! A breadth-first search of all states: shortest traces, a set of fingerprints, and
//! the question whether every way without faults leads to a good state.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    fmt::Debug,
    hash::BuildHasherDefault,
};

use super::print::Print;

/// What is searched.
pub(super) trait Model {
    type State: Clone + Debug;
    type Action: Copy + Debug;

    fn start(&self) -> Self::State;
    fn actions(&self, state: &Self::State, out: &mut Vec<Self::Action>);
    /// The next state, or the rule that the step breaks.
    fn step(&self, state: &Self::State, action: Self::Action) -> Result<Self::State, &'static str>;
    fn fingerprint(&self, state: &Self::State) -> u64;
    /// True where the system, and nobody who does it harm, takes the step.
    fn is_onward(&self, action: Self::Action) -> bool;
    /// True where nobody waits for anything.
    fn is_good(&self, state: &Self::State) -> bool;
    /// A step in words, for a trace.
    fn describe(&self, state: &Self::State, action: Self::Action) -> String;
}

/// What a search found.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) states: usize,
    pub(super) steps: usize,
    /// The broken rule, and the shortest way there.
    pub(super) broken: Option<(&'static str, String)>,
}

pub(super) const STUCK: &str = "a caller waits and nothing can happen";
pub(super) const NEVER: &str = "a caller may wait for ever";

struct Search<'a, M: Model> {
    model: &'a M,
    /// How each state was reached first.
    ways: Vec<(u32, Option<M::Action>)>,
    good: Vec<bool>,
    /// The steps of the system between states that are not good.
    onward: Vec<(u32, u32)>,
    steps: usize,
}

/// Visits every state; panics where there are more than `most`.
pub(super) fn check<M: Model>(model: &M, most: usize) -> Report {
    let (ways, good) = (Vec::new(), Vec::new());
    let mut search = Search { model, ways, good, onward: Vec::new(), steps: 0 };
    let broken = search.visit(most).or_else(|| search.trapped());
    Report { states: search.ways.len(), steps: search.steps, broken }
}

impl<M: Model> Search<'_, M> {
    fn visit(&mut self, most: usize) -> Option<(&'static str, String)> {
        let model = self.model;
        let start = model.start();
        let mut seen: HashMap<u64, u32, BuildHasherDefault<Print>> = HashMap::default();
        seen.insert(model.fingerprint(&start), 0);
        self.ways.push((0, None));
        self.good.push(model.is_good(&start));
        let mut queue = VecDeque::from([start]);
        let mut actions = Vec::new();
        let mut at = 0;
        while let Some(state) = queue.pop_front() {
            model.actions(&state, &mut actions);
            let mut ways_on = 0;
            for action in actions.drain(..) {
                self.steps += 1;
                let next = match model.step(&state, action) {
                    Ok(next) => next,
                    Err(rule) => return Some((rule, self.trace(at, Some(action)))),
                };
                let id = u32::try_from(self.ways.len()).unwrap_or(u32::MAX);
                let to = match seen.entry(model.fingerprint(&next)) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(place) => {
                        place.insert(id);
                        self.ways.push((at, Some(action)));
                        self.good.push(model.is_good(&next));
                        queue.push_back(next);
                        id
                    }
                };
                if model.is_onward(action) && !self.good[at as usize] {
                    ways_on += 1;
                    self.onward.push((at, to));
                }
            }
            if ways_on == 0 && !self.good[at as usize] {
                return Some((STUCK, self.trace(at, None)));
            }
            assert!(self.ways.len() <= most, "more than {most} states");
            at += 1;
        }
        None
    }

    /// A state from which the system can go round for ever without a good state.
    fn trapped(&mut self) -> Option<(&'static str, String)> {
        let mut left = vec![0_u32; self.ways.len()];
        for (from, _) in &self.onward {
            left[*from as usize] += 1;
        }
        self.onward.sort_unstable_by_key(|(_, to)| *to);
        let mut safe: Vec<u32> = (0..).take(self.ways.len()).collect();
        safe.retain(|id| self.good[*id as usize]);
        while let Some(id) = safe.pop() {
            let first = self.onward.partition_point(|(_, to)| *to < id);
            for (from, _) in self.onward[first..].iter().take_while(|(_, to)| *to == id) {
                left[*from as usize] -= 1;
                if left[*from as usize] == 0 {
                    safe.push(*from);
                }
            }
        }
        let trapped = left.iter().position(|left| *left > 0)?;
        Some((NEVER, self.trace(u32::try_from(trapped).unwrap_or(0), None)))
    }

    /// The steps to a state, and how it looks there.
    fn trace(&self, mut at: u32, last: Option<M::Action>) -> String {
        let mut actions: Vec<M::Action> = last.into_iter().collect();
        while let (before, Some(action)) = self.ways[at as usize] {
            actions.push(action);
            at = before;
        }
        actions.reverse();
        let mut state = self.model.start();
        let mut text = String::new();
        for action in actions {
            text += &(self.model.describe(&state, action) + "\n");
            match self.model.step(&state, action) {
                Ok(next) => state = next,
                Err(rule) => text += &format!("  breaks: {rule}\n"),
            }
        }
        text + &format!("{state:?}")
    }
}
