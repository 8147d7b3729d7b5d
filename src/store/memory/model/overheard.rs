//! A memory store behind a line that loses and delays at random, and tells what it hears.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::{
    conduct::{Event, Voice},
    real::{Table, ms},
    shop,
    wire::{Ask, Found, Id, Name, Purpose, Said, With, byte},
};
use crate::{
    MemoryStore,
    id::{FlightRef, KeyDigest},
    store::{
        Abandoned, Append, Appended, Beat, BeatReply, BoxFuture, Finish, Finished, Heartbeat, Join,
        Joined, Pieces, Pushed, Session, Store, StoreError, StoreErrorKind, StoreState,
    },
};

/// How late something comes that is late, in milliseconds.
const LATE: u64 = 2600;

/// One process's way to the store.
#[derive(Clone, Debug)]
pub(super) struct Overheard {
    store: MemoryStore,
    table: Table,
    node: usize,
}

struct Line<T: ?Sized> {
    way: Overheard,
    voice: Voice,
    to: Box<T>,
}

impl Overheard {
    pub(super) fn new(store: &MemoryStore, table: &Table, node: usize) -> Self {
        Self { store: store.clone(), table: table.clone(), node }
    }

    /// On the way there, or back: now and then late, or lost.
    async fn travel(&self, most: u64) -> Result<(), StoreError> {
        if self.table.strikes(20) {
            let late = if self.table.strikes(10) { most } else { 40 };
            sleep(ms(late)).await;
        }
        if self.table.strikes(5) {
            sleep(ms(250)).await;
            return Err(silence());
        }
        Ok(())
    }

    fn tell(&self, event: Event) {
        self.table.room().events.push((self.node, event));
    }

    /// A small name for a long one.
    fn name(&self, id: u128) -> Id {
        let mut room = self.table.room();
        let next = byte(room.names.len() + 1);
        Id(*room.names.entry(id).or_insert(next))
    }

    /// A token, less what all tokens here have in common.
    fn token(&self, token: u64) -> u64 {
        if token == 0 {
            return 0;
        }
        let first = *self.table.room().first.get_or_insert(token);
        // Tokens are given out one by one; an older one may be heard of later.
        (token + 50).saturating_sub(first)
    }

    /// A flight under its small name.
    fn small(&self, flight: FlightRef) -> FlightRef {
        FlightRef { token: self.token(flight.token), id: self.name(flight.id.as_u128()).flight() }
    }

    fn flight(&self, flight: FlightRef) -> Name {
        self.small(flight).into()
    }

    fn join(&self, join: &Join, purpose: Purpose) -> Ask {
        let id = self.name(join.flight.as_u128());
        let waiter = self.name(join.waiter.as_u128());
        Ask::Join { id, waiter, known: byte(self.token(join.known)), purpose }
    }

    fn found(&self, joined: Joined) -> Said {
        Said::Found(match joined {
            Joined::Own { token } => Found::Own(byte(self.token(token))),
            Joined::Follow { flight, pieces, .. } => {
                Found::Follow { flight: self.flight(flight), left: 0, pieces: byte(pieces) }
            }
            Joined::Done { flight, streamed, record, .. } => {
                let flight = self.flight(flight);
                Found::Done { flight, streamed, record: record.map(|_| flight) }
            }
            Joined::Failed { flight, .. } => Found::Failed(self.flight(flight)),
            joined => shop::found(joined),
        })
    }

    fn beat(&self, beat: &Beat) -> Ask {
        match beat {
            Beat::Renew { flight, .. } => Ask::Renew(self.flight(*flight)),
            Beat::Watch { join, .. } => self.join(join, Purpose::Watch),
            Beat::Release { flight, token, status, .. } => Ask::Release {
                id: self.name(flight.as_u128()),
                token: token.map(|token| byte(self.token(token))),
                status: *status,
            },
            Beat::Leave { waiter, .. } => Ask::Leave(self.name(waiter.as_u128())),
        }
    }

    fn reply(&self, reply: BeatReply) -> Said {
        match reply {
            BeatReply::Renewed { waiters } => Said::Renewed(byte(waiters)),
            BeatReply::Over => Said::Over,
            BeatReply::Lost(loss) => Said::Lost(loss.into()),
            BeatReply::Watched(joined) => self.found(joined),
            BeatReply::Gone => Said::Gone,
        }
    }
}

fn silence() -> StoreError {
    StoreError::new(StoreErrorKind::TimedOut, "lost on the way")
}

impl Line<dyn Session> {
    async fn ask<R>(
        &mut self,
        ask: Ask,
        step: impl for<'s> FnOnce(&'s mut dyn Session) -> BoxFuture<'s, Result<R, StoreError>>,
        said: impl FnOnce(&Overheard, &R) -> Said,
    ) -> Result<R, StoreError> {
        let callers = self.way.table.room().callers[self.way.node];
        // Who is done and reads on, or runs alone, is not told apart.
        let callers = if matches!(ask, Ask::Abandon(_)) { 0 } else { callers };
        self.way.tell(Event::Asked(self.voice, ask, callers));
        let (way, to) = (&self.way, &mut *self.to);
        let answer = async {
            way.travel(LATE).await?;
            let answer = step(to).await?;
            way.travel(LATE).await?;
            Ok(answer)
        }
        .await;
        let told = answer.as_ref().ok().map(|answer| said(&self.way, answer));
        self.way.tell(Event::Heard(self.voice, ask, told));
        answer
    }

    /// The second session of a driver, for its stream.
    fn feeds(&mut self) {
        self.voice = Voice::Feed;
    }
}

impl Session for Line<dyn Session> {
    fn join(&mut self, join: Join) -> BoxFuture<'_, Result<Joined, StoreError>> {
        let purpose = if join.look_only { Purpose::Look } else { Purpose::Own };
        let ask = self.way.join(&join, purpose);
        Box::pin(self.ask(ask, move |to| to.join(join), |way, joined| way.found(joined.clone())))
    }

    fn pushed(&mut self) -> BoxFuture<'_, Pushed> {
        Box::pin(async {
            loop {
                let pushed = self.to.pushed().await;
                if self.way.table.strikes(10) {
                    continue;
                }
                if let Pushed::Watched { flight } = pushed {
                    self.way.tell(Event::Watched(self.way.flight(flight)));
                }
                let small = match pushed.clone() {
                    Pushed::Ended { flight, status, seal, .. } => {
                        let flight = self.way.small(flight);
                        Pushed::Ended { flight, status, record: None, seal }
                    }
                    Pushed::Piece { flight, index, .. } => {
                        Pushed::Piece { flight: self.way.small(flight), index, piece: None }
                    }
                    Pushed::Released { flight } => {
                        Pushed::Released { flight: self.way.small(flight) }
                    }
                    pushed => pushed,
                };
                if let Some(push) = shop::push(&small) {
                    self.way.tell(Event::Pushed(self.voice, push));
                }
                return pushed;
            }
        })
    }

    fn fetch(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(self.ask(
            Ask::Fetch,
            |to| to.fetch(),
            |_, record| Said::Record(record.as_ref().map(|_| Name { token: 0, id: Id::NONE })),
        ))
    }

    fn append(&mut self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        self.feeds();
        let first = byte(append.first);
        let to = first + byte(append.pieces.len());
        let ask = Ask::Append { flight: self.way.flight(append.flight), first, to };
        Box::pin(self.ask(
            ask,
            move |to| to.append(append),
            |_, appended| shop::appended(*appended),
        ))
    }

    fn read(&mut self, flight: FlightRef, from: u64) -> BoxFuture<'_, Result<Pieces, StoreError>> {
        let ask = Ask::Read { flight: self.way.flight(flight), from: byte(from) };
        Box::pin(self.ask(
            ask,
            move |to| to.read(flight, from),
            |_, read| {
                let pieces = read.pieces.iter().map(|_| (Id::NONE, 0)).collect();
                let end = read.end.as_ref().map(shop::close_of);
                Said::Pieces { first: byte(read.first), pieces, end }
            },
        ))
    }

    fn listen(
        &mut self,
        flight: FlightRef,
        lease: Duration,
    ) -> BoxFuture<'_, Result<BeatReply, StoreError>> {
        self.feeds();
        let ask = Ask::Renew(self.way.flight(flight));
        Box::pin(self.ask(
            ask,
            move |to| to.listen(flight, lease),
            |way, reply| way.reply(reply.clone()),
        ))
    }

    fn hear(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.to.hear(flight)
    }

    fn deafen(&mut self) {
        self.to.deafen();
    }

    fn finish(&mut self, finish: Finish) -> BoxFuture<'_, Result<Finished, StoreError>> {
        let with = match (&finish.record, &finish.seal) {
            (Some(_), _) => With::Record,
            (None, Some(seal)) => With::Seal(byte(seal.pieces)),
            (None, None) => With::Nothing,
        };
        let (flight, status) = (self.way.flight(finish.flight), finish.status);
        let ask = Ask::Finish { flight, status, with };
        Box::pin(self.ask(
            ask,
            move |to| to.finish(finish),
            |_, finished| shop::finished(finished.clone()),
        ))
    }

    fn abandon(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<Abandoned, StoreError>> {
        let ask = Ask::Abandon(self.way.flight(flight));
        Box::pin(self.ask(
            ask,
            move |to| to.abandon(flight),
            |_, abandoned| shop::abandoned(*abandoned),
        ))
    }

    /// By the users of a key: no driver's.
    fn forget(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.to.forget()
    }

    /// As [`forget`](Self::forget).
    fn stop(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.to.stop()
    }
}

impl Heartbeat for Line<dyn Heartbeat> {
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>> {
        Box::pin(async move {
            let asks: Vec<_> = batch.iter().map(|beat| self.way.beat(beat)).collect();
            for ask in &asks {
                self.way.tell(Event::Asked(Voice::Keeper, *ask, 0));
            }
            let (way, to) = (&self.way, &mut self.to);
            let replies = async {
                // Not longer than the keeper tries to say that something is over.
                way.travel(LATE).await?;
                let replies = to.beat(batch).await;
                way.travel(40).await?;
                Ok::<_, StoreError>(replies)
            }
            .await
            .unwrap_or_else(|lost| batch.iter().map(|_| Err(lost.clone())).collect());
            for (ask, reply) in asks.into_iter().zip(&replies) {
                let said = reply.as_ref().ok().map(|reply| self.way.reply(reply.clone()));
                self.way.tell(Event::Heard(Voice::Keeper, ask, said));
            }
            replies
        })
    }
}

impl Store for Overheard {
    fn session(&self, key: KeyDigest) -> Box<dyn Session> {
        let mut room = self.table.room();
        room.sessions += 1;
        let voice = Voice::Driver(room.sessions);
        drop(room);
        Box::new(Line { way: self.clone(), voice, to: self.store.session(key) })
    }

    fn heartbeat(&self) -> Box<dyn Heartbeat> {
        Box::new(Line { way: self.clone(), voice: Voice::Keeper, to: self.store.heartbeat() })
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn state(&self) -> StoreState {
        StoreState::Memory
    }

    fn errors(&self) -> Vec<(StoreErrorKind, u64)> {
        Vec::new()
    }
}
