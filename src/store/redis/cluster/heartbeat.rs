//! The keeper's lines, one to each server of a cluster.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bb8_redis::redis::Value;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout_at},
};

use super::{
    ask::{is_doubtful, unsettled},
    atlas::Node,
    members::Cluster,
    redirect::{Heard, hear},
    slot::slot_of_flight,
};
use crate::{
    id::KeyDigest,
    store::{
        Beat, BeatReply, BoxFuture, Heartbeat, StoreError,
        redis::{
            address::Place,
            budget::Budget,
            error,
            heartbeat::{self, KeeperLine},
            script::Call,
            shard::Shard,
            step,
        },
    },
};

/// So often what has gone elsewhere is sent again in one beat.
const ROUNDS: u32 = 4;
/// Before that, where a slot is on its way.
const PAUSE: Duration = Duration::from_millis(10);
/// The part of the limit for which a server is waited for that did not answer the last
/// beat.
const MOMENT: u32 = 5;

/// Renews and watches on the servers of a cluster, side by side.
pub(in super::super) struct ClusterHeartbeat {
    cluster: Arc<Cluster>,
    budget: Arc<Budget>,
    lines: HashMap<Place, Line>,
}

/// A line, which a task keeps: what does not answer in time holds up no other.
struct Line {
    shard: Arc<Shard>,
    orders: mpsc::Sender<Order>,
    /// Whether it answered when it was last asked.
    is_well: Arc<AtomicBool>,
}

struct Order {
    calls: Vec<Call>,
    asking: bool,
    answered: oneshot::Sender<Vec<Result<Value, StoreError>>>,
}

/// What goes to one server: which beats, and to a slot that is on its way there or not.
struct Batch {
    node: Node,
    asking: bool,
    beats: Vec<usize>,
}

/// Whether a beat is cut down to its record, since its slot is on its way.
type Cut = Vec<bool>;

impl Line {
    fn new(node: &Node) -> Self {
        let (orders, mut taken) = mpsc::channel::<Order>(1);
        let is_well = Arc::new(AtomicBool::new(!node.shard.gate.is_open()));
        let (well, mut line) = (Arc::clone(&is_well), KeeperLine::new(Arc::clone(&node.shard)));
        tokio::spawn(async move {
            while let Some(Order { calls, asking, answered }) = taken.recv().await {
                // What it was for is long over.
                if answered.is_closed() {
                    continue;
                }
                let answers = line.ask(&calls, asking).await;
                well.store(answers.iter().any(Result::is_ok), Ordering::Relaxed);
                // Nobody waits any more where it took too long.
                let _ = answered.send(answers);
            }
        });
        Self { shard: Arc::clone(&node.shard), orders, is_well }
    }
}

impl ClusterHeartbeat {
    pub(in super::super) fn new(cluster: Arc<Cluster>, budget: Arc<Budget>) -> Self {
        Self { cluster, budget, lines: HashMap::new() }
    }

    /// Sends each batch to its server, and answers for each beat.
    async fn send(
        &mut self,
        batches: Vec<Batch>,
        batch: &[Beat],
        cut: &Cut,
    ) -> Vec<(usize, Place, Result<Value, StoreError>)> {
        let limit = self.cluster.operation_limit();
        let start = Instant::now();
        let mut sent = Vec::with_capacity(batches.len());
        for Batch { node, asking, beats } in batches {
            let names = &node.shard.names;
            let call = |&beat: &usize| match batch[beat] {
                Beat::Renew { key, flight, lease } if cut[beat] => {
                    step::renew_alone(names, key, flight, lease)
                }
                _ => heartbeat::call(names, &batch[beat]),
            };
            let calls = beats.iter().map(call).collect();
            let line = self.lines.entry(node.place.clone()).or_insert_with(|| Line::new(&node));
            let is_well = line.is_well.load(Ordering::Relaxed);
            let (answered, answers) = oneshot::channel();
            // One that is still at the last beat cannot take this one.
            let taken = line.orders.try_send(Order { calls, asking, answered }).is_ok();
            if !taken {
                line.is_well.store(false, Ordering::Relaxed);
            }
            // A connection may have to be opened first.
            let patience = if is_well { 2 * limit } else { limit / MOMENT };
            sent.push((node, beats, answers, start + patience));
        }
        let mut replies = Vec::new();
        for (node, beats, answers, end) in sent {
            let answers = timeout_at(end, answers).await;
            let mut answers = match answers {
                Ok(Ok(answers)) => answers.into_iter(),
                _ => Vec::new().into_iter(),
            };
            for beat in beats {
                let answer = answers.next().unwrap_or_else(|| Err(error::timed_out()));
                replies.push((beat, node.place.clone(), answer));
            }
        }
        replies
    }

    /// Sorts beats by the server that has their keys.
    fn sort(
        &self,
        beats: impl IntoIterator<Item = usize>,
        batch: &[Beat],
        replies: &mut [Result<BeatReply, StoreError>],
    ) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        for beat in beats {
            match self.cluster.node_now(slot_of_flight(key(&batch[beat]))) {
                Some(node) => put(&mut batches, node, false, beat),
                None => {
                    self.cluster.doubt(None);
                    replies[beat] = Err(unsettled());
                }
            }
        }
        batches
    }

    async fn beat(&mut self, batch: &[Beat]) -> Vec<Result<BeatReply, StoreError>> {
        // Nodes that left take their lines with them.
        let cluster = Arc::clone(&self.cluster);
        self.lines.retain(|_, line| cluster.has(&line.shard));
        let mut replies: Vec<Result<BeatReply, StoreError>> =
            batch.iter().map(|_| Err(unsettled())).collect();
        let mut batches = self.sort(0..batch.len(), batch, &mut replies);
        let mut cut: Cut = vec![false; batch.len()];
        for round in 1..=ROUNDS {
            let (mut moved, mut asked) = (Vec::new(), Vec::new());
            let mut later = false;
            for (beat, place, answer) in self.send(batches, batch, &cut).await {
                match answer.and_then(|answer| hear(answer, &place.0)) {
                    Ok(Heard::Answer(answer)) => {
                        replies[beat] = heartbeat::read(&batch[beat], answer);
                    }
                    Ok(Heard::Moved(place)) => {
                        self.cluster.moved(slot_of_flight(key(&batch[beat])), &place);
                        moved.push(beat);
                    }
                    Ok(Heard::Ask(place)) => {
                        asked.extend(self.cluster.node_at(&place).map(|node| (node, beat)))
                    }
                    // A lease is kept by its record alone; the others wait.
                    Ok(Heard::TryAgain) => {
                        let renews = matches!(batch[beat], Beat::Renew { .. });
                        later |= !renews || cut[beat];
                        cut[beat] |= renews;
                        moved.push(beat);
                    }
                    Ok(Heard::Demoted) => {
                        self.cluster.doubt(None);
                        moved.push(beat);
                        later = true;
                    }
                    Err(error) => {
                        if is_doubtful(error.kind()) {
                            self.cluster.doubt(None);
                        }
                        replies[beat] = Err(error);
                    }
                }
            }
            if round == ROUNDS || (moved.is_empty() && asked.is_empty()) {
                break;
            }
            if later {
                sleep(PAUSE).await;
            }
            batches = self.sort(moved, batch, &mut replies);
            asked.into_iter().for_each(|(node, beat)| put(&mut batches, node, true, beat));
        }
        heartbeat::note_renewals(&self.budget, batch, &replies);
        let failed = replies.iter().filter_map(|reply| reply.as_ref().err());
        failed.for_each(|error| self.cluster.count(error));
        replies
    }
}

fn put(batches: &mut Vec<Batch>, node: Node, asking: bool, beat: usize) {
    let same =
        |batch: &&mut Batch| batch.asking == asking && Arc::ptr_eq(&batch.node.shard, &node.shard);
    match batches.iter_mut().find(same) {
        Some(batch) => batch.beats.push(beat),
        None => batches.push(Batch { node, asking, beats: vec![beat] }),
    }
}

fn key(beat: &Beat) -> KeyDigest {
    match beat {
        Beat::Renew { key, .. }
        | Beat::Watch { key, .. }
        | Beat::Release { key, .. }
        | Beat::Leave { key, .. } => *key,
    }
}

impl Heartbeat for ClusterHeartbeat {
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>> {
        Box::pin(self.beat(batch))
    }
}
