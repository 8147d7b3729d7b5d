//! The future of a response.

use std::{
    fmt,
    panic::resume_unwind,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::{task::futures::TaskLocalFuture, time::Sleep};
use tower::util::Oneshot;
use tower_service::Service;

use crate::{
    body::Replay,
    cache_status::FlightRole,
    chain::Chain,
    codec::Codec,
    core::Parts,
    error::{Failure, FailureKind},
    flights::{Flight, Share},
    heard::{Heard, unreadable, vanished},
    key::{Bypass, KeyExtractor},
    log::SharedRun,
    probing::Probing,
    seat::{Own, Seat},
    store::BoxFuture,
    telemetry::Caller,
    turns::{Turn, Turns},
    waiting::Waiting,
    witness::Witness,
};

pin_project! {
    /// The future of [`SingleFlight`](crate::SingleFlight).
    ///
    /// Dropped, it gives up this caller's share of the flight; the run goes on
    /// while another caller holds one, in any process. Where the key covers the
    /// request's body, that is read first; until then there is nothing to give up.
    pub struct ResponseFuture<S, Req, K, C>
    where
        S: Service<Req>,
        C: Codec<Req, S::Response, S::Error>,
    {
        parts: Arc<Parts<K, C>>,
        #[pin]
        state: State<S, Req, K, C>,
        caller: Caller,
    }
}

pin_project! {
    #[project = StateProj]
    #[project_replace = StateOwn]
    enum State<S, Req, K, C>
    where
        S: Service<Req>,
        C: Codec<Req, S::Response, S::Error>,
    {
        Alone { #[pin] inner: Oneshot<S, Req>, why: Bypass, probing: Option<Probing> },
        /// Run all the same, and compared with what others get.
        Shadowed {
            #[pin]
            inner: TaskLocalFuture<Chain, Oneshot<S, Req>>,
            // Boxed: the hasher that it has is larger than all of what most callers hold.
            witness: Option<Box<Witness>>,
        },
        /// The request is read for its key, and in no flight.
        Reading { reading: BoxFuture<'static, ResponseFuture<S, Req, K, C>> },
        Waiting { #[pin] waiting: Waiting<S, Req, K, C> },
        /// This process holds an answer for it.
        Held { run: Option<(SharedRun, Duration)>, left: Option<(S, Req)> },
        /// The layer fails it without a flight.
        Failed { failure: Option<Failure> },
        /// Let go together with others, it waits for its turn.
        InLine { turn: Turn, left: Option<(S, Req)>, limit: Option<Pin<Box<Sleep>>> },
        Done,
    }
}

impl<S, Req, K, C> ResponseFuture<S, Req, K, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    fn new(parts: Arc<Parts<K, C>>, state: State<S, Req, K, C>) -> Self {
        Self { parts, state, caller: Caller::unseen() }
    }

    /// The same, for a caller that is watched.
    pub(crate) fn seen_by(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    pub(crate) fn alone(parts: Arc<Parts<K, C>>, service: S, request: Req, why: Bypass) -> Self {
        let inner = Oneshot::new(service, request);
        Self::new(parts, State::Alone { inner, why, probing: None })
    }

    /// `inner` is run as it would be without the layer; `witness` sees what it gives.
    pub(crate) fn shadowed(
        parts: Arc<Parts<K, C>>,
        inner: TaskLocalFuture<Chain, Oneshot<S, Req>>,
        witness: Witness,
    ) -> Self {
        Self::new(parts, State::Shadowed { inner, witness: Some(Box::new(witness)) })
    }

    /// `read` ends in what comes after the request was read.
    pub(crate) fn reading(
        parts: Arc<Parts<K, C>>,
        read: impl Future<Output = Self> + Send + 'static,
    ) -> Self {
        Self::new(parts, State::Reading { reading: Box::pin(read) })
    }

    /// Gets an answer that this process holds, of a flight that ended so long ago.
    pub(crate) fn held(
        parts: Arc<Parts<K, C>>,
        service: S,
        request: Req,
        run: SharedRun,
        age: Duration,
    ) -> Self {
        let left = Some((service, request));
        Self::new(parts, State::Held { run: Some((run, age)), left })
    }

    pub(crate) fn failed(parts: Arc<Parts<K, C>>, failure: Failure) -> Self {
        Self::new(parts, State::Failed { failure: Some(failure) })
    }

    pub(crate) fn waiting(
        parts: Arc<Parts<K, C>>,
        seat: Arc<Seat<S, Req, K, C>>,
        share: Share,
    ) -> Self {
        let waiting = Waiting::new(seat, share, parts.core().config.wait_limit);
        Self::new(parts, State::Waiting { waiting })
    }
}

impl<S, Req, K, C> Future for ResponseFuture<S, Req, K, C>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    type Output = Result<C::Response, C::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let codec = &this.parts.codec;
        let core = this.parts.core();
        let (counts, caller) = (&core.counts, &*this.caller);
        let _entered = caller.enter();
        let answered = |role, outcome, flight: Option<&Flight>| {
            caller.answered(core, role, outcome, flight);
        };
        loop {
            let (heard, share) = match this.state.as_mut().project() {
                StateProj::Alone { inner, why, probing } => {
                    let result = ready!(inner.poll(cx));
                    let (why, probing) = (*why, probing.take());
                    let role = FlightRole::Bypass(why);
                    this.state.set(State::Done);
                    counts.bypassed(why);
                    answered(role, told(&result), None);
                    return Poll::Ready(match (result, probing) {
                        (Ok(response), Some(probing)) => {
                            Ok(probing.see(this.parts, response, role))
                        }
                        (Ok(response), None) => Ok(codec.pass(response, role)),
                        (Err(error), _) => Err(codec.error(error)),
                    });
                }
                StateProj::Shadowed { inner, witness } => {
                    let result = ready!(inner.poll(cx));
                    let witness = witness.take();
                    this.state.set(State::Done);
                    counts.bypassed(Bypass::Shadow);
                    let role = FlightRole::Bypass(Bypass::Shadow);
                    answered(role, told(&result), None);
                    return Poll::Ready(match (result, witness) {
                        (Ok(response), Some(witness)) => {
                            Ok(witness.see(this.parts, response, role))
                        }
                        (Ok(response), None) => Ok(codec.pass(response, role)),
                        (Err(error), _) => Err(codec.error(error)),
                    });
                }
                StateProj::Reading { reading } => {
                    let ResponseFuture { state, .. } = ready!(reading.as_mut().poll(cx));
                    this.state.set(state);
                    continue;
                }
                StateProj::Waiting { waiting } => {
                    ready!(waiting.poll(cx, this.parts.core(), codec.is_streamed()))
                }
                StateProj::Held { run, .. } => {
                    let found = run.take();
                    // It is whole, and can be begun with.
                    let Some((reader, (run, age))) =
                        found.and_then(|found| Some((found.0.log.reader()?, found)))
                    else {
                        return Poll::Pending;
                    };
                    counts.reused_local();
                    let role = FlightRole::Reused { age };
                    (Heard::Shared { run, reader, extra: None, role }, None)
                }
                StateProj::Failed { failure } => match failure.take() {
                    Some(failure) => (Heard::Failed(failure), None),
                    None => return Poll::Pending,
                },
                StateProj::InLine { turn, left, limit } => {
                    if Pin::new(turn).poll(cx).is_ready() {
                        let Some((service, request)) = left.take() else { return Poll::Pending };
                        this.state.set(State::alone(service, request, None));
                        continue;
                    }
                    match limit {
                        Some(limit) => ready!(limit.as_mut().poll(cx)),
                        None => return Poll::Pending,
                    }
                    (Heard::Failed(Failure::new(FailureKind::WaitedTooLong, None)), None)
                }
                // As every future: it is not polled again.
                StateProj::Done => return Poll::Pending,
            };
            let flight = caller.flight(share.as_ref());
            let result = match heard {
                Heard::Alone { service, request, together: false, probe } => {
                    let probing = probe.map(|probe| Probing::new(probe, this.parts, &request));
                    this.state.set(State::alone(service, request, probing));
                    continue;
                }
                Heard::Alone { service, request, .. } => {
                    let turns = this.parts.core().turns.as_ref();
                    this.state.as_mut().let_go(service, request, turns);
                    continue;
                }
                Heard::Shared { run: SharedRun { head, selection, .. }, reader, extra, role } => {
                    let stays = extra.is_none() && !reader.log().has_ended();
                    let body = Replay::new(Arc::clone(&head), selection, reader, share);
                    if let Some(response) = codec.replay(&head, extra, body, role) {
                        if stays {
                            this.state.as_mut().stay();
                        }
                        counts.answered(role);
                        answered(role, ANSWERED, flight.as_deref());
                        Ok(response)
                    } else {
                        counts.bad_records();
                        tracing::warn!("a shared answer cannot be read");
                        if let Some((service, request)) = this.state.as_mut().reclaim() {
                            let turns = this.parts.core().turns.as_ref();
                            this.state.as_mut().let_go(service, request, turns);
                            continue;
                        }
                        counts.failed();
                        caller.failed(core, FailureKind::Unreadable);
                        codec.failure(unreadable())
                    }
                }
                Heard::Failed(failure) => {
                    counts.failed();
                    caller.failed(core, failure.kind());
                    codec.failure(failure)
                }
                Heard::Own(own) => {
                    counts.owner();
                    answered(FlightRole::Owner, own.outcome(), flight.as_deref());
                    match own {
                        Own::Private(response) => Ok(codec.pass(response, FlightRole::Owner)),
                        Own::Resumed { head, extra, body } => {
                            Ok(codec.resume(&head, extra, body, FlightRole::Owner))
                        }
                        Own::Broken { head, extra, reader } => {
                            let body = Replay::new(Arc::clone(&head), None, reader, None);
                            let own = codec.replay(&head, Some(extra), body, FlightRole::Owner);
                            own.map_or_else(|| codec.failure(unreadable()), Ok)
                        }
                        Own::Error(error) => Err(codec.error(error)),
                        Own::Panic(panic) => {
                            this.state.set(State::Done);
                            resume_unwind(panic)
                        }
                        // Comes with the flight's verdict, never alone.
                        Own::Shared { .. } => codec.failure(vanished()),
                    }
                }
            };
            this.state.set(State::Done);
            return Poll::Ready(result);
        }
    }
}

/// What is told of who has an answer.
const ANSWERED: &str = "answered";

fn told<T, E>(result: &Result<T, E>) -> &'static str {
    if result.is_ok() { ANSWERED } else { "inner_error" }
}

impl<S, Req, K, C> State<S, Req, K, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    /// Leaves the request with the flight, should the owner of what is read be lost.
    fn stay(self: Pin<&mut Self>) {
        if let StateProj::Waiting { waiting } = self.project()
            && let Some(seat) = waiting.project().seat.take()
        {
            seat.stay();
        }
    }

    fn alone(service: S, request: Req, probing: Option<Probing>) -> Self {
        Self::Alone { inner: Oneshot::new(service, request), why: Bypass::Unshared, probing }
    }

    /// Runs a request alone, when its turn comes where there are turns.
    fn let_go(mut self: Pin<&mut Self>, service: S, request: Req, turns: Option<&Arc<Turns>>) {
        let Some(turns) = turns else { return self.set(Self::alone(service, request, None)) };
        let limit = match self.as_mut().project() {
            StateProj::Waiting { waiting } => waiting.project().limit.take(),
            _ => None,
        };
        self.set(Self::InLine { turn: turns.turn(), left: Some((service, request)), limit });
    }

    /// Takes back a request that nobody has run.
    fn reclaim(self: Pin<&mut Self>) -> Option<(S, Req)> {
        match self.project() {
            StateProj::Waiting { waiting } => waiting.seat.as_ref()?.0.as_ref()?.reclaim(),
            StateProj::Held { left, .. } => left.take(),
            _ => None,
        }
    }
}

impl<S, Req, K, C> fmt::Debug for ResponseFuture<S, Req, K, C>
where
    S: Service<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
