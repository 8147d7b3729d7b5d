//! One caller, as who watches sees it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

#[cfg(feature = "metrics")]
use std::time::Duration;
#[cfg(feature = "metrics")]
use tokio::time::Instant;
use tracing::{
    Span,
    field::{Empty, display},
    span::Entered,
};

use crate::{
    cache_status::FlightRole,
    core::Core,
    error::FailureKind,
    flights::{Flight, Share},
    key::Name,
};

/// The span of one caller, where somebody is interested in it.
#[derive(Debug)]
pub(crate) struct Caller {
    seen: Option<Box<Seen>>,
    #[cfg(feature = "metrics")]
    since: Option<Instant>,
}

#[derive(Debug)]
struct Seen {
    span: Span,
    told: AtomicBool,
}

impl Caller {
    pub(crate) fn new() -> Self {
        let span = tracing::info_span!(
            "single_flight",
            key = Empty,
            role = Empty,
            outcome = Empty,
            token = Empty
        );
        let seen = (!span.is_disabled()).then(|| Seen { span, told: AtomicBool::new(false) });
        Self {
            seen: seen.map(Box::new),
            #[cfg(feature = "metrics")]
            since: Some(Instant::now()),
        }
    }

    /// Nobody's: that of a future inside another one.
    pub(crate) fn unseen() -> Self {
        Self {
            seen: None,
            #[cfg(feature = "metrics")]
            since: None,
        }
    }

    /// The span, for what goes on beside it.
    pub(crate) fn span(&self) -> Span {
        self.seen.as_ref().map_or_else(Span::none, |seen| seen.span.clone())
    }

    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        Some(self.seen.as_ref()?.span.enter())
    }

    /// The flight of its share, where it is to be told of.
    pub(crate) fn flight(&self, share: Option<&Share>) -> Option<Arc<Flight>> {
        (self.seen.is_some() || cfg!(feature = "metrics")).then_some(())?;
        Some(Arc::clone(share?.flight()))
    }

    /// It has its answer, in this role.
    pub(crate) fn answered(
        &self,
        core: &Core,
        role: FlightRole,
        outcome: &str,
        flight: Option<&Flight>,
    ) {
        #[cfg(feature = "metrics")]
        self.measure(core, role, flight);
        let Some(seen) = &self.seen else { return };
        seen.tell(role.name(), outcome);
        let Some(flight) = flight else { return };
        if let Some(token) = flight.token() {
            seen.span.record("token", token);
        }
        let follows = matches!(role, FlightRole::FollowerLocal | FlightRole::FollowerRemote);
        if let Some(trace) = core.telemetry.trace_context().filter(|_| follows)
            && let Some(owner) = flight.trace()
        {
            trace.link(&seen.span, &owner);
        }
    }

    /// It gets a failure of the layer's own.
    pub(crate) fn failed(&self, core: &Core, kind: FailureKind) {
        #[cfg(feature = "metrics")]
        if let Some(since) = self.since {
            core.counts.meter.waited(None, since.elapsed());
        }
        let _ = core;
        if let Some(seen) = &self.seen {
            seen.tell("failed", kind.name());
        }
    }

    #[cfg(feature = "metrics")]
    fn measure(&self, core: &Core, role: FlightRole, flight: Option<&Flight>) {
        let meter = &core.counts.meter;
        if let Some(since) = self.since.filter(|_| !matches!(role, FlightRole::Bypass(_))) {
            meter.waited(Some(role), since.elapsed());
        }
        match (role, flight) {
            // How long that run took is not known here.
            (FlightRole::Reused { .. }, _) => meter.avoided(Duration::ZERO),
            (role, Some(flight)) if role.is_shared() => meter.avoided(flight.age()),
            _ => {}
        }
    }
}

impl Seen {
    fn tell(&self, role: &str, outcome: &str) {
        self.told.store(true, Ordering::Relaxed);
        self.span.record("role", role).record("outcome", outcome);
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        if !*self.told.get_mut() {
            self.span.record("outcome", "left");
        }
    }
}

/// Says which key a caller's request has.
pub(crate) fn record_key(span: &Span, name: &Name) {
    if !span.is_disabled() {
        span.record("key", display(name.digest()));
    }
}
