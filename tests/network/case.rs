//! One step, and every fault at it.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::join_all};
use tower_singleflight::FlightPhase;

use crate::{
    OPT, PATIENCE,
    inner::Shape,
    proxy::{Link, Push, Step},
    row::{Kind, Row},
    world::{LETTERS, NODES, Servers, World, until, until_within},
};

/// Between the starts of two rows.
const APART: Duration = Duration::from_millis(250);

/// A step of one node, and how it comes to it. The first node owns.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) node: usize,
    pub(crate) step: Step,
    pub(crate) shape: Shape,
    /// Who has called before: the owner, those who follow.
    pub(crate) before: &'static [usize],
    /// How many callers each node has.
    pub(crate) callers: usize,
    pub(crate) trigger: Trigger,
    /// The push that the step causes, and the node that it gets to.
    pub(crate) push: Option<(usize, Push)>,
    /// The limit of the step's operation.
    pub(crate) limit: Duration,
    /// Whether it is waited until all keys are gone, and not only seen that they will be.
    pub(crate) wait: bool,
    pub(crate) rows: &'static [Row],
}

/// What makes the node do the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// It is called.
    Call,
    /// Nothing: it comes with the next beat.
    Beat,
    /// The run goes on.
    Stage(u32),
    /// Its callers hang up.
    Leave,
    /// The owner's process leaves.
    Drain,
}

pub(crate) const CASE: Case = Case {
    name: "",
    node: 0,
    step: Step::Other,
    shape: Shape::Small,
    before: &[0, 1, 2],
    callers: 2,
    trigger: Trigger::Beat,
    push: None,
    limit: OPT,
    wait: false,
    rows: &[],
};

impl Case {
    /// Plays all rows side by side; panics with all that failed.
    pub(crate) async fn play(&'static self) {
        let servers = Servers::start();
        let rows = self.rows.iter().zip(0..).map(|(row, nth)| {
            let servers = Arc::clone(&servers);
            let played = async move {
                // Not all at once, for the sake of a busy machine.
                tokio::time::sleep(APART * nth).await;
                self.row(row, &servers).await;
            };
            tokio::spawn(AssertUnwindSafe(played).catch_unwind())
        });
        let mut failed = Vec::new();
        for (row, outcome) in self.rows.iter().zip(join_all(rows).await) {
            if let Err(why) = outcome.expect("panics are caught") {
                let text = why.downcast_ref::<String>().map(String::as_str);
                let text = text.or(why.downcast_ref::<&str>().copied()).unwrap_or("?");
                failed.push(format!("{}, {:?}: {text}", self.name, row.kind));
            }
        }
        assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    }

    async fn row(&self, row: &Row, servers: &Arc<Servers>) {
        let prefix = format!("{}-{:?}", self.name, row.kind);
        let mut world = World::start(servers, prefix).await;
        for &node in self.before {
            self.joins(&mut world, node).await;
        }
        let token = world.nodes[0].flight().and_then(|flight| flight.token);
        let beats = world.nodes[self.node].proxy.passed(self.step);
        self.arm(&world, row.kind);
        self.pull(&mut world);
        let hit = world.nodes[self.aimed(row.kind)].proxy.hit(PATIENCE).await;
        world.has_ends();
        let late = if self.trigger == Trigger::Leave { 1..NODES } else { 0..NODES };
        for node in late {
            if world.calls[node].is_empty() {
                world.call(node, self.callers, self.shape);
            }
        }
        if self.trigger == Trigger::Beat && !row.kind.is_mute() && row.kind != Kind::Swap {
            // It goes on for two beats more.
            let proxy = &world.nodes[self.node].proxy;
            until("it beats", || proxy.passed(self.step) >= beats + 3).await;
        }
        let mut since = hit;
        if self.trigger != Trigger::Stage(2) {
            let runs = *row.runs.start();
            until_within(row.within, "the runs begin", || world.inner.calls() >= runs).await;
            let past = token.filter(|_| row.kind == Kind::Swap);
            until_within(row.within, "all know who runs", || world.is_settled(past)).await;
            since = Instant::now();
            world.inner.stage(2);
        }
        let took = world.answered(row, self.shape, since).await;
        world.nodes[self.node].proxy.set(Link::Open);
        world.is_over().await;
        self.compare(&world, row, took);
        world.meets_again((self.trigger == Trigger::Drain).then_some(0)).await;
        world.is_gone(self.wait).await;
    }

    fn pull(&self, world: &mut World) {
        match self.trigger {
            Trigger::Call => world.call(self.node, self.callers, self.shape),
            Trigger::Beat => {}
            Trigger::Stage(stage) => world.inner.stage(stage),
            Trigger::Leave => world.calls[self.node].clear(),
            Trigger::Drain => {
                drop(tokio::spawn(world.nodes[self.node].layer.drain(Duration::ZERO)))
            }
        }
    }

    /// The node whose way the fault is on.
    fn aimed(&self, kind: Kind) -> usize {
        match self.push {
            Some((node, _)) if kind == Kind::SwallowPush => node,
            _ => self.node,
        }
    }

    /// The first who calls owns, the others follow.
    async fn joins(&self, world: &mut World, node: usize) {
        let owns = node == self.before[0];
        let phase = if owns { FlightPhase::Owning } else { FlightPhase::Following };
        world.call(node, self.callers, self.shape);
        world.until_in(node, phase, self.shape).await;
    }

    fn arm(&self, world: &World, kind: Kind) {
        let proxy = &world.nodes[self.node].proxy;
        if let Some(kind) = kind.at_step(self.limit) {
            proxy.arm(self.step, kind);
        } else if kind == Kind::Swap {
            let all = world.nodes.iter().map(|node| &node.proxy);
            proxy.arm_swap(self.step, world.servers.other.port(), all);
        } else {
            let (node, push) = self.push.expect("a push that the step causes");
            world.nodes[node].proxy.swallow(push);
        }
    }

    fn compare(&self, world: &World, row: &Row, took: Duration) {
        let counts = [
            ("runs", world.inner.calls(), &row.runs),
            ("takeovers", world.sum(|stats| stats.takeovers), &row.takeovers),
            ("leases lost", world.sum(|stats| stats.leases_lost), &row.lost),
            ("fenced", world.sum(|stats| stats.fenced), &row.fenced),
        ];
        let texts = counts.each_ref().map(|(name, count, _)| format!("{count} {name}"));
        let (name, node) = (self.name, LETTERS[self.node]);
        println!("{name} at {node}, {:?}: {}; {took:?}", row.kind, texts.join(", "));
        for (name, count, allowed) in counts {
            assert!(allowed.contains(&count), "{name}: {count}, not {allowed:?}");
        }
        let tokens = world.inner.tokens();
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
    }
}
