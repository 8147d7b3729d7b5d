//! One caller, as who watches sees it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tracing::{
    Span,
    field::{Empty, display},
    span::Entered,
};

use super::Telemetry;
use crate::{
    cache_status::FlightRole,
    flights::{Flight, Share},
    key::Name,
};

/// The span of one caller, where somebody is interested in it.
#[derive(Debug)]
pub(crate) struct Caller(Option<Box<Seen>>);

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
        Self((!span.is_disabled()).then(|| Box::new(Seen { span, told: AtomicBool::new(false) })))
    }

    /// Nobody's: that of a future inside another one.
    pub(crate) fn unseen() -> Self {
        Self(None)
    }

    /// The span, for what goes on beside it.
    pub(crate) fn span(&self) -> Span {
        self.0.as_ref().map_or_else(Span::none, |seen| seen.span.clone())
    }

    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        Some(self.0.as_ref()?.span.enter())
    }

    /// The flight of its share, where it is to be told of.
    pub(crate) fn flight(&self, share: Option<&Share>) -> Option<Arc<Flight>> {
        self.0.as_ref()?;
        Some(Arc::clone(share?.flight()))
    }

    /// It has its answer, in this role.
    pub(crate) fn answered(
        &self,
        telemetry: &Telemetry,
        role: FlightRole,
        outcome: &str,
        flight: Option<&Flight>,
    ) {
        let Some(seen) = &self.0 else { return };
        seen.tell(role.name(), outcome);
        let Some(flight) = flight else { return };
        if let Some(token) = flight.token() {
            seen.span.record("token", token);
        }
        let follows = matches!(role, FlightRole::FollowerLocal | FlightRole::FollowerRemote);
        if let Some(trace) = telemetry.trace_context().filter(|_| follows)
            && let Some(owner) = flight.trace()
        {
            trace.link(&seen.span, &owner);
        }
    }

    /// It gets a failure of the layer's own.
    pub(crate) fn failed(&self, kind: &str) {
        if let Some(seen) = &self.0 {
            seen.tell("failed", kind);
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
