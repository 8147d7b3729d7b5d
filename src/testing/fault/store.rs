use std::{fmt, sync::Arc, time::Duration};

use super::{
    Fault, Step,
    heartbeat::{FaultHeartbeat, FaultScan},
    line::Line,
    session::FaultSession,
};
use crate::{
    id::KeyDigest,
    store::{
        BoxFuture, Heartbeat, KeyView, MemoryStore, Scan, Session, Store, StoreError,
        StoreErrorKind, StoreState,
    },
};

/// A store behind a line that fails when it is told to.
///
/// Clones share the line: a test keeps one and gives the layer another. What is wrong with
/// it is wrong for one process: others that are to meet with it get lines of their own, to
/// clones of the same store.
///
/// Nothing goes wrong by itself. A step takes the first fault that was planned for it
/// ([`next`](Self::next)), else the one that lasts ([`on`](Self::on), and all that set
/// several), else one by chance ([`at_random`](Self::at_random)).
///
/// See the [module docs](crate::testing).
pub struct FaultStore<S> {
    store: Arc<S>,
    line: Arc<Line>,
}

impl<S: Store> FaultStore<S> {
    /// A line to this store, with nothing wrong with it.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self { store: Arc::new(store), line: Arc::new(Line::new()) }
    }

    /// How long a step may be on its way before it fails as timed out. By the clock of the
    /// runtime. Default: 250 ms. It holds for all clones. What the store behind the line
    /// takes for it comes on top: that has a limit of its own.
    #[must_use]
    pub fn limit(self, limit: Duration) -> Self {
        self.line.set_limit(limit);
        self
    }

    /// The store.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.store
    }

    /// From now on every step fails at once, as [disconnected](StoreErrorKind::Disconnected),
    /// and no push comes. Those who waited for pushes are told of the gap when they come
    /// again: when it [heals](Self::heal), or [thaws](Self::thaw) from a later
    /// [`freeze`](Self::freeze).
    pub fn cut(&self) {
        self.line.last(Step::ALL, Fault::Fail(StoreErrorKind::Disconnected));
    }

    /// From now on every step waits until it [thaws](Self::thaw), or times out; pushes
    /// wait too. So does a server that is stopped.
    pub fn freeze(&self) {
        self.line.last(Step::ALL, Fault::Freeze);
    }

    /// Lets go all that waits in a [`freeze`](Self::freeze), or by [`Fault::Freeze`].
    pub fn thaw(&self) {
        self.line.thaw();
    }

    /// From now on every step comes to the store this late.
    pub fn delay(&self, time: Duration) {
        let steps = Step::ALL.iter().copied().filter(|step| *step != Step::Push);
        self.line.last(&steps.collect::<Vec<_>>(), Fault::Delay(time));
    }

    /// From now on no push comes, and nobody is told that one did not. Of those that were
    /// cut off before, who waited is told when the line [heals](Self::heal).
    pub fn lose_pushes(&self) {
        self.on(Step::Push, Fault::Lose);
    }

    /// From now on this goes wrong with every step of this kind.
    pub fn on(&self, step: Step, fault: Fault) {
        self.line.last(&[step], fault);
    }

    /// This goes wrong with the next `times` steps of this kind, after what is planned
    /// already.
    pub fn next(&self, step: Step, times: usize, fault: Fault) {
        self.line.plan(step, times, fault);
    }

    /// From now on one step in `one_in`, on average, meets one of these faults. Which ones
    /// do is decided by the seed and the order that they come in.
    pub fn at_random(&self, seed: u64, one_in: u32, faults: impl IntoIterator<Item = Fault>) {
        self.line.shake(seed, one_in, faults.into_iter().collect());
    }

    /// Nothing is wrong any more: what lasts, what is planned and what comes by chance is
    /// over, and what is frozen goes on.
    pub fn heal(&self) {
        self.line.heal();
    }

    /// How many steps of this kind there were, whatever came of them.
    #[must_use]
    pub fn calls(&self, step: Step) -> u64 {
        self.line.calls(step)
    }

    /// Waits until there were so many steps of this kind, which may not have come to the
    /// store yet. Cancel-safe.
    pub async fn until_calls(&self, step: Step, calls: u64) {
        self.line.called(step, calls).await;
    }
}

impl FaultStore<MemoryStore> {
    /// Loses all data, as a server that restarts empty: see [`MemoryStore::clear`]. It is
    /// lost for all lines to it.
    pub fn lose_data(&self) {
        self.store.clear();
    }
}

impl<S: Store> Store for FaultStore<S> {
    fn session(&self, key: KeyDigest) -> Box<dyn Session> {
        Box::new(FaultSession::new(Arc::clone(&self.line), self.store.session(key)))
    }

    fn heartbeat(&self) -> Box<dyn Heartbeat> {
        let inner = self.store.heartbeat();
        Box::new(FaultHeartbeat { line: Arc::clone(&self.line), inner })
    }

    fn is_remote(&self) -> bool {
        self.store.is_remote()
    }

    fn state(&self) -> StoreState {
        if self.line.is_cut() { StoreState::Degraded } else { self.store.state() }
    }

    fn errors(&self) -> Vec<(StoreErrorKind, u64)> {
        let mut errors = self.store.errors();
        for (kind, count) in self.line.errors() {
            match errors.iter_mut().find(|(of, _)| *of == kind) {
                Some((_, sum)) => *sum += count,
                None => errors.push((kind, count)),
            }
        }
        errors
    }

    fn inspect(&self, key: KeyDigest) -> BoxFuture<'_, Result<Option<KeyView>, StoreError>> {
        Box::pin(async move {
            let fate = self.line.fate(Step::Inspect);
            let way = self.line.travel(&[fate]).await.remove(0)?;
            let view = self.store.inspect(key).await;
            self.line.heard(way, view)
        })
    }

    fn scan(&self) -> Box<dyn Scan> {
        Box::new(FaultScan { line: Arc::clone(&self.line), inner: self.store.scan() })
    }
}

impl<S> Clone for FaultStore<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), line: Arc::clone(&self.line) }
    }
}

impl<S: fmt::Debug> fmt::Debug for FaultStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultStore").field("store", &self.store).finish_non_exhaustive()
    }
}
