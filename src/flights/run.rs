//! Runs, as the table and the driver see them.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use crate::{
    config::Delivery,
    key::Name,
    lease::Permit,
    log::SharedRun,
    selection::Selection,
    store::BoxFuture,
    sync::{
        Notify,
        atomic::{AtomicBool, Ordering},
    },
};

/// A request and a service that could run it, as the table sees them.
pub(crate) trait Deposit: Send + Sync {
    /// Takes the request out and runs it. `None` when its caller has left.
    fn start(self: Arc<Self>, brief: Brief) -> Option<BoxFuture<'static, RunEnd>>;

    /// Whether a request that was started could be run again.
    fn is_repeatable(&self) -> bool;

    /// Puts a request back that was started and can be run again. False where it
    /// cannot, or its caller has left.
    fn restore(&self) -> bool;
}

/// What a run needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Brief {
    /// The key of its flight.
    pub(crate) name: Arc<Name>,
    /// The fencing token; none for a run without a lease.
    pub(crate) token: Option<u64>,
    /// The most bytes that are kept to be shared.
    pub(crate) max_share_bytes: usize,
    pub(crate) delivery: Delivery,
    /// Whether answers are used again at all.
    pub(crate) reuse: bool,
    pub(crate) stage: Arc<Stage>,
}

/// How a run ended. What belongs to the caller whose run it was has been handed
/// to that caller already.
#[derive(Debug)]
pub(crate) enum RunEnd {
    /// With an answer for all.
    Shared(SharedRun),
    /// With an answer for its own caller only.
    Private {
        /// Time to the head.
        took: Duration,
    },
    /// With more bytes than are shared; the rest goes to its own caller.
    TooLarge,
    /// With an error, a panic, or a body that broke off.
    Failed {
        /// The error's text.
        report: String,
    },
}

/// What a run and its driver have between them while it runs.
pub(crate) struct Stage {
    permit: Arc<Permit>,
    begun: AtomicBool,
    selection: OnceLock<Arc<Selection>>,
    opened: OnceLock<SharedRun>,
    stirred: Notify,
}

impl Stage {
    pub(crate) fn new(permit: Arc<Permit>) -> Arc<Self> {
        let (begun, selection, opened, stirred) = Default::default();
        Arc::new(Self { permit, begun, selection, opened, stirred })
    }

    /// The head is there: from now on the run may be idle. `selection` says which
    /// callers may have what follows; none: all of them.
    pub(crate) fn begin(&self, selection: Option<&Arc<Selection>>) {
        self.permit.beat();
        if let Some(selection) = selection {
            let _ = self.selection.set(Arc::clone(selection));
        }
        self.begun.store(true, Ordering::Release);
        self.stirred.notify_one();
    }

    /// For how long the run has gone on.
    pub(crate) fn age(&self) -> Duration {
        self.permit.since().elapsed()
    }

    /// A frame is there.
    pub(crate) fn beat(&self) {
        self.permit.beat();
    }

    /// The answer is to be handed out as it comes.
    pub(crate) fn open(&self, run: SharedRun) {
        // There is one run to a stage, and it opens once.
        let _ = self.opened.set(run);
        self.stirred.notify_one();
    }

    /// Whether what the run has may be handed on.
    pub(crate) fn is_granted(&self) -> bool {
        self.permit.is_granted()
    }

    /// Waits until what the run has may be handed on.
    pub(crate) async fn granted(&self) {
        self.permit.granted().await;
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Which callers may have the answer, once its head is there and says so.
    pub(crate) fn selection(&self) -> Option<&Arc<Selection>> {
        self.selection.get()
    }

    /// The answer that is handed out as it comes.
    pub(crate) fn opened(&self) -> Option<&SharedRun> {
        self.opened.get()
    }

    /// Waits for the next of these. Cancel-safe.
    pub(crate) async fn stirred(&self) {
        self.stirred.notified().await;
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").field("opened", &self.opened).finish_non_exhaustive()
    }
}
