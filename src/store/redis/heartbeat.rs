//! The keeper's own line.

use std::sync::Arc;

use bb8_redis::redis::{Pipeline, Value};

use super::{error, handle::Shared, pool::Connection, reply, script::Call, step};
use crate::store::{Beat, BeatReply, BoxFuture, Heartbeat, StoreError, StoreErrorKind};

// So many that a batch is one write, so few that the server answers the first of
// many in time.
const CHUNK: usize = 512;

/// Renews and watches on a connection that nothing else can hold up.
pub(super) struct RedisHeartbeat {
    shared: Arc<Shared>,
    connection: Option<Connection>,
    /// A connection that is on its way, for longer than one beat waits if need be.
    opening: Option<BoxFuture<'static, Result<Connection, StoreError>>>,
}

impl RedisHeartbeat {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, connection: None, opening: None }
    }

    async fn chunk(&mut self, calls: &[Call]) -> Result<Vec<Value>, StoreError> {
        let limit = self.shared.gate.limit();
        let opened = tokio::time::timeout(limit, self.open()).await;
        opened.unwrap_or_else(|_| Err(error::timed_out()))?;
        let result = tokio::time::timeout(limit, self.ask(calls)).await;
        let result = result.unwrap_or_else(|_| Err(error::timed_out()));
        match &result {
            Ok(answers) if answers.iter().all(|a| matches!(a, Value::ServerError(_))) => {}
            Ok(_) => self.shared.gate.succeeded(),
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
                let connector = self.shared.hub.connector.clone();
                Box::pin(async move { Connection::open(&connector).await })
            });
            let opened = opening.await;
            self.opening = None;
            self.connection = Some(opened?);
        }
        Ok(())
    }

    async fn ask(&mut self, calls: &[Call]) -> Result<Vec<Value>, StoreError> {
        match self.send(calls).await {
            // It broke while it was idle: every operation may be sent again.
            Err(error) if error.kind() == StoreErrorKind::Disconnected => {
                self.connection = None;
                self.open().await?;
                self.send(calls).await
            }
            result => result,
        }
    }

    async fn send(&mut self, calls: &[Call]) -> Result<Vec<Value>, StoreError> {
        let limit = self.shared.gate.limit();
        let connection = self.connection.as_mut().ok_or_else(error::timed_out)?;
        let mut pipe = Pipeline::with_capacity(calls.len());
        for call in calls {
            pipe.add_command(call.by_hash());
        }
        let mut answers = connection.many(&pipe, limit).await?;
        let mut pipe = Pipeline::new();
        let mut again = Vec::new();
        for (place, answer) in answers.iter().enumerate() {
            if error::is_missing_script(answer) {
                again.push(place);
                pipe.add_command(calls[place].whole());
            }
        }
        if !again.is_empty() {
            for (place, answer) in again.into_iter().zip(connection.many(&pipe, limit).await?) {
                answers[place] = answer;
            }
        }
        Ok(answers)
    }

    fn call(&self, beat: &Beat) -> Call {
        let names = &self.shared.names;
        match beat {
            Beat::Renew { key, flight, lease } => step::renew(names, *key, *flight, *lease),
            Beat::Watch { key, join, mark } => {
                let look = crate::store::Join { look_only: true, ..join.clone() };
                step::join(names, *key, &look, Some(*mark))
            }
            Beat::Release { key, flight, token, status } => {
                step::release(names, *key, *flight, *token, *status)
            }
            Beat::Leave { key, waiter } => step::leave(names, *key, *waiter),
        }
    }
}

impl Heartbeat for RedisHeartbeat {
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>> {
        Box::pin(async move {
            let mut replies = Vec::with_capacity(batch.len());
            for beats in batch.chunks(CHUNK) {
                let calls: Vec<Call> = beats.iter().map(|beat| self.call(beat)).collect();
                match self.chunk(&calls).await {
                    Ok(answers) => {
                        let mut answers = answers.into_iter();
                        replies.extend(
                            beats.iter().map(|beat| {
                                read(beat, answers.next().ok_or_else(error::bad_reply)?)
                            }),
                        );
                    }
                    // The rest would wait as long, and be as late.
                    Err(error) => {
                        replies.resize_with(batch.len(), || Err(error.clone()));
                        break;
                    }
                }
            }
            for (beat, reply) in batch.iter().zip(&replies) {
                if let (Beat::Renew { key, lease, .. }, Ok(BeatReply::Renewed { .. })) =
                    (beat, reply)
                {
                    self.shared.budget.renewed(*key, *lease);
                }
            }
            let failed = replies.iter().filter_map(|reply| reply.as_ref().err());
            failed.for_each(|error| self.shared.gate.count(error));
            replies
        })
    }
}

fn read(beat: &Beat, answer: Value) -> Result<BeatReply, StoreError> {
    match beat {
        Beat::Renew { .. } => reply::renewed(answer),
        Beat::Watch { .. } => reply::joined(answer).map(BeatReply::Watched),
        Beat::Release { .. } | Beat::Leave { .. } => reply::gone(answer),
    }
}
