//! One driver's dealings with one key.

use std::{future, sync::Arc, time::Duration};

use bb8_redis::redis::{Cmd, Value};
use bytes::Bytes;

use super::{
    error,
    handle::Shared,
    pieces,
    pool::{Before, Request},
    question::{Question, Way},
    reply,
    seat::Seat,
    step, vigil,
};
use crate::{
    id::{FlightRef, KeyDigest},
    store::{
        Abandoned, Append, Appended, Badge, BeatReply, BoxFuture, Finish, Finished, Held, Join,
        Joined, Pieces, Pushed, Session, StoreError,
    },
};

/// A session with a Redis server.
pub(super) struct RedisSession {
    shared: Arc<Shared>,
    key: KeyDigest,
    seat: Option<Seat>,
    /// The flight whose owner hears who comes to wait.
    owned: Option<FlightRef>,
    badge: Badge,
}

impl RedisSession {
    pub(super) fn new(shared: Arc<Shared>, key: KeyDigest) -> Self {
        Self { shared, key, seat: None, owned: None, badge: Badge::default() }
    }

    async fn ask(&self, request: Request<'_>, way: Way<'_>) -> Result<Value, StoreError> {
        self.shared.ask(Question { key: self.key, request, way }).await
    }

    /// Takes a seat and asks, in this order.
    async fn seated(&mut self, request: Request<'_>) -> Result<Value, StoreError> {
        let (key, way) = (self.key, Way::Seated(&mut self.seat));
        self.shared.ask(Question { key, request, way }).await
    }

    /// How many have joined a flight, and its pieces, by its record, of one that runs: after
    /// a seat is taken.
    async fn state(&mut self, flight: FlightRef) -> Result<Option<(u32, u64)>, StoreError> {
        let ask = step::state(&self.shared.names, self.key);
        let state = self.seated(Request::command(&ask)).await?;
        Ok(reply::runs(state, flight))
    }

    /// Hears of a flight that runs. What happened between its `join` and the subscription
    /// nobody heard: then it is to be looked at.
    async fn follow(&mut self, flight: FlightRef, pieces: u64) {
        if self.seat.as_ref().is_some_and(Seat::is_up) {
            return;
        }
        if !matches!(self.state(flight).await, Ok(Some((_, there))) if there <= pieces)
            && let Some(seat) = &self.seat
        {
            seat.doubt();
        }
    }

    /// Counts what there was no room for.
    fn room<T>(&self, held: Result<T, StoreError>) -> Result<T, StoreError> {
        held.inspect_err(|error| self.shared.errors.count(error.kind()))
    }

    /// Counts an answer that could not be understood: whoever gave it is there.
    fn understood<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        answer.inspect_err(|error| self.shared.errors.count(error.kind()))
    }
}

impl Session for RedisSession {
    fn introduce(&mut self, badge: Badge) {
        self.badge = badge;
    }

    fn join(&mut self, join: Join) -> BoxFuture<'_, Result<Joined, StoreError>> {
        Box::pin(async move {
            let shared = Arc::clone(&self.shared);
            let badge = Some(&self.badge);
            let call = step::join(&shared.names, self.key, &join, badge, None, shared.prefetched());
            let joined = match self.ask(Request::script(&call), Way::Small).await {
                Ok(answer) => self.understood(reply::joined(answer)),
                Err(error) => Err(error),
            };
            match &joined {
                Ok(Joined::Own { token }) => {
                    shared.granted(*token);
                    shared.budget.granted(self.key);
                }
                Ok(Joined::Follow { flight, pieces, .. }) => self.follow(*flight, *pieces).await,
                _ => {}
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
            let mut get = Cmd::new();
            get.arg("GET").arg(self.shared.names.result(self.key));
            match self.ask(Request::command(&get), Way::Large).await {
                Ok(Value::BulkString(bytes)) => Ok(Some(bytes.into())),
                Ok(Value::Nil) => Ok(None),
                Ok(_) => Err(error::bad_reply()),
                Err(error) => Err(error),
            }
        })
    }

    fn append(&mut self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        Box::pin(async move {
            let hold = self.room(self.shared.budget.pieces(self.key, &append))?;
            let call = step::append(&self.shared.names, self.key, &append);
            let bytes: usize = append.pieces.iter().map(Bytes::len).sum();
            let way = if bytes > step::PUSH_MAX { Way::Large } else { Way::Small };
            let appended = match self.ask(Request::script(&call), way).await {
                // A server that is full is there: the breaker does not hear of it.
                Ok(answer) => self.understood(reply::appended(answer)),
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
            let range = pieces::range(self.shared.names.stream(self.key), flight, from);
            let answer = self.ask(Request::command(&range), Way::Large).await?;
            self.understood(pieces::read(answer, flight, from))
        })
    }

    fn listen(
        &mut self,
        flight: FlightRef,
        lease: Duration,
    ) -> BoxFuture<'_, Result<BeatReply, StoreError>> {
        Box::pin(async move {
            self.owned = Some(flight);
            let call = step::renew(&self.shared.names, self.key, flight, lease);
            let answer = self.seated(Request::script(&call)).await?;
            self.understood(reply::renewed(answer))
        })
    }

    fn hear(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<u32, StoreError>> {
        Box::pin(async move {
            self.owned = Some(flight);
            Ok(self.state(flight).await?.map_or(0, |(joins, _)| joins))
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
            let hold = self.room(hold)?;
            let call = step::finish(&shared.names, self.key, &finish);
            let answer = match record.filter(|record| record.len() > step::INLINE_MAX) {
                None => self.ask(Request::script(&call), Way::Small).await,
                Some(record) => {
                    let mut stage = Cmd::new();
                    stage
                        .arg("SET")
                        .arg(shared.names.staged(self.key, finish.flight.id))
                        .arg(&record[..])
                        .arg("PX")
                        .arg(step::millis(finish.keep));
                    let stage = Before::new(stage);
                    let answer = self.ask(Request::script(&call).after(&stage), Way::Large).await;
                    // The flight ends all the same, and others make the answer again.
                    if let Some(error) = stage.refusal() {
                        shared.errors.count(error.kind());
                    }
                    answer
                }
            };
            let finished = answer.and_then(reply::finished);
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
            let call = step::abandon(&self.shared.names, self.key, flight);
            // Sent once: after silence the driver drops its run and releases.
            let request = Request::script(&call).once();
            reply::abandoned(self.ask(request, Way::Small).await?)
        })
    }

    fn forget(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let call = step::forget(&self.shared.names, self.key);
            reply::gone(self.ask(Request::script(&call), Way::Small).await?).map(drop)
        })
    }

    fn stop(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let call = step::stop(&self.shared.names, self.key);
            reply::gone(self.ask(Request::script(&call), Way::Small).await?).map(drop)
        })
    }

    fn hold(
        &mut self,
        flight: FlightRef,
        silence: Duration,
    ) -> BoxFuture<'_, Result<Option<Held>, StoreError>> {
        Box::pin(async move {
            let read = vigil::read(&self.shared.names, self.key);
            let mut vigil = None;
            let way = Way::Tracked { vigil: &mut vigil, silence };
            let answer = self.ask(Request::command(&read), way).await?;
            let Some((vigil, (age, fresh))) = vigil.zip(vigil::fresh(answer, flight)) else {
                return Ok(None);
            };
            vigil.keep(fresh.saturating_sub(age));
            Ok(Some(Held { age: age + vigil.age(), fresh, vigil: Box::new(vigil) }))
        })
    }
}
