//! Running the request of a seat, and taking in what comes of it.

use std::{any::Any, ops::ControlFlow, pin::Pin, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName};
use http_body::Body;
use tower::util::Oneshot;
use tower_service::Service;

use crate::{
    body::Resumed,
    codec::{Codec, FlightToken, Judgement, Opened},
    config::Delivery,
    flights::{Brief, Deposit, RunEnd},
    frame::Head,
    intake::{Collected, Intake},
    key::{KeyExtractor, Name},
    log::{Log, Reader, Reuse, SharedRun},
    seat::{Own, Seat, State},
    selection::Selection,
    store::BoxFuture,
    then::{then, unwinding},
};

/// What is known of a request that is run.
struct Asked {
    identified: bool,
    head_only: bool,
}

/// An answer whose body is yet to be read.
struct Begun<X, B> {
    run: SharedRun,
    /// Of its own caller, until it is told that it may begin.
    own: Option<(Reader, X)>,
    promised: Option<u64>,
    // Boxed, since what is left of one that is too large moves on to its own caller.
    body: Option<Pin<Box<B>>>,
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
            let _ = self.outside.set(outside);
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
    /// Runs a request. Inner's future and then what reads its answer share their room.
    fn run(
        self: Arc<Self>,
        service: S,
        mut request: Req,
        brief: Brief,
    ) -> impl Future<Output = RunEnd> + Send
    where
        S: Service<Req, Future: Send, Response: Send, Error: Send> + Send,
        Req: Send,
    {
        let codec = &self.parts.codec;
        let asked = Asked {
            identified: self.parts.key.is_identified(&request),
            head_only: codec.is_head_only(&request),
        };
        codec.begin(&mut request, brief.token.map(FlightToken::new));
        let inner = unwinding(Oneshot::new(service, request));
        then(inner, move |came| match self.begin(came, &asked, &brief) {
            Ok(begun) => ControlFlow::Continue(self.read(begun, brief)),
            Err(end) => ControlFlow::Break(end),
        })
    }

    /// Takes an answer apart that others may have; else how the run has ended.
    fn begin(
        &self,
        came: Result<Result<S::Response, S::Error>, Box<dyn Any + Send>>,
        asked: &Asked,
        brief: &Brief,
    ) -> Result<Begun<C::Extra, C::Body>, RunEnd> {
        let codec = &self.parts.codec;
        let response = match came {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let report = codec.describe(&error);
                self.answer(Own::Error(error));
                return Err(RunEnd::Failed { report });
            }
            Err(panic) => {
                self.answer(Own::Panic(panic));
                return Err(RunEnd::Failed { report: "inner panicked".into() });
            }
        };
        let private = |response| {
            self.answer(Own::Private(response));
            RunEnd::Private { took: brief.stage.age() }
        };
        let Some((reuse, selection)) = self.judge(&response, asked.identified, brief) else {
            return Err(private(response));
        };
        let reuse = Reuse::lasting(if brief.reuse { reuse } else { Duration::ZERO });
        let Opened { head, promised, extra, body } = codec.open(response).map_err(private)?;
        // A server takes the length from the body where the head has none. To HEAD the
        // head speaks of a body that does not come; some servers take it off themselves.
        let promised = promised.filter(|_| !asked.head_only);
        let promised = promised.or_else(|| body.size_hint().exact());
        let log = Log::new(brief.max_share_bytes, promised);
        // There from the start, so that this caller can always begin.
        let reader = log.reader().ok_or(RunEnd::TooLarge)?;
        let run = SharedRun { head: Arc::new(head), log, reuse, selection };
        brief.stage.begin(run.selection.as_ref());
        Ok(Begun { run, own: Some((reader, extra)), promised, body: Some(Box::pin(body)) })
    }

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
        let selection = Selection::of(varies, &self.outside.get()?[..], name.beside());
        Some(Some(Arc::new(selection)))
    }

    /// Reads an answer to its end.
    #[expect(clippy::manual_async_fn, reason = "that would hold what it is given twice")]
    fn read(
        self: Arc<Self>,
        mut begun: Begun<C::Extra, C::Body>,
        brief: Brief,
    ) -> impl Future<Output = RunEnd> + Send
    where
        S: Service<Req, Response: Send, Error: Send> + Send,
        Req: Send,
    {
        async move {
            let codec = &self.parts.codec;
            let Begun { run, own, promised, body } = &mut begun;
            let Some(body) = body.take() else { return RunEnd::TooLarge };
            let head = &run.head;
            let is_complete = |trailers: Option<&HeaderMap>| codec.is_complete(head, trailers);
            let intake = Intake {
                log: &run.log,
                stage: &brief.stage,
                promised: *promised,
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
            self.end(begun, collected)
        }
    }

    /// What comes of an answer that was read as far as it can be shared.
    fn end(&self, begun: Begun<C::Extra, C::Body>, collected: Collected<C::Body>) -> RunEnd {
        let Begun { mut run, own, .. } = begun;
        if let Some(trailers) = run.log.trailers()
            && !self.parts.codec.is_reusable_after(&trailers)
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
