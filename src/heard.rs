//! What a caller hears of its flight.

use tower_service::Service;

use crate::{
    cache_status::FlightRole,
    codec::Codec,
    error::{Failure, FailureKind},
    flights::Origin,
    key::Name,
    lease::Probe,
    log::{Reader, SharedRun},
    seat::{OwnOf, Seat},
};

/// What a caller hears of its flight.
pub(crate) enum Heard<S, Req, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    Own(OwnOf<S, Req, C>),
    Shared { run: SharedRun, reader: Reader, extra: Option<C::Extra>, role: FlightRole },
    Alone { service: S, request: Req, together: bool, probe: Option<Box<Probe>> },
    Failed(Failure),
}

/// What a caller hears of an answer for all.
pub(crate) fn hear<S, Req, K, C>(
    seat: &Seat<S, Req, K, C>,
    name: &Name,
    run: SharedRun,
    origin: Origin,
) -> Heard<S, Req, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    if let Some((reader, extra)) = seat.take_shared(&run.log) {
        return Heard::Shared { run, reader, extra: Some(extra), role: FlightRole::Owner };
    }
    if !seat.fits(name, run.selection.as_ref()) {
        return alone(seat, true);
    }
    let role = match origin {
        Origin::Here => FlightRole::FollowerLocal,
        Origin::Elsewhere => FlightRole::FollowerRemote,
        Origin::Reused { age } => FlightRole::Reused { age },
    };
    match run.log.reader() {
        Some(reader) => Heard::Shared { run, reader, extra: None, role },
        // Its start is gone.
        None => alone(seat, true),
    }
}

/// What a caller hears that is to run its own request.
pub(crate) fn alone<S, Req, K, C>(seat: &Seat<S, Req, K, C>, together: bool) -> Heard<S, Req, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    match seat.reclaim() {
        Some((service, request)) => Heard::Alone { service, request, together, probe: None },
        // It was run, and that run was lost.
        None => Heard::Failed(vanished()),
    }
}

pub(crate) fn vanished() -> Failure {
    Failure::new(FailureKind::OwnerVanished, None)
}

pub(crate) fn unreadable() -> Failure {
    Failure::new(FailureKind::Unreadable, None)
}
