//! A memory store whose line to one node fails in every way that a network and a process
//! can, by a seed; all that reaches the store is written down.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{sync::watch, time::sleep};
use tower_singleflight::{
    FlightRef, KeyDigest, MemoryStore, Store,
    store::{
        Abandoned, Append, Appended, Beat, BeatReply, BoxFuture, Finish, Finished, Heartbeat, Join,
        Joined, Pieces, Pushed, Session, StoreError, StoreErrorKind, StoreState,
    },
};

use super::steps::{Ask, Recorder, Reply};
use crate::{
    history::{Asker, Deed},
    rig::ms,
};

/// What an operation costs that is not answered.
const LIMIT: Duration = Duration::from_millis(250);

/// One node's line.
#[derive(Clone)]
pub(crate) struct Faulty(Arc<Inner>);

struct Inner {
    node: usize,
    store: MemoryStore,
    recorder: Arc<Recorder>,
    rng: Mutex<StdRng>,
    /// One operation in so many meets a fault.
    odds: u32,
    cut: AtomicBool,
    dead: AtomicBool,
    frozen: watch::Sender<bool>,
    errors: AtomicUsize,
}

/// What becomes of an operation.
enum Fate {
    Passes(Duration),
    /// It is done, and nobody hears of it.
    ReplyLost,
    /// It never comes to the store.
    Lost,
    /// It comes to the store when nobody waits for the answer any more.
    Late(Duration),
    /// It comes to the store twice, and the second answer is heard.
    Twice,
    /// It is not sent.
    Refused,
}

impl Faulty {
    pub(crate) fn new(
        node: usize,
        store: &MemoryStore,
        recorder: &Arc<Recorder>,
        seed: u64,
        odds: u32,
    ) -> Self {
        Self(Arc::new(Inner {
            node,
            store: store.clone(),
            recorder: Arc::clone(recorder),
            rng: Mutex::new(StdRng::seed_from_u64(seed ^ (node as u64) << 32)),
            odds,
            cut: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            frozen: watch::Sender::new(false),
            errors: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn cut(&self, cut: bool) {
        self.0.cut.store(cut, SeqCst);
    }

    /// From now on nothing of it comes to the store but what is on its way.
    pub(crate) fn kill(&self) {
        self.0.dead.store(true, SeqCst);
        self.freeze(false);
    }

    /// Everything stands still on its way, and then goes on.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.0.frozen.send_replace(frozen);
    }

    async fn thaw(&self) {
        // The sender lives as long as this.
        let _ = self.0.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }

    fn fate(&self, once: bool) -> Fate {
        let mut rng = self.0.rng.lock().unwrap();
        let Inner { odds, cut, dead, .. } = &*self.0;
        let (hit, kind) = (rng.random_ratio(1, *odds), rng.random_range(0..4));
        let (late, latency) = (rng.random_range(0..6000), rng.random_range(0..12));
        match kind {
            _ if dead.load(SeqCst) => Fate::Refused,
            0 if cut.load(SeqCst) => Fate::Refused,
            _ if cut.load(SeqCst) => Fate::Lost,
            0 if hit => Fate::ReplyLost,
            1 if hit => Fate::Lost,
            2 if hit => Fate::Late(ms(late)),
            3 if hit && !once => Fate::Twice,
            _ => Fate::Passes(ms(latency / 4)),
        }
    }

    /// What no answer is after its time.
    async fn no_answer<T>(&self) -> Result<T, StoreError> {
        sleep(LIMIT).await;
        self.0.errors.fetch_add(1, SeqCst);
        Err(StoreError::new(StoreErrorKind::TimedOut, "no answer came"))
    }

    fn refused<T>(&self) -> Result<T, StoreError> {
        self.0.errors.fetch_add(1, SeqCst);
        Err(StoreError::new(StoreErrorKind::Open, "the line is cut"))
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faulty").field(&self.0.node).finish()
    }
}

impl Store for Faulty {
    fn session(&self, key: KeyDigest) -> Box<dyn Session> {
        let session = self.0.store.session(key);
        Box::new(FaultySession { line: self.clone(), key, session, asker: NOBODY })
    }

    fn heartbeat(&self) -> Box<dyn Heartbeat> {
        Box::new(FaultyBeat(self.clone(), self.0.store.heartbeat()))
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn state(&self) -> StoreState {
        StoreState::Memory
    }

    fn errors(&self) -> Vec<(StoreErrorKind, u64)> {
        vec![(StoreErrorKind::TimedOut, self.0.errors.load(SeqCst) as u64)]
    }
}

/// A session that has asked for nothing yet.
const NOBODY: Asker = Asker { waiter: 0, known: 0, watch: false };

struct FaultySession {
    line: Faulty,
    key: KeyDigest,
    session: Box<dyn Session>,
    /// Whose wait it is, and what that has told.
    asker: Asker,
}

impl FaultySession {
    async fn ask(&mut self, ask: Ask) -> Result<Reply, StoreError> {
        let line = self.line.clone();
        let Inner { node, recorder, store, .. } = &*line.0;
        if let Ask::Join(join) = &ask {
            let (waiter, known) = (join.waiter.as_u128(), join.known);
            self.asker = Asker { waiter, known, watch: false };
        }
        let who = self.asker;
        line.thaw().await;
        let fate = line.fate(matches!(ask, Ask::Abandon(_)));
        if let Ask::Join(join) = &ask
            && !matches!(fate, Fate::Passes(_) | Fate::Twice)
        {
            recorder.looks(*node, &self.key, join, false);
        }
        match fate {
            Fate::Passes(latency) => {
                sleep(latency).await;
                let reply = ask.clone().of(&mut *self.session).await?;
                recorder.answered(*node, &self.key, &ask, &reply, who, true);
                sleep(latency).await;
                line.thaw().await;
                Ok(reply)
            }
            Fate::Twice => {
                let first = ask.clone().of(&mut *self.session).await?;
                recorder.answered(*node, &self.key, &ask, &first, who, false);
                let reply = ask.clone().of(&mut *self.session).await?;
                recorder.answered(*node, &self.key, &ask, &reply, who, true);
                Ok(reply)
            }
            Fate::ReplyLost => {
                let reply = ask.clone().of(&mut *self.session).await?;
                recorder.answered(*node, &self.key, &ask, &reply, who, false);
                line.no_answer().await
            }
            Fate::Late(late) => {
                // On another session: this one may do something else by then.
                let (mut session, key) = (store.session(self.key), self.key);
                let (recorder, node) = (Arc::clone(recorder), *node);
                tokio::spawn(async move {
                    sleep(LIMIT + late).await;
                    if let Ok(reply) = ask.clone().of(&mut *session).await {
                        recorder.answered(node, &key, &ask, &reply, who, false);
                    }
                });
                line.no_answer().await
            }
            Fate::Lost => line.no_answer().await,
            Fate::Refused => line.refused(),
        }
    }
}

/// Asks, and takes the answer out.
macro_rules! asked {
    ($this:ident, $ask:expr, $reply:ident) => {
        Box::pin(async move {
            match $this.ask($ask).await? {
                Reply::$reply(reply) => Ok(reply),
                _ => unreachable!("another question's answer"),
            }
        })
    };
}

impl Session for FaultySession {
    fn join(&mut self, join: Join) -> BoxFuture<'_, Result<Joined, StoreError>> {
        asked!(self, Ask::Join(join), Joined)
    }

    fn pushed(&mut self) -> BoxFuture<'_, Pushed> {
        Box::pin(async {
            loop {
                let pushed = self.session.pushed().await;
                let Inner { node, cut, dead, rng, odds, recorder, .. } = &*self.line.0;
                let lost = rng.lock().unwrap().random_ratio(1, *odds);
                if !lost && !cut.load(SeqCst) && !dead.load(SeqCst) {
                    recorder.heard(*node, &self.key, self.asker.waiter, &pushed);
                    return pushed;
                }
            }
        })
    }

    fn fetch(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        asked!(self, Ask::Fetch, Fetched)
    }

    fn append(&mut self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        asked!(self, Ask::Append(append), Appended)
    }

    fn read(&mut self, flight: FlightRef, from: u64) -> BoxFuture<'_, Result<Pieces, StoreError>> {
        asked!(self, Ask::Read(flight, from), Pieces)
    }

    fn listen(
        &mut self,
        flight: FlightRef,
        lease: Duration,
    ) -> BoxFuture<'_, Result<BeatReply, StoreError>> {
        asked!(self, Ask::Listen(flight, lease), Beat)
    }

    fn hear(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.session.hear(flight)
    }

    fn deafen(&mut self) {
        self.session.deafen();
    }

    fn finish(&mut self, finish: Finish) -> BoxFuture<'_, Result<Finished, StoreError>> {
        asked!(self, Ask::Finish(finish), Finished)
    }

    fn abandon(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<Abandoned, StoreError>> {
        asked!(self, Ask::Abandon(flight), Abandoned)
    }

    fn forget(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.ask(Ask::Forget).await.map(drop) })
    }

    // No history has one.
    fn stop(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.session.stop()
    }
}

struct FaultyBeat(Faulty, Box<dyn Heartbeat>);

impl FaultyBeat {
    async fn deliver(&mut self, batch: &[Beat], came: bool) -> Vec<Result<BeatReply, StoreError>> {
        let Inner { node, recorder, .. } = &*self.0.0;
        let replies = self.1.beat(batch).await;
        for (beat, reply) in batch.iter().zip(&replies) {
            reply.iter().for_each(|reply| recorder.beat(*node, beat, reply, came));
        }
        replies
    }
}

impl Heartbeat for FaultyBeat {
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>> {
        Box::pin(async move {
            let line = self.0.clone();
            line.thaw().await;
            let failed: Result<(), _> = match line.fate(false) {
                Fate::Passes(latency) => {
                    sleep(latency).await;
                    let replies = self.deliver(batch, true).await;
                    sleep(latency).await;
                    line.thaw().await;
                    return replies;
                }
                Fate::Twice => {
                    self.deliver(batch, false).await;
                    return self.deliver(batch, true).await;
                }
                Fate::ReplyLost => {
                    self.deliver(batch, false).await;
                    line.no_answer().await
                }
                Fate::Late(late) => {
                    let mut other = Self(line.clone(), line.0.store.heartbeat());
                    let batch = batch.to_vec();
                    tokio::spawn(async move {
                        sleep(LIMIT + late).await;
                        other.deliver(&batch, false).await;
                    });
                    line.no_answer().await
                }
                Fate::Lost => line.no_answer().await,
                Fate::Refused => line.refused(),
            };
            for beat in batch {
                match beat {
                    Beat::Watch { key, join, .. } => {
                        line.0.recorder.looks(line.0.node, key, join, true);
                    }
                    // Who wanted to leave sleeps no more.
                    Beat::Leave { key, waiter } => {
                        let waiter = waiter.as_u128();
                        line.0.recorder.note(Some(line.0.node), key, Deed::Left { waiter });
                    }
                    _ => {}
                }
            }
            match failed {
                Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
                Ok(()) => unreachable!("no answer came"),
            }
        })
    }
}
