//! Keeping requests out of sharing: one by one, or all of them for a while.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Keeps a request out of sharing: in its extensions, it makes the request run alone,
/// whatever its key. It is counted as [`Bypass::KeptOut`](crate::Bypass::KeptOut).
///
/// A layer outside this one, or the client of a service, puts it there. Where requests
/// are told apart by their own looks, [`HttpKey::bypass_if`](crate::HttpKey::bypass_if)
/// does the same without it.
///
/// ```
/// use axum::{Router, extract::Request, middleware::map_request, routing::get};
/// use tower_singleflight::{HttpKey, NoShare, SingleFlightLayer};
///
/// async fn alone(mut request: Request) -> Request {
///     if request.headers().contains_key("x-alone") {
///         request.extensions_mut().insert(NoShare);
///     }
///     request
/// }
///
/// # async fn answer() -> &'static str { "42" }
/// let app: Router = Router::new()
///     .route("/answer", get(answer))
///     .layer(SingleFlightLayer::new(HttpKey::new()))
///     .layer(map_request(alone));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "it is there or not")]
pub struct NoShare;

/// Turns the sharing of a layer off and on while it serves; all its clones and services
/// have one switch. From [`SingleFlightLayer::switch`](crate::SingleFlightLayer::switch).
///
/// Off, every caller that comes runs its own request, without a word to the store, and
/// is counted as [`Bypass::SwitchedOff`](crate::Bypass::SwitchedOff); request bodies are
/// not read for a key. Flights that are in the air then end as they would have, for those
/// who have joined them. Other processes are not touched. A layer begins switched on.
///
/// ```
/// use tower_singleflight::{HttpKey, SingleFlightLayer};
///
/// let layer = SingleFlightLayer::new(HttpKey::new());
/// let switch = layer.switch();
/// switch.turn_off();
/// assert!(!layer.switch().is_on());
/// switch.turn_on();
/// ```
#[derive(Clone, Debug)]
pub struct Switch(Arc<AtomicBool>);

impl Default for Switch {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Switch {
    /// Callers that come from now on share.
    pub fn turn_on(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Callers that come from now on run alone.
    pub fn turn_off(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether callers share.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
