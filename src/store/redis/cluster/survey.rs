//! Asks nodes who has which slots, when something says that the atlas is old: one
//! survey at a time, and not often.

use std::{
    sync::{Arc, OnceLock, Weak},
    time::{Duration, Instant},
};

use bb8_redis::redis::{Cmd, ConnectionInfo, Value};
use rand::seq::SliceRandom;
use tokio::task::{AbortHandle, JoinSet};

use super::{map::Map, members::Cluster};
use crate::store::{
    StoreError, StoreErrorKind,
    redis::{address::Place, ask_once::ask_once, error},
};

/// Between two surveys; longer with each that finds nothing new.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);
/// After so long, what is away is not replaced any time soon.
const QUICK: Duration = Duration::from_secs(30);
const SLOW_PAUSE: Duration = Duration::from_secs(5);
/// A node that says nothing for so long is not waited for before the next is asked.
const MOMENT: Duration = Duration::from_millis(50);
/// A survey that says nothing for so long is gone, with the runtime it was on.
const PATIENCE: Duration = Duration::from_secs(20);

/// By which nodes say that they may not be what they were.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Doubt(Arc<OnceLock<Weak<Cluster>>>);

impl Doubt {
    pub(super) fn is_about(&self, cluster: &Arc<Cluster>) {
        self.0.get_or_init(|| Arc::downgrade(cluster));
    }

    pub(in super::super) fn raise(&self) {
        if let Some(cluster) = self.0.get().and_then(Weak::upgrade) {
            cluster.doubt(None);
        }
    }
}

/// The survey that is under way, and what it is to look at.
#[derive(Debug, Default)]
pub(super) struct Survey {
    task: Option<AbortHandle>,
    /// When it last gave a sign of life.
    alive: Option<Instant>,
    /// The atlas was doubted since it last asked.
    wanted: bool,
    /// Who knows best, most likely.
    hint: Option<Place>,
}

impl Cluster {
    /// The atlas may be old; whoever is named knows better.
    pub(super) fn doubt(self: &Arc<Self>, hint: Option<Place>) {
        self.maker.doubt.is_about(self);
        let mut survey = self.survey();
        survey.wanted = true;
        survey.hint = hint.or(survey.hint.take());
        let alive = survey.alive.is_some_and(|alive| alive.elapsed() < PATIENCE);
        if alive && survey.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        survey.alive = Some(Instant::now());
        survey.task = Some(runtime.spawn(run(Arc::downgrade(self))).abort_handle());
    }

    /// Takes up what the survey is to look at.
    fn take_up(&self) -> Option<Place> {
        let mut survey = self.survey();
        survey.wanted = false;
        survey.alive = Some(Instant::now());
        survey.hint.take()
    }

    /// Whether it ends here; if not, it goes on after a pause.
    fn is_settled(&self) -> bool {
        // While a node is away, its place may be taken at any time.
        let away = self.is_open();
        let mut survey = self.survey();
        let settled = !survey.wanted && !away;
        if settled {
            survey.task = None;
        }
        settled
    }
}

async fn run(cluster: Weak<Cluster>) {
    let (mut pause, began) = (FIRST_PAUSE, Instant::now());
    loop {
        let (nodes, limit) = {
            let Some(cluster) = cluster.upgrade() else { return };
            let hint = cluster.take_up();
            (cluster.who_knows(hint.as_ref()), cluster.limit())
        };
        let suspect = |failure: &StoreError| {
            if let Some(cluster) = cluster.upgrade() {
                cluster.suspect(failure);
            }
        };
        let map = ask(nodes, limit, suspect).await;
        {
            let Some(cluster) = cluster.upgrade() else { return };
            let longest = if began.elapsed() < QUICK { LONGEST_PAUSE } else { SLOW_PAUSE };
            let changed = cluster.surveyed(map);
            pause = if changed { FIRST_PAUSE } else { (pause * 2).min(longest) };
            cluster.nudge();
        }
        // Also before it ends, so that doubts in a row make few surveys.
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        match cluster.upgrade() {
            Some(cluster) if !cluster.is_settled() => {}
            _ => return,
        }
    }
}

/// The map of the first node that has one. The next one is asked where one fails, or
/// takes its time. `failed` hears the worst failure so far.
pub(super) async fn ask(
    nodes: Vec<ConnectionInfo>,
    limit: Duration,
    failed: impl Fn(&StoreError) + Send + Sync,
) -> Result<Map, StoreError> {
    let (mut asked, mut failure) = (JoinSet::new(), None);
    let mut nodes = nodes.into_iter();
    let first = async {
        loop {
            match nodes.next() {
                Some(node) => drop(asked.spawn(ask_node(node, limit))),
                None if asked.is_empty() => {
                    return Err(failure.take().unwrap_or_else(error::timed_out));
                }
                None => {}
            }
            let answer = match tokio::time::timeout(MOMENT, asked.join_next()).await {
                Ok(Some(answer)) => answer.unwrap_or_else(|_| Err(error::timed_out())),
                Ok(None) | Err(_) => continue,
            };
            match answer {
                Ok(map) => return Ok(map),
                // Something definite is worth more than silence.
                Err(error) => {
                    let worst = worse(failure.take(), error);
                    failed(&worst);
                    failure = Some(worst);
                }
            }
        }
    };
    let found = tokio::time::timeout(limit, first).await;
    found.unwrap_or_else(|_| Err(failure.unwrap_or_else(error::timed_out)))
}

fn worse(before: Option<StoreError>, now: StoreError) -> StoreError {
    let definite = |error: &StoreError| {
        matches!(error.kind(), StoreErrorKind::Denied | StoreErrorKind::Unsupported)
    };
    before.filter(|before| definite(before) && !definite(&now)).unwrap_or(now)
}

async fn ask_node(node: ConnectionInfo, limit: Duration) -> Result<Map, StoreError> {
    let mut question = Cmd::new();
    question.arg("CLUSTER").arg("SLOTS");
    let answer = ask_once(&node, &question, limit).await;
    let place = node.addr();
    let map = match answer.map_err(|cause| error::unreachable(place, 0, &cause))? {
        Value::ServerError(refusal) => {
            let kind = error::from_server(&refusal).kind();
            let detail = refusal.details().unwrap_or_default();
            return Err(match refusal.code() {
                "NOPERM" => StoreError::new(
                    kind,
                    format!("{place}: the user lacks the right to CLUSTER|SLOTS"),
                ),
                "ERR"
                    if detail.contains("cluster support disabled")
                        || detail.contains("unknown command") =>
                {
                    StoreError::new(
                        StoreErrorKind::Unsupported,
                        format!("{place} is not in cluster mode: use redis:// in its address"),
                    )
                }
                _ => StoreError::new(kind, format!("{place}: {}", error::from_server(&refusal))),
            });
        }
        answer => Map::read(answer, &host_of(&node))?,
    };
    if map.covered() == 0 {
        let text = format!("{place} knows of nobody who has slots of its cluster");
        return Err(StoreError::new(StoreErrorKind::Cluster, text));
    }
    Ok(map)
}

pub(super) fn host_of(node: &ConnectionInfo) -> String {
    use bb8_redis::redis::ConnectionAddr;
    match node.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    }
}

/// In no order, so that not all processes ask the same node.
pub(super) fn shuffled(mut nodes: Vec<ConnectionInfo>) -> Vec<ConnectionInfo> {
    nodes.shuffle(&mut rand::rng());
    nodes
}
