//! A caller's seat: its request until it is run, and what came of running it.

use std::{
    any::Any,
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::{HeaderMap, HeaderName};
use http_body::Body;
use tokio::time::Instant;
use tower::util::Oneshot;
use tower_service::Service;

use crate::{
    body::Resumed,
    chain::Chain,
    codec::{Codec, FlightToken, Judgement, Opened},
    config::Delivery,
    core::Parts,
    flights::{Brief, Deposit, RunEnd},
    frame::Head,
    intake::{Collected, Intake, unwinding},
    key::{KeyExtractor, Name},
    log::{Log, Reader, Reuse, SharedRun},
    selection::Selection,
    store::BoxFuture,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What a caller leaves with a flight. Generic over everything that the table of
/// flights is free of.
pub(crate) struct Seat<S, Req, K, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    parts: Arc<Parts<K, C>>,
    chain: Chain,
    state: Mutex<State<S, Req, C>>,
    /// The request's headers outside the key, once it was run; boxed where there are any.
    outside: OnceLock<Option<Box<HeaderMap>>>,
}

enum State<S, Req, C>
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

    fn state(&self) -> MutexGuard<'_, State<S, Req, C>> {
        // Nothing panics while the lock is held, so what is behind it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the request back, to run it alone. `None` once it was started.
    pub(crate) fn reclaim(&self) -> Option<(S, Req)> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Held { service, request } => Some((service, request)),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Whether this caller of a key may have an answer that is for those alone whom
    /// `selection` fits.
    pub(crate) fn fits(&self, name: &Name, selection: Option<&Arc<Selection>>) -> bool {
        let Some(selection) = selection else { return true };
        let fits = |headers: &HeaderMap| selection.fits(headers, name.beside());
        if let Some(outside) = self.outside.get() {
            return fits(outside.as_deref().unwrap_or(&HeaderMap::new()));
        }
        match &*self.state() {
            State::Held { request, .. } => self.parts.codec.headers(request).is_some_and(fits),
            _ => false,
        }
    }

    /// Whether the request is run, or was.
    pub(crate) fn was_started(&self) -> bool {
        matches!(*self.state(), State::Started { .. } | State::Answered(_))
    }

    /// Takes what is for this caller, unless it is only its part of a shared answer.
    pub(crate) fn take_own(&self) -> Option<OwnOf<S, Req, C>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Answered(own @ Own::Shared { .. }) => {
                *state = State::Answered(own);
                None
            }
            State::Answered(own) => Some(own),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Takes this caller's part of the shared answer in `log`, if that came of its
    /// own request. A request that is still held stays so.
    pub(crate) fn take_shared(&self, log: &Arc<Log>) -> Option<(Reader, C::Extra)> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Answered(Own::Shared { reader, extra }) if Arc::ptr_eq(reader.log(), log) => {
                Some((reader, extra))
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// The caller leaves; what it left is dropped here and now.
    pub(crate) fn vacate(&self) {
        let left = std::mem::replace(&mut *self.state(), State::Gone);
        // A request may run anything when it is dropped: not under the lock.
        drop(left);
    }

    fn answer(&self, own: OwnOf<S, Req, C>) {
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

impl<S, Req, K, C> Deposit for Seat<S, Req, K, C>
where
    S: Service<Req, Future: Send, Response: Send, Error: Send> + Clone + Send + 'static,
    Req: Send + 'static,
    K: KeyExtractor<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    fn is_repeatable(&self) -> bool {
        matches!(*self.state(), State::Started { spare: Some(_) })
    }

    fn restore(&self) -> bool {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Started { spare: Some((service, request)) } => {
                *state = State::Held { service, request };
                true
            }
            other => {
                *state = other;
                false
            }
        }
    }

    fn start(self: Arc<Self>, brief: Brief) -> Option<BoxFuture<'static, RunEnd>> {
        let mut state = self.state();
        let (service, request) = match std::mem::replace(&mut *state, State::Gone) {
            State::Held { service, request } => (service, request),
            other => {
                *state = other;
                return None;
            }
        };
        let again = self.parts.codec.repeat(&request);
        if let Some(outside) = self.parts.outside(&request) {
            // Run again, it is the same request.
            let _ = self.outside.set((!outside.is_empty()).then(|| Box::new(outside)));
        }
        *state = State::Started { spare: again.map(|again| (service.clone(), again)) };
        drop(state);
        let (chain, name) = (self.chain.clone(), Arc::clone(&brief.name));
        Some(Box::pin(chain.scope(name, self.run(service, request, brief))))
    }
}

impl<S, Req, K, C> Seat<S, Req, K, C>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    /// For how long an answer may be used again, and which callers may have it; `None`
    /// where it is this caller's alone.
    fn judge(
        &self,
        response: &S::Response,
        identified: bool,
        brief: &Brief,
    ) -> Option<(Duration, Option<Arc<Selection>>)> {
        match self.parts.judge(response, identified, brief.reuse) {
            Judgement::Shared { reuse, varies } => Some((reuse, self.select(varies, &brief.name)?)),
            Judgement::Private => None,
        }
    }

    /// Which callers may have an answer that depends on these headers: none where
    /// nothing is known of any caller's.
    fn select(&self, varies: Vec<HeaderName>, name: &Name) -> Option<Option<Arc<Selection>>> {
        if varies.is_empty() {
            return Some(None);
        }
        let outside = self.outside.get()?.as_deref();
        let none = HeaderMap::new();
        let outside = outside.unwrap_or(&none);
        let selection = Selection::of(varies, outside, name.beside());
        Some(Some(Arc::new(selection)))
    }

    async fn run(self: Arc<Self>, service: S, mut request: Req, brief: Brief) -> RunEnd {
        let codec = &self.parts.codec;
        let started = Instant::now();
        let identified = self.parts.key.is_identified(&request);
        let head_only = codec.is_head_only(&request);
        codec.begin(&mut request, brief.token.map(FlightToken::new));
        let response = match unwinding(pin!(Oneshot::new(service, request))).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let report = codec.describe(&error);
                self.answer(Own::Error(error));
                return RunEnd::Failed { report };
            }
            Err(panic) => {
                self.answer(Own::Panic(panic));
                return RunEnd::Failed { report: "inner panicked".into() };
            }
        };
        let Some((reuse, selection)) = self.judge(&response, identified, &brief) else {
            self.answer(Own::Private(response));
            return RunEnd::Private { took: started.elapsed() };
        };
        let reuse = Reuse::lasting(if brief.reuse { reuse } else { Duration::ZERO });
        let Opened { head, promised, extra, body } = match codec.open(response) {
            Ok(opened) => opened,
            Err(response) => {
                self.answer(Own::Private(response));
                return RunEnd::Private { took: started.elapsed() };
            }
        };
        // A server takes the length from the body where the head has none. To HEAD the
        // head speaks of a body that does not come; some servers take it off themselves.
        let promised = promised.filter(|_| !head_only);
        let promised = promised.or_else(|| body.size_hint().exact());
        let log = Log::new(brief.max_share_bytes, promised);
        // There from the start, so that this caller can always begin.
        let Some(reader) = log.reader() else { return RunEnd::TooLarge };
        let mut own = Some((reader, extra));
        let mut run = SharedRun { head: Arc::new(head), log, reuse, selection };
        brief.stage.begin(run.selection.as_ref());
        let head = Arc::clone(&run.head);
        let is_complete = |trailers: Option<&HeaderMap>| codec.is_complete(&head, trailers);
        let intake = Intake {
            log: &run.log,
            stage: &brief.stage,
            promised,
            most: brief.max_share_bytes,
            delivery: if codec.is_streamed() { brief.delivery } else { Delivery::Buffered },
            is_complete: &is_complete,
        };
        let open = || {
            if let Some((reader, extra)) = own.take() {
                self.answer(Own::Shared { reader, extra });
                brief.stage.open(run.clone());
            }
        };
        let collected = intake.collect(body, open).await;
        if let Some(trailers) = run.log.trailers()
            && !codec.is_reusable_after(&trailers)
        {
            run.reuse = Reuse::Never;
        }
        let Some((reader, extra)) = own else {
            return match collected {
                Collected::Whole | Collected::TooLarge(_) => RunEnd::Shared(run),
                Collected::Broken(report) => RunEnd::Failed { report },
            };
        };
        match collected {
            Collected::Whole => {
                self.answer(Own::Shared { reader, extra });
                RunEnd::Shared(run)
            }
            Collected::TooLarge(rest) => {
                let body = Resumed::new(run.log.frames(), rest);
                let head = Head::clone(&run.head);
                self.answer(Own::Resumed { head, extra, body });
                RunEnd::TooLarge
            }
            Collected::Broken(report) => {
                self.answer(Own::Broken { head: run.head, extra, reader });
                RunEnd::Failed { report }
            }
        }
    }
}
