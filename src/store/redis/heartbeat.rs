//! The keeper's own line.

use std::sync::Arc;

use bb8_redis::redis::Value;

use super::{
    budget::Budget, error, keys::Names, pool::Connection, reply, script::Call, shard::Shard, step,
};
use crate::store::{Beat, BeatReply, BoxFuture, Heartbeat, Join, StoreError, StoreErrorKind};

// So many that a batch is one write, so few that the server answers the first of
// many in time.
const CHUNK: usize = 512;

/// A connection to one server that nothing else can hold up.
pub(super) struct KeeperLine {
    shard: Arc<Shard>,
    connection: Option<Connection>,
    /// A connection that is on its way, for longer than one beat waits if need be.
    opening: Option<BoxFuture<'static, Result<Connection, StoreError>>>,
}

impl KeeperLine {
    pub(super) fn new(shard: Arc<Shard>) -> Self {
        Self { shard, connection: None, opening: None }
    }

    /// Sends scripts, each of which may be sent again, and answers each by itself;
    /// `asking`: of a node that their slots are on their way to.
    pub(super) async fn ask(
        &mut self,
        calls: &[Call],
        asking: bool,
    ) -> Vec<Result<Value, StoreError>> {
        let mut replies = Vec::with_capacity(calls.len());
        for chunk in calls.chunks(CHUNK) {
            match self.chunk(chunk, asking).await {
                Ok(answers) => replies.extend(answers.into_iter().map(Ok)),
                // The rest would wait as long, and be as late.
                Err(error) => {
                    replies.resize_with(calls.len(), || Err(error.clone()));
                    break;
                }
            }
        }
        replies.resize_with(calls.len(), || Err(error::bad_reply()));
        replies
    }

    async fn chunk(&mut self, calls: &[Call], asking: bool) -> Result<Vec<Value>, StoreError> {
        let limit = self.shard.gate.limit();
        let opened = tokio::time::timeout(limit, self.open()).await;
        opened.unwrap_or_else(|_| Err(error::timed_out()))?;
        let result = tokio::time::timeout(limit, self.put(calls, asking)).await;
        let result = result.unwrap_or_else(|_| Err(error::timed_out()));
        match &result {
            Ok(answers) if answers.iter().all(|a| matches!(a, Value::ServerError(_))) => {}
            Ok(_) => self.shard.gate.succeeded(),
            Err(_) => self.connection = None,
        }
        result
    }

    /// Sees to it that there is a connection. Cancel-safe: an opening one is kept.
    async fn open(&mut self) -> Result<(), StoreError> {
        if self.connection.take_if(|connection| connection.is_broken()).is_some()
            || self.connection.is_none()
        {
            let opening = self.opening.get_or_insert_with(|| {
                let connector = self.shard.connector.clone();
                Box::pin(async move { Connection::open(&connector).await })
            });
            let opened = opening.await;
            self.opening = None;
            self.connection = Some(opened?);
        }
        Ok(())
    }

    async fn put(&mut self, calls: &[Call], asking: bool) -> Result<Vec<Value>, StoreError> {
        match self.send(calls, asking).await {
            // It broke while it was idle: every operation may be sent again.
            Err(error) if error.kind() == StoreErrorKind::Disconnected => {
                self.connection = None;
                self.open().await?;
                self.send(calls, asking).await
            }
            result => result,
        }
    }

    async fn send(&mut self, calls: &[Call], asking: bool) -> Result<Vec<Value>, StoreError> {
        let limit = self.shard.gate.limit();
        let connection = self.connection.as_mut().ok_or_else(error::timed_out)?;
        let by_hash = calls.iter().map(Call::by_hash).collect();
        let mut answers = connection.each(by_hash, asking, limit).await?;
        let missing = |(place, answer)| error::is_missing_script(answer).then_some(place);
        let again: Vec<usize> = answers.iter().enumerate().filter_map(missing).collect();
        if !again.is_empty() {
            let whole = again.iter().map(|place| calls[*place].whole()).collect();
            for (place, answer) in
                again.into_iter().zip(connection.each(whole, asking, limit).await?)
            {
                answers[place] = answer;
            }
        }
        Ok(answers)
    }
}

/// Renews and watches on one server.
pub(super) struct RedisHeartbeat {
    shard: Arc<Shard>,
    budget: Arc<Budget>,
    line: KeeperLine,
}

impl RedisHeartbeat {
    pub(super) fn new(shard: Arc<Shard>, budget: Arc<Budget>) -> Self {
        Self { line: KeeperLine::new(Arc::clone(&shard)), shard, budget }
    }
}

impl Heartbeat for RedisHeartbeat {
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>> {
        Box::pin(async move {
            let calls: Vec<Call> = batch.iter().map(|beat| call(&self.shard.names, beat)).collect();
            let answers = self.line.ask(&calls, false).await;
            let replies = batch.iter().zip(answers).map(|(beat, answer)| read(beat, answer?));
            let replies: Vec<_> = replies.collect();
            note_renewals(&self.budget, batch, &replies);
            let failed = replies.iter().filter_map(|reply| reply.as_ref().err());
            failed.for_each(|error| self.shard.gate.count(error));
            replies
        })
    }
}

/// The script of one operation.
pub(super) fn call(names: &Names, beat: &Beat) -> Call {
    match beat {
        Beat::Renew { key, flight, lease } => step::renew(names, *key, *flight, *lease),
        Beat::Watch { key, join, mark } => {
            let look = Join { look_only: true, ..join.clone() };
            step::join(names, *key, &look, None, Some(*mark), 0)
        }
        Beat::Release { key, flight, token, status } => {
            step::release(names, *key, *flight, *token, *status)
        }
        Beat::Leave { key, waiter } => step::leave(names, *key, *waiter),
    }
}

/// What was renewed stays in the server for longer.
pub(super) fn note_renewals(
    budget: &Budget,
    batch: &[Beat],
    replies: &[Result<BeatReply, StoreError>],
) {
    for (beat, reply) in batch.iter().zip(replies) {
        if let (Beat::Renew { key, lease, .. }, Ok(BeatReply::Renewed { .. })) = (beat, reply) {
            budget.renewed(*key, *lease);
        }
    }
}

/// What its answer says.
pub(super) fn read(beat: &Beat, answer: Value) -> Result<BeatReply, StoreError> {
    match beat {
        Beat::Renew { .. } => reply::renewed(answer),
        Beat::Watch { .. } => reply::joined(answer).map(BeatReply::Watched),
        Beat::Release { .. } | Beat::Leave { .. } => reply::gone(answer),
    }
}
