//! One driver's dealings with one key.

use std::{future, sync::Arc};

use bb8_redis::redis::{Cmd, Value};
use bytes::Bytes;

use super::{error, handle::Shared, pool::Request, reply, seat::Seat, step};
use crate::{
    id::{FlightRef, KeyDigest},
    store::{
        Abandoned, BoxFuture, Finish, Finished, Join, Joined, Pushed, Session, StoreError,
        StoreErrorKind,
    },
};

/// A session with a Redis server.
pub(super) struct RedisSession {
    shared: Arc<Shared>,
    key: KeyDigest,
    seat: Option<Seat>,
}

impl RedisSession {
    pub(super) fn new(shared: Arc<Shared>, key: KeyDigest) -> Self {
        Self { shared, key, seat: None }
    }

    async fn join_once(&mut self, join: &Join) -> Result<Joined, StoreError> {
        let shared = &self.shared;
        let call = step::join(&shared.names, self.key, join, None);
        shared.hub.keep();
        shared.hub.line_opened().await;
        let seat = self.seat.get_or_insert_with(|| shared.hub.seat(self.key));
        let answer = match seat.join(&call).await {
            // It broke while it was idle: no answer was processed, so ask again.
            Some(Err(error)) if error.kind() == StoreErrorKind::Disconnected => None,
            answer => answer,
        };
        let answer = match answer {
            Some(answer) => answer?,
            // The line subscribes the seat when it is up, and then says to look.
            None => {
                let request = Request::Script { before: None, call: &call };
                shared.pool.send(request, true).await?
            }
        };
        reply::joined(answer)
    }
}

impl Session for RedisSession {
    fn join(&mut self, join: Join) -> BoxFuture<'_, Result<Joined, StoreError>> {
        Box::pin(async move {
            let shared = Arc::clone(&self.shared);
            let joined = shared.run(self.join_once(&join)).await;
            if !matches!(joined, Ok(Joined::Follow { .. } | Joined::Missing) | Err(_)) {
                self.seat = None;
            }
            joined
        })
    }

    fn pushed(&mut self) -> BoxFuture<'_, Pushed> {
        Box::pin(async move {
            match &self.seat {
                Some(seat) => seat.next().await,
                None => future::pending().await,
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

    fn finish(&mut self, finish: Finish) -> BoxFuture<'_, Result<Finished, StoreError>> {
        Box::pin(async move {
            let shared = &self.shared;
            let call = step::finish(&shared.names, self.key, &finish);
            let large = finish.record.filter(|record| record.len() > step::INLINE_MAX);
            let Some(record) = large else {
                let request = Request::Script { before: None, call: &call };
                return reply::finished(shared.run(shared.pool.send(request, true)).await?);
            };
            let mut stage = Cmd::new();
            stage
                .arg("SET")
                .arg(shared.names.staged(self.key, finish.flight.id))
                .arg(&record[..])
                .arg("PX")
                .arg(step::millis(finish.keep));
            let request = Request::Script { before: Some(&stage), call: &call };
            reply::finished(shared.transfer(shared.bodies.send(request, true)).await?)
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
