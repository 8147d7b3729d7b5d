//! A caller's seat: its request until it is run, and what came of running it.

use std::{
    any::Any,
    sync::{Arc, OnceLock},
};

use tower_service::Service;

use crate::{
    body::Resumed,
    chain::Chain,
    codec::Codec,
    core::Parts,
    frame::Head,
    key::Name,
    log::{Log, Reader},
    selection::{Fields, Selection},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What a caller leaves with a flight. Generic over everything that the table of
/// flights is free of.
pub(crate) struct Seat<S, Req, K, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    pub(crate) parts: Arc<Parts<K, C>>,
    pub(crate) chain: Chain,
    state: Mutex<State<S, Req, C>>,
    /// The request's headers outside the key, once it was run.
    pub(crate) outside: OnceLock<Fields>,
}

pub(crate) enum State<S, Req, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    /// The request waits to be run.
    Held { service: S, request: Req },
    /// It runs, or ran and was dropped; `spare` is one like it.
    Started { spare: Option<(S, Req)> },
    /// It ran; this is for its own caller.
    Answered(OwnOf<S, Req, C>),
    /// The caller has left, or has got what was for it.
    Gone,
}

/// [`Own`], for a service and a codec.
pub(crate) type OwnOf<S, Req, C> = Own<
    <S as Service<Req>>::Response,
    <S as Service<Req>>::Error,
    <C as Codec<Req, <S as Service<Req>>::Response, <S as Service<Req>>::Error>>::Extra,
    <C as Codec<Req, <S as Service<Req>>::Response, <S as Service<Req>>::Error>>::Body,
>;

/// What a run has for the caller whose request it was.
pub(crate) enum Own<Res, E, X, B> {
    /// The answer is shared; `extra` belongs to the one that this reads.
    Shared { reader: Reader, extra: X },
    /// The answer is this caller's alone.
    Private(Res),
    /// The answer was read in part, and then was too large to be shared.
    Resumed { head: Head, extra: X, body: Resumed<B> },
    /// The body broke off before anybody had begun with it; what is read ends with the
    /// reason.
    Broken { head: Arc<Head>, extra: X, reader: Reader },
    /// Inner's error.
    Error(E),
    /// Inner's panic.
    Panic(Box<dyn Any + Send>),
}

impl<Res, E, X, B> Own<Res, E, X, B> {
    /// A short name of what it is, fit for a label.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::Shared { .. } | Self::Private(_) | Self::Resumed { .. } => "answered",
            Self::Broken { .. } => "broken",
            Self::Error(_) => "inner_error",
            Self::Panic(_) => "panic",
        }
    }
}

impl<S, Req, K, C> Seat<S, Req, K, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    pub(crate) fn new(parts: Arc<Parts<K, C>>, chain: Chain, service: S, request: Req) -> Self {
        let state = Mutex::new(State::Held { service, request });
        Self { parts, chain, state, outside: OnceLock::new() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State<S, Req, C>> {
        // Nothing panics while the lock is held, so what is behind it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out what is `wanted`, and leaves nothing. What is not stays where it is: it is
    /// as large as a request or a response, and every look at a flight comes here.
    fn take(&self, wanted: impl FnOnce(&State<S, Req, C>) -> bool) -> Option<State<S, Req, C>> {
        let mut state = self.state();
        wanted(&state).then(|| std::mem::replace(&mut *state, State::Gone))
    }

    /// Takes the request back, to run it alone. `None` once it was started.
    pub(crate) fn reclaim(&self) -> Option<(S, Req)> {
        match self.take(|state| matches!(state, State::Held { .. }))? {
            State::Held { service, request } => Some((service, request)),
            _ => None,
        }
    }

    /// Whether this caller of a key may have an answer that is for those alone whom
    /// `selection` fits.
    pub(crate) fn fits(&self, name: &Name, selection: Option<&Arc<Selection>>) -> bool {
        let Some(selection) = selection else { return true };
        if let Some(outside) = self.outside.get() {
            return selection.fits(&outside[..], name.beside());
        }
        match &*self.state() {
            State::Held { request, .. } => {
                let headers = self.parts.codec.headers(request);
                headers.is_some_and(|headers| selection.fits(headers, name.beside()))
            }
            _ => false,
        }
    }

    /// Whether the request is run, or was.
    pub(crate) fn was_started(&self) -> bool {
        matches!(*self.state(), State::Started { .. } | State::Answered(_))
    }

    /// Takes what is for this caller, unless it is only its part of a shared answer.
    pub(crate) fn take_own(&self) -> Option<OwnOf<S, Req, C>> {
        let is_own = |state: &State<S, Req, C>| match state {
            State::Answered(own) => !matches!(own, Own::Shared { .. }),
            _ => false,
        };
        match self.take(is_own)? {
            State::Answered(own) => Some(own),
            _ => None,
        }
    }

    /// Takes this caller's part of the shared answer in `log`, if that came of its
    /// own request. A request that is still held stays so.
    pub(crate) fn take_shared(&self, log: &Arc<Log>) -> Option<(Reader, C::Extra)> {
        let is_part_of_it = |state: &State<S, Req, C>| match state {
            State::Answered(Own::Shared { reader, .. }) => Arc::ptr_eq(reader.log(), log),
            _ => false,
        };
        match self.take(is_part_of_it)? {
            State::Answered(Own::Shared { reader, extra }) => Some((reader, extra)),
            _ => None,
        }
    }

    /// The caller leaves; what it left is dropped here and now.
    pub(crate) fn vacate(&self) {
        // A request may run anything when it is dropped: not under the lock.
        drop(self.take(|state| !matches!(state, State::Gone)));
    }

    pub(crate) fn answer(&self, own: OwnOf<S, Req, C>) {
        let mut state = self.state();
        // Who has left wants nothing.
        let unwanted = match *state {
            State::Started { .. } => Err(std::mem::replace(&mut *state, State::Answered(own))),
            _ => Ok(own),
        };
        drop(state);
        // A request may run anything when it is dropped: not under the lock.
        drop(unwanted);
    }
}

/// A seat whose caller leaves when this is dropped. What it left may also stay for as
/// long as the caller's share is held.
pub(crate) struct Left<S, Req, K, C>(pub(crate) Option<Arc<Seat<S, Req, K, C>>>)
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>;

impl<S, Req, K, C> Drop for Left<S, Req, K, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    fn drop(&mut self) {
        if let Some(seat) = &self.0 {
            seat.vacate();
        }
    }
}

impl<S, Req, K, C> Left<S, Req, K, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    /// Lets it stay.
    pub(crate) fn stay(mut self) {
        self.0 = None;
    }
}
