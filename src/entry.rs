//! How a request whose key is known comes into a flight.

use std::{sync::Arc, time::Duration};

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
    log::SharedRun,
    seat::Seat,
    selection::Selection,
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
    if let Some((run, age)) = held::<S, _, _, _>(&parts, &request, &name) {
        return ResponseFuture::held(parts, inner, request, run, age);
    }
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

/// The answer that this process holds, if this caller may have it.
fn held<S, Req, K, C>(
    parts: &Parts<K, C>,
    request: &Req,
    name: &Name,
) -> Option<(SharedRun, Duration)>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    let (run, age) = parts.core().holdings.as_ref()?.get(name)?;
    let fits = |selection: &Selection| {
        let headers = parts.codec.headers(request);
        headers.is_some_and(|headers| selection.fits(headers, name.beside()))
    };
    run.selection.as_deref().is_none_or(fits).then_some((run, age))
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
