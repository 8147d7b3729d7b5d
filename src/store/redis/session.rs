//! One driver's dealings with one key.

use std::{future, sync::Arc, time::Duration};

use bb8_redis::redis::{Cmd, Value};
use bytes::Bytes;

use super::{error, handle::Shared, pieces, pool::Request, reply, script::Call, seat::Seat, step};
use crate::{
    id::{FlightRef, KeyDigest},
    store::{
        Abandoned, Append, Appended, BeatReply, BoxFuture, Finish, Finished, Join, Joined, Pieces,
        Pushed, Session, StoreError, StoreErrorKind,
    },
};

/// A session with a Redis server.
pub(super) struct RedisSession {
    shared: Arc<Shared>,
    key: KeyDigest,
    seat: Option<Seat>,
    /// The flight whose owner hears who comes to wait.
    owned: Option<FlightRef>,
}

impl RedisSession {
    pub(super) fn new(shared: Arc<Shared>, key: KeyDigest) -> Self {
        Self { shared, key, seat: None, owned: None }
    }

    /// Takes a seat and runs a script that may be sent again, in this order.
    async fn seated(&mut self, call: &Call) -> Result<Value, StoreError> {
        let shared = &self.shared;
        shared.hub.keep();
        shared.hub.line_opened().await;
        let seat = self.seat.get_or_insert_with(|| shared.hub.seat(self.key));
        match seat.send(call).await {
            // It broke while it was idle: no answer was processed, so ask again.
            Some(Err(error)) if error.kind() == StoreErrorKind::Disconnected => {}
            Some(answer) => return answer,
            None => {}
        }
        // The line subscribes the seat when it is up, and then says to look.
        shared.pool.send(Request::Script { before: None, call }, true).await
    }
}

impl Session for RedisSession {
    fn join(&mut self, join: Join) -> BoxFuture<'_, Result<Joined, StoreError>> {
        Box::pin(async move {
            let shared = Arc::clone(&self.shared);
            let call = step::join(&shared.names, self.key, &join, None);
            let joined = shared.run(async { reply::joined(self.seated(&call).await?) }).await;
            if matches!(joined, Ok(Joined::Own { .. })) {
                shared.budget.granted(self.key);
            }
            let waits = matches!(joined, Ok(Joined::Follow { .. } | Joined::Missing) | Err(_));
            if !waits && self.owned.is_none() {
                self.seat = None;
            }
            joined
        })
    }

    fn pushed(&mut self) -> BoxFuture<'_, Pushed> {
        Box::pin(async move {
            let Some(seat) = &self.seat else { return future::pending().await };
            loop {
                match seat.next().await {
                    // It says nothing to those who wait, and one of them caused it.
                    Pushed::Watched { flight } if self.owned != Some(flight) => {}
                    pushed => return pushed,
                }
            }
        })
    }

    fn fetch(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move {
            let shared = &self.shared;
            let mut get = Cmd::new();
            get.arg("GET").arg(shared.names.result(self.key));
            match shared.transfer(shared.bodies.send(Request::Command(&get), true)).await {
                Ok(Value::BulkString(bytes)) => Ok(Some(bytes.into())),
                Ok(Value::Nil) => Ok(None),
                Ok(_) => Err(error::bad_reply()),
                Err(error) => Err(error),
            }
        })
    }

    fn append(&mut self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        Box::pin(async move {
            let shared = &self.shared;
            let held = shared.budget.pieces(self.key, &append);
            let hold = held.inspect_err(|error| shared.gate.count(error))?;
            let call = step::append(&shared.names, self.key, &append);
            let bytes: usize = append.pieces.iter().map(Bytes::len).sum();
            let request = Request::Script { before: None, call: &call };
            let answer = if bytes > step::PUSH_MAX {
                shared.transfer(shared.bodies.send(request, true)).await
            } else {
                shared.run(shared.pool.send(request, true)).await
            };
            let appended = match answer {
                // A server that is full is there: the breaker does not hear of it.
                Ok(answer) => reply::appended(answer).inspect_err(|error| shared.gate.count(error)),
                Err(error) => Err(error),
            };
            match &appended {
                Ok(appended) => hold.appended(self.key, &append, *appended),
                Err(error) => hold.failed(error),
            }
            appended
        })
    }

    fn read(&mut self, flight: FlightRef, from: u64) -> BoxFuture<'_, Result<Pieces, StoreError>> {
        Box::pin(async move {
            let shared = &self.shared;
            let range = pieces::range(shared.names.stream(self.key), flight, from);
            let read = shared.bodies.send(Request::Command(&range), true);
            shared.transfer(async { pieces::read(read.await?, flight, from) }).await
        })
    }

    fn listen(
        &mut self,
        flight: FlightRef,
        lease: Duration,
    ) -> BoxFuture<'_, Result<BeatReply, StoreError>> {
        Box::pin(async move {
            let shared = Arc::clone(&self.shared);
            self.owned = Some(flight);
            let call = step::renew(&shared.names, self.key, flight, lease);
            shared.run(async { reply::renewed(self.seated(&call).await?) }).await
        })
    }

    fn deafen(&mut self) {
        (self.seat, self.owned) = (None, None);
    }

    fn finish(&mut self, finish: Finish) -> BoxFuture<'_, Result<Finished, StoreError>> {
        Box::pin(async move {
            let shared = &self.shared;
            let record = finish.record.as_ref().filter(|_| finish.seal.is_none());
            let hold = record.map(|record| shared.budget.record(record, finish.keep)).transpose();
            let hold = hold.inspect_err(|error| shared.gate.count(error))?;
            let call = step::finish(&shared.names, self.key, &finish);
            let finished = match record.filter(|record| record.len() > step::INLINE_MAX) {
                None => {
                    let request = Request::Script { before: None, call: &call };
                    shared.run(shared.pool.send(request, true)).await
                }
                Some(record) => {
                    let mut stage = Cmd::new();
                    stage
                        .arg("SET")
                        .arg(shared.names.staged(self.key, finish.flight.id))
                        .arg(&record[..])
                        .arg("PX")
                        .arg(step::millis(finish.keep));
                    let request = Request::Script { before: Some(&stage), call: &call };
                    shared.transfer(shared.bodies.send(request, true)).await
                }
            };
            let finished = finished.and_then(reply::finished);
            match (hold, &finished) {
                (Some(hold), Ok(Finished::Accepted)) => hold.kept(self.key),
                (Some(hold), Ok(_)) => hold.give_back(),
                (Some(hold), Err(error)) => hold.failed(error),
                (None, _) => {}
            }
            if matches!(finished, Ok(Finished::Accepted)) {
                shared.budget.ended(self.key, finish.flight, finish.keep);
            }
            finished
        })
    }

    fn abandon(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<Abandoned, StoreError>> {
        Box::pin(async move {
            let shared = &self.shared;
            let call = step::abandon(&shared.names, self.key, flight);
            // Sent once: after silence the driver drops its run and releases.
            let request = Request::Script { before: None, call: &call };
            reply::abandoned(shared.run(shared.pool.send(request, false)).await?)
        })
    }

    fn forget(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let shared = &self.shared;
            let call = step::forget(&shared.names, self.key);
            let request = Request::Script { before: None, call: &call };
            reply::gone(shared.run(shared.pool.send(request, true)).await?).map(drop)
        })
    }
}
