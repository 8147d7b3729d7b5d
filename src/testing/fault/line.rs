//! What is to go wrong on the way to one store, and what has gone there.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use super::{Fault, Step};
use crate::store::{StoreError, StoreErrorKind};

/// The way of one process to its store.
#[derive(Debug)]
pub(super) struct Line(watch::Sender<State>);

#[derive(Debug)]
struct State {
    limit: Duration,
    /// For the next steps, each for one.
    planned: HashMap<Step, VecDeque<Fault>>,
    /// For all steps from now on.
    lasting: HashMap<Step, Fault>,
    chance: Option<Chance>,
    calls: HashMap<Step, u64>,
    errors: HashMap<StoreErrorKind, u64>,
    /// How often what was frozen was let go.
    thaws: u64,
    /// How often pushes came again that had been cut off.
    mends: u64,
    /// How often pushes began not to come.
    breaks: u64,
    /// Who listens is to be told that pushes were cut off, and could not be yet.
    owed: bool,
}

impl State {
    /// Nothing that is pushed is heard as it comes.
    fn is_mute(&self) -> bool {
        !matches!(self.lasting.get(&Step::Push), None | Some(Fault::Delay(_)))
    }

    /// Tells what is owed, if it can be heard.
    fn settle(&mut self) {
        if self.owed && !self.is_mute() {
            self.owed = false;
            self.mends += 1;
        }
    }
}

/// Faults by a seed.
#[derive(Debug)]
struct Chance {
    seed: u64,
    one_in: u64,
    faults: Vec<Fault>,
}

impl Chance {
    /// The next number. (SplitMix64, whose numbers no release of anything changes.)
    fn next(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn fault(&mut self) -> Option<Fault> {
        let (hit, which) = (self.next(), self.next());
        let which = usize::try_from(which % (self.faults.len() as u64).max(1)).unwrap_or(0);
        hit.is_multiple_of(self.one_in).then(|| self.faults.get(which).copied()).flatten()
    }
}

/// How a step that came to the store goes on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Answered,
    /// It is done, and nobody hears of it.
    Unheard,
}

impl Line {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(State {
            limit: Duration::from_millis(250),
            planned: HashMap::new(),
            lasting: HashMap::new(),
            chance: None,
            calls: HashMap::new(),
            errors: HashMap::new(),
            thaws: 0,
            mends: 0,
            breaks: 0,
            owed: false,
        }))
    }

    pub(super) fn set_limit(&self, limit: Duration) {
        self.0.send_modify(|state| state.limit = limit);
    }

    pub(super) fn plan(&self, step: Step, times: usize, fault: Fault) {
        self.0.send_modify(|state| {
            let planned = state.planned.entry(step).or_default();
            planned.extend(std::iter::repeat_n(fault, times));
        });
    }

    pub(super) fn last(&self, steps: &[Step], fault: Fault) {
        self.0.send_modify(|state| {
            state.lasting.extend(steps.iter().map(|step| (*step, fault)));
            if steps.contains(&Step::Push) {
                state.breaks += 1;
                state.owed |= matches!(fault, Fault::Fail(_));
                state.settle();
            }
        });
    }

    pub(super) fn shake(&self, seed: u64, one_in: u32, faults: Vec<Fault>) {
        let one_in = u64::from(one_in.max(1));
        self.0.send_modify(|state| state.chance = Some(Chance { seed, one_in, faults }));
    }

    pub(super) fn thaw(&self) {
        self.0.send_modify(|state| {
            state.lasting.retain(|_, fault| *fault != Fault::Freeze);
            state.thaws += 1;
            state.settle();
        });
    }

    pub(super) fn heal(&self) {
        self.0.send_modify(|state| {
            state.lasting.clear();
            state.planned.clear();
            state.chance = None;
            state.thaws += 1;
            state.settle();
        });
    }

    /// A push was lost, as when its connection breaks: all who listen are told.
    pub(super) fn lost(&self) {
        self.0.send_modify(|state| {
            state.owed = true;
            state.settle();
        });
    }

    /// No step comes to the store.
    pub(super) fn is_cut(&self) -> bool {
        let state = self.0.borrow();
        let is_lost = |step| match state.lasting.get(step) {
            Some(Fault::Fail(_) | Fault::Lose | Fault::Freeze) => true,
            Some(Fault::LoseReply | Fault::Delay(_)) | None => false,
        };
        Step::ALL.iter().all(is_lost)
    }

    /// Pushes do not come as they should, from now on.
    pub(super) fn is_deaf(&self) -> bool {
        self.0.borrow().lasting.contains_key(&Step::Push)
    }

    pub(super) fn breaks(&self) -> u64 {
        self.0.borrow().breaks
    }

    pub(super) fn mends(&self) -> u64 {
        self.0.borrow().mends
    }

    /// Waits until pushes come again that had been cut off since.
    pub(super) async fn mended(&self, since: u64) -> u64 {
        // The sender lives as long as this.
        let mut states = self.0.subscribe();
        states.wait_for(|state| state.mends != since).await.map_or(since, |state| state.mends)
    }

    pub(super) fn thaws(&self) -> u64 {
        self.0.borrow().thaws
    }

    pub(super) async fn thawed(&self, since: u64) {
        let _ = self.0.subscribe().wait_for(|state| state.thaws != since).await;
    }

    pub(super) fn calls(&self, step: Step) -> u64 {
        self.0.borrow().calls.get(&step).copied().unwrap_or_default()
    }

    pub(super) async fn called(&self, step: Step, times: u64) {
        let enough = |state: &State| state.calls.get(&step).is_some_and(|calls| *calls >= times);
        let _ = self.0.subscribe().wait_for(|state| times == 0 || enough(state)).await;
    }

    pub(super) fn errors(&self) -> Vec<(StoreErrorKind, u64)> {
        self.0.borrow().errors.iter().map(|(kind, count)| (*kind, *count)).collect()
    }

    /// A step begins that is a part of another, whose fault is its own too.
    pub(super) fn count(&self, step: Step) {
        self.0.send_modify(|state| *state.calls.entry(step).or_default() += 1);
    }

    /// A step begins: what goes wrong with it.
    pub(super) fn fate(&self, step: Step) -> Option<Fault> {
        let mut fate = None;
        self.0.send_modify(|state| {
            *state.calls.entry(step).or_default() += 1;
            let planned = state.planned.get_mut(&step).and_then(VecDeque::pop_front);
            let given = planned.or_else(|| state.lasting.get(&step).copied());
            fate = given.or_else(|| state.chance.as_mut().and_then(Chance::fault));
        });
        fate
    }

    /// Goes to the store with steps that go together, each with its fault.
    pub(super) async fn travel(&self, fates: &[Option<Fault>]) -> Vec<Result<Way, StoreError>> {
        let (began, thaws, limit) = {
            let state = self.0.borrow();
            (Instant::now(), state.thaws, state.limit)
        };
        let late = began.checked_add(limit);
        let is_frozen = fates.contains(&Some(Fault::Freeze));
        let is_thawed = is_frozen && within(late, self.thawed(thaws)).await;
        let mut wait = Duration::ZERO;
        let ways = fates.iter().map(|fate| {
            let (way, time) = match *fate {
                None => (Ok(Way::Answered), Duration::ZERO),
                Some(Fault::LoseReply) => (Ok(Way::Unheard), Duration::ZERO),
                Some(Fault::Fail(kind)) => (Err(kind), Duration::ZERO),
                Some(Fault::Freeze) if is_thawed => (Ok(Way::Answered), Duration::ZERO),
                Some(Fault::Delay(time)) if time <= limit => (Ok(Way::Answered), time),
                Some(_) => (Err(StoreErrorKind::TimedOut), limit),
            };
            wait = wait.max(time);
            way.map_err(|kind| self.failed(kind))
        });
        let ways = ways.collect();
        match began.checked_add(wait) {
            Some(end) if !wait.is_zero() => sleep_until(end).await,
            Some(_) => {}
            None => std::future::pending().await,
        }
        ways
    }

    /// What is heard of a step that was done.
    pub(super) fn heard<T>(
        &self,
        way: Way,
        answer: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match way {
            Way::Answered => answer,
            Way::Unheard => Err(self.failed(StoreErrorKind::Disconnected)),
        }
    }

    fn failed(&self, kind: StoreErrorKind) -> StoreError {
        self.0.send_modify(|state| *state.errors.entry(kind).or_default() += 1);
        StoreError::new(kind, "the test wants it so")
    }
}

/// Whether it comes before the end, which never comes where there is none.
async fn within(end: Option<Instant>, future: impl Future<Output = ()>) -> bool {
    match end {
        Some(end) => timeout_at(end, future).await.is_ok(),
        None => {
            future.await;
            true
        }
    }
}
