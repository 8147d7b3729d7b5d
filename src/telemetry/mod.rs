//! What a layer shows of itself.

use std::{fmt, sync::Arc};

use tracing::{
    Span,
    field::{Empty, display},
};

use crate::{
    id::KeyDigest,
    store::Badge,
    trace::{TraceContext, TraceParent},
};

mod caller;

pub(crate) use self::caller::{Caller, record_key};

/// What a layer shows of itself, and how.
#[derive(Clone)]
pub(crate) struct Telemetry {
    badge: Badge,
    trace: Option<Arc<dyn TraceContext>>,
}

impl Telemetry {
    /// Of the process of this name; none: the process's number, and its host's name where
    /// that is known.
    pub(crate) fn new(instance: Option<&str>, trace: Option<Arc<dyn TraceContext>>) -> Self {
        let owner = instance.map_or_else(process, ToOwned::to_owned);
        Self { badge: Badge::new(&owner), trace }
    }

    /// What is left beside flights that are owned here, by who is in this span.
    pub(crate) fn badge(&self) -> Badge {
        Badge { trace: self.here(), ..self.badge.clone() }
    }

    /// Where the span that is entered just now is in its trace.
    pub(crate) fn here(&self) -> Option<TraceParent> {
        self.trace.as_ref()?.of(&Span::current())
    }

    fn trace_context(&self) -> Option<&Arc<dyn TraceContext>> {
        self.trace.as_ref()
    }
}

/// The span of a run.
pub(crate) fn run_span(key: impl FnOnce() -> KeyDigest, token: Option<u64>) -> Span {
    let span = tracing::info_span!("flight", key = Empty, token, outcome = Empty);
    if !span.is_disabled() {
        span.record("key", display(key()));
    }
    span
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("badge", &self.badge).finish_non_exhaustive()
    }
}

fn process() -> String {
    let host = std::env::var("HOSTNAME").ok();
    let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.as_deref().map(str::trim).filter(|host| !host.is_empty());
    match host {
        Some(host) => format!("{}@{host}", std::process::id()),
        None => std::process::id().to_string(),
    }
}
