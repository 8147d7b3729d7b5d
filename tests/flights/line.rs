//! A store that can be cut, slow, deaf, or late.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::watch;
use tower_singleflight::{
    FlightRef, KeyDigest, MemoryStore, Store,
    store::{
        Abandoned, Append, Appended, Beat, BeatReply, BoxFuture, Finish, Finished, Heartbeat, Join,
        Joined, Pieces, Pushed, Session, StoreError, StoreErrorKind, StoreState,
    },
};

use crate::rig::ms;

/// A memory store behind a line that can be cut or be slow, for one node.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    store: MemoryStore,
    cut: Arc<AtomicBool>,
    refusing: Arc<AtomicBool>,
    delay: Arc<AtomicU64>,
    late_join: Arc<AtomicU64>,
    lost_join: Arc<AtomicBool>,
    lost_finish: Arc<AtomicBool>,
    deaf: Arc<AtomicBool>,
    beatless: Arc<AtomicBool>,
    bad_reads: Arc<AtomicUsize>,
    held_beats: Arc<watch::Sender<bool>>,
    forged: Arc<watch::Sender<Option<Pushed>>>,
    pub(crate) errors: Arc<AtomicUsize>,
    /// Steps that added to a stream.
    pub(crate) appends: Arc<AtomicUsize>,
    /// Steps that asked to own.
    pub(crate) attempts: Arc<AtomicUsize>,
}

impl Line {
    pub(crate) fn new(store: &MemoryStore) -> Self {
        let (cut, refusing, delay, late_join, lost_join, deaf, beatless) = Default::default();
        let (lost_finish, bad_reads, held_beats, errors, appends, attempts) = Default::default();
        let forged = Default::default();
        let store = store.clone();
        Self {
            store,
            cut,
            refusing,
            delay,
            late_join,
            lost_join,
            lost_finish,
            deaf,
            beatless,
            bad_reads,
            held_beats,
            forged,
            errors,
            appends,
            attempts,
        }
    }

    /// Each operation of a session comes to the store this late; heartbeats do not.
    pub(crate) fn slow(&self, delay: Duration) {
        self.delay.store(delay.as_millis() as u64, SeqCst);
    }

    /// The next `join` comes to the store at once, and its answer this late.
    pub(crate) fn answer_join_late(&self, delay: Duration) {
        self.late_join.store(delay.as_millis() as u64, SeqCst);
    }

    /// The next `join` comes to the store, and its answer is lost.
    pub(crate) fn lose_join_answer(&self) {
        self.lost_join.store(true, SeqCst);
    }

    /// The next end comes to the store, and its answer is lost.
    pub(crate) fn lose_finish_answer(&self) {
        self.lost_finish.store(true, SeqCst);
    }

    async fn travel(&self) -> Result<(), StoreError> {
        if self.refusing.load(SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Open, "not asked for a moment"));
        }
        let delay = self.delay.load(SeqCst);
        if delay > 0 {
            tokio::time::sleep(ms(delay)).await;
        }
        self.pass().await
    }

    pub(crate) fn cut(&self) {
        self.cut.store(true, SeqCst);
    }

    /// Operations of sessions fail at once from now on, or no more.
    pub(crate) fn refuse(&self, refusing: bool) {
        self.refusing.store(refusing, SeqCst);
    }

    /// Pushes are lost from now on.
    pub(crate) fn deafen(&self) {
        self.deaf.store(true, SeqCst);
    }

    /// Heartbeats fail from now on; all else goes through.
    pub(crate) fn lose_beats(&self) {
        self.beatless.store(true, SeqCst);
    }

    /// Heartbeats go through again.
    pub(crate) fn find_beats(&self) {
        self.beatless.store(false, SeqCst);
    }

    /// Heartbeats are heard from now on, and answered when they may be.
    pub(crate) fn hold_beats(&self) {
        self.held_beats.send_replace(true);
    }

    pub(crate) fn let_beats_go(&self) {
        self.held_beats.send_replace(false);
    }

    /// Whoever waits here for pushes hears this, as anybody can have it who may publish.
    pub(crate) fn forge(&self, pushed: Pushed) {
        self.forged.send_replace(Some(pushed));
    }

    async fn forged(&self) -> Pushed {
        loop {
            let mut forged = self.forged.subscribe();
            forged.wait_for(Option::is_some).await.unwrap();
            if let Some(pushed) = self.forged.send_replace(None) {
                return pushed;
            }
        }
    }

    /// The next so many reads of a stream fail.
    pub(crate) fn fail_reads(&self, reads: usize) {
        self.bad_reads.store(reads, SeqCst);
    }

    pub(crate) fn heal(&self) {
        self.cut.store(false, SeqCst);
    }

    /// What every operation over a cut line costs: the operation limit.
    async fn pass(&self) -> Result<(), StoreError> {
        if self.cut.load(SeqCst) { self.time_out().await } else { Ok(()) }
    }

    async fn time_out(&self) -> Result<(), StoreError> {
        tokio::time::sleep(ms(250)).await;
        self.errors.fetch_add(1, SeqCst);
        Err(StoreError::new(StoreErrorKind::TimedOut, "the line is cut"))
    }
}

impl Store for Line {
    fn session(&self, key: KeyDigest) -> Box<dyn Session> {
        Box::new(Cuttable(self.clone(), self.store.session(key)))
    }

    fn heartbeat(&self) -> Box<dyn Heartbeat> {
        Box::new(Cuttable(self.clone(), self.store.heartbeat()))
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn state(&self) -> StoreState {
        if self.cut.load(SeqCst) { StoreState::Degraded } else { StoreState::Ok }
    }

    fn errors(&self) -> Vec<(StoreErrorKind, u64)> {
        vec![(StoreErrorKind::TimedOut, self.errors.load(SeqCst) as u64)]
    }
}

struct Cuttable<T: ?Sized>(Line, Box<T>);

impl Session for Cuttable<dyn Session> {
    fn join(&mut self, join: Join) -> BoxFuture<'_, Result<Joined, StoreError>> {
        Box::pin(async {
            self.0.travel().await?;
            self.0.attempts.fetch_add(usize::from(!join.look_only), SeqCst);
            let joined = self.1.join(join).await;
            tokio::time::sleep(ms(self.0.late_join.swap(0, SeqCst))).await;
            if self.0.lost_join.swap(false, SeqCst) {
                self.0.time_out().await?;
            }
            joined
        })
    }

    fn pushed(&mut self) -> BoxFuture<'_, Pushed> {
        Box::pin(async {
            loop {
                let pushed = tokio::select! {
                    forged = self.0.forged() => return forged,
                    pushed = self.1.pushed() => pushed,
                };
                // Else it is lost on the way.
                if !self.0.cut.load(SeqCst) && !self.0.deaf.load(SeqCst) {
                    return pushed;
                }
            }
        })
    }

    fn fetch(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(async {
            self.0.travel().await?;
            self.1.fetch().await
        })
    }

    fn append(&mut self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        Box::pin(async {
            self.0.travel().await?;
            self.0.appends.fetch_add(1, SeqCst);
            self.1.append(append).await
        })
    }

    fn read(&mut self, flight: FlightRef, from: u64) -> BoxFuture<'_, Result<Pieces, StoreError>> {
        Box::pin(async move {
            self.0.travel().await?;
            let bad = &self.0.bad_reads;
            if bad.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                self.0.time_out().await?;
            }
            self.1.read(flight, from).await
        })
    }

    fn listen(
        &mut self,
        flight: FlightRef,
        lease: Duration,
    ) -> BoxFuture<'_, Result<BeatReply, StoreError>> {
        Box::pin(async move {
            self.0.travel().await?;
            self.1.listen(flight, lease).await
        })
    }

    fn hear(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.1.hear(flight)
    }

    fn deafen(&mut self) {
        self.1.deafen();
    }

    fn finish(&mut self, finish: Finish) -> BoxFuture<'_, Result<Finished, StoreError>> {
        Box::pin(async {
            self.0.travel().await?;
            let finished = self.1.finish(finish).await;
            if self.0.lost_finish.swap(false, SeqCst) {
                self.0.time_out().await?;
            }
            finished
        })
    }

    fn abandon(&mut self, flight: FlightRef) -> BoxFuture<'_, Result<Abandoned, StoreError>> {
        Box::pin(async move {
            self.0.travel().await?;
            self.1.abandon(flight).await
        })
    }

    fn forget(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async {
            self.0.pass().await?;
            self.1.forget().await
        })
    }

    fn stop(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async {
            self.0.pass().await?;
            self.1.stop().await
        })
    }
}

impl Heartbeat for Cuttable<dyn Heartbeat> {
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>> {
        Box::pin(async {
            let passed = match self.0.beatless.load(SeqCst) {
                true => self.0.time_out().await,
                false => self.0.pass().await,
            };
            match passed {
                Ok(()) => {
                    let replies = self.1.beat(batch).await;
                    self.0.held_beats.subscribe().wait_for(|held| !held).await.unwrap();
                    replies
                }
                Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            }
        })
    }
}
