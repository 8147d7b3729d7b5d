//! The masters of a cluster, and what is known of who has what.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::AtomicU64,
    },
    time::Duration,
};

use bb8_redis::redis::ConnectionInfo;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{
    ask::is_doubtful,
    atlas::{Atlas, Maker, Node},
    departed::Departed,
    map::Map,
    moving::Moving,
    slot::slot_of_flight,
    survey::{self, Doubt, Survey},
    tokens::Counting,
};
use crate::store::{
    StoreError, StoreErrorKind,
    redis::{
        address::{Address, Place},
        error,
        gate::Gate,
        shard::{Plan, Shard},
    },
};

/// The masters of a cluster.
pub(in super::super) struct Cluster {
    pub(super) maker: Maker,
    /// The nodes in the address.
    seeds: Arc<[ConnectionInfo]>,
    atlas: RwLock<Atlas>,
    survey: Mutex<Survey>,
    /// How many surveys there were, and what came of the last.
    surveys: watch::Sender<(u64, Option<StoreError>)>,
    /// The way to an atlas, where there is none.
    pub(super) gate: Gate,
    pub(super) moving: Moving,
    pub(super) prefetched: Arc<AtomicU64>,
    pub(super) counting: Mutex<Counting>,
}

impl Cluster {
    pub(in super::super) fn new(
        plan: Plan,
        address: Address,
        seeds: Arc<[ConnectionInfo]>,
    ) -> Self {
        let errors = Arc::clone(&plan.errors);
        let gate = Gate::new(plan.operation_limit, address.to_string(), errors);
        Self {
            maker: Maker { plan, address, doubt: Doubt::default(), departed: Departed::default() },
            seeds,
            atlas: RwLock::new(Atlas::new()),
            survey: Mutex::default(),
            surveys: watch::Sender::new((0, None)),
            gate,
            moving: Moving::default(),
            prefetched: Arc::default(),
            counting: Mutex::default(),
        }
    }

    /// The node that has a slot, where that is known.
    pub(super) fn node_now(&self, slot: u16) -> Option<Node> {
        self.read().node(slot).cloned()
    }

    /// Whether nothing is known yet.
    pub(super) fn is_blank(&self) -> bool {
        self.read().is_blank()
    }

    /// The node at a place, for a slot on its way there.
    pub(super) fn node_at(&self, place: &Place) -> Option<Node> {
        self.write().at(place, &self.maker)
    }

    pub(super) fn has(&self, shard: &Arc<Shard>) -> bool {
        self.read().nodes().iter().any(|node| Arc::ptr_eq(&node.shard, shard))
    }

    /// Asks those that are away if they are back, also where nobody has a question.
    pub(super) fn nudge(&self) {
        let nodes = self.read().nodes().to_vec();
        nodes.iter().for_each(|node| node.shard.nudge());
    }

    /// A slot has gone elsewhere.
    pub(super) fn moved(self: &Arc<Self>, slot: u16, place: &Place) {
        self.write().put(slot, place, &self.maker);
        self.doubt(Some(place.clone()));
    }

    /// Waits for a survey, and fails where it found nothing.
    pub(super) async fn surveyed_by(self: &Arc<Self>, end: Instant) -> Result<(), StoreError> {
        let mut surveys = self.surveys.subscribe();
        let before = surveys.borrow_and_update().0;
        self.doubt(None);
        if !self.read().is_blank() {
            return Ok(());
        }
        let surveyed = timeout_at(end, surveys.wait_for(|(number, _)| *number > before)).await;
        match surveyed {
            Ok(Ok(outcome)) => outcome.1.clone().map_or(Ok(()), Err),
            // What was heard before, or of another node, says more than silence.
            _ => Err(self.surveys.borrow().1.clone().unwrap_or_else(error::timed_out)),
        }
    }

    /// A node that a survey asks has failed; others may still answer.
    pub(super) fn suspect(&self, failure: &StoreError) {
        self.surveys.send_modify(|(_, outcome)| *outcome = Some(failure.clone()));
    }

    /// Takes in what a survey found; whether that is news.
    pub(super) fn surveyed(&self, map: Result<Map, StoreError>) -> bool {
        let (changed, failure) = match map {
            Ok(map) => {
                self.gate.probed();
                (self.redraw(map), None)
            }
            Err(error) => {
                tracing::debug!(address = %self, %error, "no node says who has which slots");
                (false, Some(error))
            }
        };
        self.surveys.send_modify(|(number, outcome)| {
            *number += 1;
            *outcome = failure;
        });
        changed
    }

    /// Whoever listens at a server for keys that it has no more is told to look.
    fn redraw(&self, map: Map) -> bool {
        let (old, changed) = {
            let mut atlas = self.write();
            let drawn = atlas.redraw(map, &self.maker);
            let changed = !atlas.is_same(&drawn);
            (std::mem::replace(&mut *atlas, drawn), changed)
        };
        if changed {
            for node in old.nodes() {
                node.shard.hub.displace(|key| {
                    let now = self.node_now(slot_of_flight(key));
                    now.is_none_or(|now| !Arc::ptr_eq(&now.shard, &node.shard))
                });
            }
        }
        changed
    }

    /// Who is asked, first those who know best.
    pub(super) fn who_knows(&self, hint: Option<&Place>) -> Vec<ConnectionInfo> {
        let info = |place: &Place| self.maker.address.of_node(place.clone()).info;
        let atlas = self.read();
        let (away, there): (Vec<_>, Vec<_>) =
            atlas.nodes().iter().partition(|node| node.shard.gate.is_open());
        let masters = there.iter().map(|node| info(&node.place)).collect();
        let others = atlas.replicas().iter().map(info).chain(self.seeds.iter().cloned()).collect();
        let away = away.iter().map(|node| info(&node.place)).collect();
        let hint = hint.into_iter().map(info);
        hint.chain([masters, others, away].into_iter().flat_map(survey::shuffled)).collect()
    }

    /// Makes sure of all masters that can be reached, and warms their push connections.
    pub(in super::super) async fn check(self: &Arc<Self>) -> Result<(), StoreError> {
        let limit = self.limit();
        let surveyed = self.surveyed_by(Instant::now() + limit).await;
        surveyed.map_err(|error| match error.kind() {
            StoreErrorKind::TimedOut => {
                let text = format!("{self} did not answer within {limit:?}");
                StoreError::new(StoreErrorKind::TimedOut, text)
            }
            _ => error,
        })?;
        let nodes = self.read().nodes().to_vec();
        let checks: Vec<_> = nodes
            .iter()
            .map(|node| {
                let connector = node.shard.connector.clone();
                tokio::spawn(async move { connector.check().await })
            })
            .collect();
        let (mut failure, mut passed) = (None, false);
        for (node, check) in nodes.iter().zip(checks) {
            match check.await.unwrap_or_else(|_| Err(error::timed_out())) {
                Ok(()) => {
                    passed = true;
                    node.shard.hub.keep();
                }
                Err(error) if is_doubtful(error.kind()) => {
                    // One of many that is away keeps nobody from starting.
                    tracing::warn!(%error, "a server of the cluster does not answer");
                    failure = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        failure.filter(|_| !passed).map_or(Ok(()), Err)
    }

    /// All masters that are known, asked for where none is.
    pub(in super::super) async fn masters(self: &Arc<Self>) -> Result<Vec<Arc<Shard>>, StoreError> {
        if self.is_blank() {
            self.surveyed_by(Instant::now() + self.limit()).await?;
        }
        Ok(self.read().nodes().iter().map(|node| Arc::clone(&node.shard)).collect())
    }

    /// Whether any part of it does not answer.
    pub(in super::super) fn is_open(&self) -> bool {
        self.gate.is_open() || self.read().nodes().iter().any(|node| node.shard.gate.is_open())
    }

    /// How long a survey may take.
    pub(super) fn limit(&self) -> Duration {
        self.maker.plan.connect_limit
    }

    pub(super) fn operation_limit(&self) -> Duration {
        self.gate.limit()
    }

    pub(super) fn count(&self, error: &StoreError) {
        self.gate.count(error);
    }

    pub(super) fn survey(&self) -> MutexGuard<'_, Survey> {
        self.survey.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Atlas> {
        self.atlas.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Atlas> {
        self.atlas.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The nodes in the address, without user and password.
impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.maker.address.fmt(f)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({self})")
    }
}
