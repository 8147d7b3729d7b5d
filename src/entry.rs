//! How a request whose key is known comes into a flight.

use std::sync::Arc;

use tower_service::Service;

use crate::{
    chain::Chain,
    codec::Codec,
    config::Crowded,
    core::Parts,
    error::{Failure, FailureKind},
    flight::launch,
    flights::Full,
    future::ResponseFuture,
    key::{Bypass, KeyExtractor, Name},
    seat::Seat,
};

/// Lets a request join its key's flight, or start one. To be called in a runtime.
pub(crate) fn join<S, Req, K, C>(
    parts: Arc<Parts<K, C>>,
    inner: S,
    request: Req,
    name: Name,
    chain: Chain,
) -> ResponseFuture<S, Req, K, C>
where
    S: Service<Req, Future: Send, Response: Send, Error: Send> + Clone + Send + 'static,
    Req: Send + 'static,
    K: KeyExtractor<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    let seat = Arc::new(Seat::new(Arc::clone(&parts), chain, inner, request));
    let core = parts.core();
    let (share, started) = match core.flights.enter(name, Arc::clone(&seat) as _) {
        Ok(entered) => entered,
        Err(full) => {
            let reclaimed = seat.reclaim();
            return crowded(parts, reclaimed, full);
        }
    };
    if let Some(flight) = started {
        launch(core, &flight);
    }
    ResponseFuture::waiting(parts, seat, share)
}

/// Too many wait already: the caller runs alone, or is refused.
fn crowded<S, Req, K, C>(
    parts: Arc<Parts<K, C>>,
    reclaimed: Option<(S, Req)>,
    full: Full,
) -> ResponseFuture<S, Req, K, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    let counts = &parts.core().counts;
    let why = match full {
        Full::Key => {
            counts.crowded_key();
            Bypass::CrowdedKey
        }
        Full::All => {
            counts.crowded();
            Bypass::Crowded
        }
    };
    match reclaimed.filter(|_| parts.core().config.crowded == Crowded::Bypass) {
        Some((inner, request)) => ResponseFuture::alone(parts, inner, request, why),
        None => ResponseFuture::failed(parts, Failure::new(FailureKind::Crowded, None)),
    }
}
