//! Sends a question to the server that has its key, wherever that is by now.

use std::{sync::Arc, time::Duration};

use bb8_redis::redis::Value;
use tokio::time::{Instant, sleep};

use super::{
    atlas::Node,
    members::Cluster,
    redirect::{Heard, hear},
    slot::slot_of_flight,
};
use crate::store::{StoreError, StoreErrorKind, redis::question::Question};

/// So often a question goes elsewhere before it is given up.
const HOPS: u32 = 8;
/// The part of the limit that a try must have left.
const LEAST: u32 = 4;
/// Between two tries where a slot is on its way; longer each time.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(40);

impl Cluster {
    /// Asks the server that has the key, within the limit.
    pub(in super::super) async fn ask(
        self: &Arc<Self>,
        mut question: Question<'_>,
    ) -> Result<Value, StoreError> {
        let slot = slot_of_flight(question.key);
        let request = question.request;
        let limit = question.limit(&self.gate);
        let end = Instant::now() + limit;
        let (mut hops, mut pause, mut other) = (0, FIRST_PAUSE, None);
        loop {
            let (node, asking) = match other.take() {
                Some(node) => (node, true),
                None => (self.node(slot, end).await?, false),
            };
            question.request = if asking { request.asking() } else { request };
            let left = end.saturating_duration_since(Instant::now());
            // What is late before it begins says nothing of the server.
            if left < limit / LEAST {
                return Err(self.give_up());
            }
            let read = |answer| hear(answer, &node.place.0);
            let heard = node.shard.asked(&mut question, left, read).await;
            let heard = heard.inspect_err(|error| {
                if is_doubtful(error.kind()) {
                    self.doubt(None);
                }
            })?;
            hops += 1;
            let wait = match heard {
                Heard::Answer(answer) => {
                    self.moving.is_over(slot);
                    return Ok(answer);
                }
                Heard::Moved(place) => {
                    self.moved(slot, &place);
                    // The first time at once: it may be on its way back the next.
                    hops > 2
                }
                Heard::Ask(place) => {
                    other = self.node_at(&place);
                    other.is_none()
                }
                Heard::TryAgain => {
                    if self.moving.is_known(slot) {
                        return Err(self.give_up());
                    }
                    // It waits for a slot, not for its turn.
                    hops -= 1;
                    if end < Instant::now() + pause + limit / LEAST {
                        self.moving.note(slot);
                    }
                    true
                }
                Heard::Demoted => {
                    self.doubt(None);
                    true
                }
            };
            if hops >= HOPS {
                self.moving.note(slot);
                return Err(self.give_up());
            }
            if wait {
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    fn give_up(&self) -> StoreError {
        let error = unsettled();
        self.gate.count(&error);
        error
    }

    /// Who has a slot; the atlas is waited for where there is none.
    pub(super) async fn node(
        self: &Arc<Self>,
        slot: u16,
        end: Instant,
    ) -> Result<Node, StoreError> {
        if let Some(node) = self.node_now(slot) {
            return Ok(node);
        }
        self.doubt(None);
        if !self.is_blank() {
            let why = "no server of the cluster has this part of the keys just now";
            let error = StoreError::new(StoreErrorKind::Cluster, why);
            self.gate.count(&error);
            return Err(error);
        }
        // The survey goes on beside it, and closes the breaker.
        if self.gate.is_open() {
            return Err(self.gate.refused());
        }
        let left = end.saturating_duration_since(Instant::now());
        let found = self.gate.run(false, left, async {
            self.surveyed_by(end).await?;
            self.node_now(slot).ok_or_else(unsettled)
        });
        found.await
    }
}

/// Whether a failure says that the atlas may be old.
pub(super) fn is_doubtful(kind: StoreErrorKind) -> bool {
    matches!(
        kind,
        StoreErrorKind::TimedOut
            | StoreErrorKind::Disconnected
            | StoreErrorKind::Connect
            | StoreErrorKind::ReadOnly
            | StoreErrorKind::Loading
            | StoreErrorKind::Cluster
    )
}

pub(super) fn unsettled() -> StoreError {
    let why = "the servers of the cluster are moving this part of the keys";
    StoreError::new(StoreErrorKind::Cluster, why)
}
