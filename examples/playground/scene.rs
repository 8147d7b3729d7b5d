//! All that is known of the fleet, as its nodes, its callers and Redis tell it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use serde::Serialize;
use tokio::sync::watch;
use tower_singleflight::store::{KeyStatus, KeyView};

use crate::{
    lanes::{Lanes, What},
    report::{Kind, Run, State},
    rounds::Round,
    story::{Story, Tone},
};

pub(crate) const NAMES: [&str; 3] = ["A", "B", "C"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Health {
    Starting,
    Up,
    Frozen,
    Dead,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) pid: Option<u32>,
    pub(crate) health: Health,
    pub(crate) cut: bool,
    pub(crate) state: State,
}

/// Whose run a flight is, or was when nothing more was heard of it.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) node: usize,
    pub(crate) token: u64,
    pub(crate) end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It gave its answer.
    Whole,
    /// It ended its run itself, without one.
    GaveUp,
}

#[derive(Debug)]
pub(crate) struct Scene {
    began: Instant,
    pub(crate) nodes: [Node; 3],
    pub(crate) rounds: HashMap<Kind, Round>,
    pub(crate) holders: HashMap<Kind, Holder>,
    /// What is written in Redis, and how often that lease was renewed.
    pub(crate) records: HashMap<Kind, (KeyView, u64)>,
    /// Which kind's key has this digest.
    pub(crate) kinds: HashMap<String, Kind>,
    /// In the order in which they were seen, in which they also grow.
    tokens: Vec<u64>,
    pub(crate) lanes: Lanes,
    pub(crate) story: Story,
}

/// The scene, and who looks at it.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    scene: Arc<Mutex<Scene>>,
    changed: watch::Sender<()>,
}

impl Watched {
    pub(crate) fn new() -> Self {
        let node =
            || Node { pid: None, health: Health::Starting, cut: false, state: State::default() };
        let scene = Scene {
            began: Instant::now(),
            nodes: [node(), node(), node()],
            rounds: HashMap::new(),
            holders: HashMap::new(),
            records: HashMap::new(),
            kinds: HashMap::new(),
            tokens: Vec::new(),
            lanes: Lanes::default(),
            story: Story::default(),
        };
        Self { scene: Arc::new(Mutex::new(scene)), changed: watch::Sender::new(()) }
    }

    pub(crate) fn look(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Scene) -> T) -> T {
        let told = change(&mut self.look());
        self.changed.send_replace(());
        told
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

impl Scene {
    pub(crate) fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub(crate) fn tell(&mut self, tone: Tone, text: impl Into<String>) {
        self.story.tell(self.now(), tone, text);
    }

    /// A token's place among those that were seen: the tokens themselves are long.
    pub(crate) fn place(&mut self, token: u64) -> usize {
        match self.tokens.iter().position(|&seen| seen == token) {
            Some(place) => place + 1,
            None => {
                self.tokens.push(token);
                self.tokens.len()
            }
        }
    }

    /// As [`place`](Self::place), for one that was seen before.
    pub(crate) fn seen(&self, token: u64) -> Option<usize> {
        self.tokens.iter().position(|&seen| seen == token).map(|place| place + 1)
    }

    /// What a node says of itself.
    pub(crate) fn heard(&mut self, node: usize, state: State) {
        let now = self.now();
        for flight in &state.flights {
            let run =
                state.runs.iter().find(|run| run.token.is_some() && run.token == flight.token);
            if let Some(run) = run {
                self.kinds.insert(flight.digest.clone(), run.kind);
            }
        }
        for kind in Kind::ALL {
            let is_here = |digest: &String| self.kinds.get(digest) == Some(&kind);
            let flight = state.flights.iter().find(|flight| is_here(&flight.digest));
            let waits = flight.filter(|flight| flight.phase == "following");
            let token = waits.map(|flight| flight.token.map(|token| self.place(token)));
            self.lanes.wait(now, node, kind, token);
        }
        let known = &mut self.nodes[node];
        let was = std::mem::replace(&mut known.state, state);
        let is = known.state.store.as_str();
        let told = match (was.store.as_str(), is) {
            ("ok", "degraded") => Some((Tone::Fault, "does not reach Redis, and goes on alone.")),
            ("degraded", "ok") => Some((Tone::Run, "reaches Redis again.")),
            _ => None,
        };
        if let Some((tone, what)) = told {
            self.tell(tone, format!("Node {} {what}", NAMES[node]));
        }
    }

    /// A node's inner service was called.
    pub(crate) fn run_began(&mut self, node: usize, run: &Run) {
        let (now, name) = (self.now(), NAMES[node]);
        let round = self.rounds.entry(run.kind).or_default();
        round.runs += 1;
        let Some(token) = run.token else {
            self.lanes.open(now, node, What::Alone, Some((run.kind, None)));
            let why = "runs without a lease, for its own callers alone.";
            return self.tell(Tone::Fault, format!("Node {name} {why}"));
        };
        let place = self.place(token);
        self.lanes.open(now, node, What::Run, Some((run.kind, Some(place))));
        let last = self.holders.insert(run.kind, Holder { node, token, end: None });
        match last {
            Some(last) if last.token < token && last.end != Some(End::Whole) => {
                self.rounds.entry(run.kind).or_default().takeovers += 1;
                let other = NAMES[last.node];
                let Node { health, cut, .. } = self.nodes[last.node];
                let why = match (health, cut) {
                    (Health::Frozen, _) => ", which is frozen, ran out",
                    (Health::Dead, _) => ", which was killed, ran out",
                    (_, true) => ", which is cut off, ran out",
                    _ if last.end == Some(End::GaveUp) => " was let go",
                    _ => " ran out",
                };
                let why = format!("after the lease of node {other}{why}");
                self.tell(
                    Tone::Takeover,
                    format!("Node {name} took over with token {place}, {why}."),
                );
            }
            _ => {
                let what = run.kind.name();
                self.tell(Tone::Run, format!("Node {name} runs the {what}, with token {place}."));
            }
        }
    }

    /// A run of a node's inner service is over.
    pub(crate) fn run_ended(&mut self, node: usize, run: &Run, whole: bool) {
        let (now, name) = (self.now(), NAMES[node]);
        let place = run.token.map(|token| self.place(token));
        self.lanes.close(now, whole, |span| {
            span.node == node
                && matches!(span.what, What::Run | What::Alone)
                && span.kind == Some(run.kind)
                && span.token == place
        });
        let mut newer = None;
        if let Some(holder) = self.holders.get_mut(&run.kind) {
            if Some(holder.token) == run.token {
                holder.end = Some(if whole { End::Whole } else { End::GaveUp });
            } else if run.token.is_some_and(|token| holder.token > token) {
                newer = Some(holder.token);
            }
        }
        let newer = newer.map(|token| self.place(token));
        let (tone, what) = match (whole, run.token, newer) {
            (true, None, _) => (Tone::Run, "has finished its run without a lease.".to_owned()),
            (true, _, None) => {
                let what = run.kind.name();
                (Tone::Run, format!("has finished: its {what} goes to all who wait, everywhere."))
            }
            (true, _, Some(newer)) => {
                let what =
                    "finished a run that is no longer the one; its answer goes nowhere, since";
                (Tone::Fault, format!("{what} token {newer} is greater."))
            }
            (false, _, Some(newer)) => {
                let what = "stepped down: token";
                (
                    Tone::Takeover,
                    format!("{what} {newer} is greater than its own, and it published nothing."),
                )
            }
            (false, _, None) => match self.nodes[node].cut {
                true => {
                    let what = "could not renew its lease, and stopped its run before anybody \
                                    else may begin one.";
                    (Tone::Fault, what.to_owned())
                }
                false => (Tone::Run, "stopped its run, which nobody waits for.".to_owned()),
            },
        };
        self.tell(tone, format!("Node {name} {what}"));
    }

    /// What is written in Redis of a kind's flight.
    pub(crate) fn recorded(&mut self, kind: Kind, view: Option<KeyView>) {
        let Some(view) = view.filter(KeyView::is_in_air) else {
            self.records.remove(&kind);
            return;
        };
        let place = self.place(view.flight.token);
        let last = self.records.get(&kind).filter(|(last, _)| last.flight == view.flight);
        // Looks come more often than heartbeats: none is between two of them unseen.
        let beats =
            last.map_or(0, |(last, beats)| beats + u64::from(view.heartbeat < last.heartbeat));
        let ran_out = view.status == KeyStatus::Lapsed
            && last.is_some_and(|(last, _)| last.status == KeyStatus::Running);
        self.records.insert(kind, (view, beats));
        if ran_out {
            self.tell(Tone::Fault, format!("The lease of token {place} has run out in Redis."));
        }
    }

    /// A process of the fleet is in this state from now on.
    pub(crate) fn set_health(&mut self, node: usize, health: Health) {
        let now = self.now();
        let was = std::mem::replace(&mut self.nodes[node].health, health);
        for (state, what) in [(Health::Frozen, What::Frozen), (Health::Dead, What::Dead)] {
            if (was == state) != (health == state) {
                self.lanes.set(now, node, what, health == state);
            }
        }
        if health == Health::Dead {
            let known = &mut self.nodes[node];
            (known.pid, known.state) = (None, State::default());
            self.lanes.close(now, false, |span| span.node == node && span.kind.is_some());
        }
    }

    /// A node's way to Redis is cut, or whole again.
    pub(crate) fn set_cut(&mut self, node: usize, cut: bool) {
        let now = self.now();
        if std::mem::replace(&mut self.nodes[node].cut, cut) != cut {
            self.lanes.set(now, node, What::Cut, cut);
        }
    }
}
