//! The service.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::runtime::Handle;
use tower::util::Oneshot;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Span;

use crate::{
    chain::Chain,
    codec::{Codec, HttpCodec},
    core::Parts,
    entry::join,
    future::ResponseFuture,
    key::{Bypass, Key, KeyExtractor, Name},
    layer::SingleFlightLayer,
    shadow::meet,
    telemetry::{Caller, record_key},
};

/// Gives the service it wraps single flight. See the [crate docs](crate).
///
/// It is always ready: inner's own readiness is asked for when inner is about to
/// be run, on the clone that is then called. A follower holds no permit of a limit
/// below.
///
/// Clones share their flights, and so do all services of one layer.
#[derive(Clone)]
pub struct SingleFlight<S, K, C = HttpCodec> {
    inner: S,
    parts: Arc<Parts<K, C>>,
}

impl<S, K> SingleFlight<S, K> {
    /// Wraps `inner` with the default settings and a table of its own, for one
    /// process. Services that are to share come of one [`SingleFlightLayer`].
    #[must_use]
    pub fn new(inner: S, key: K) -> Self
    where
        K: Clone,
    {
        SingleFlightLayer::new(key).layer(inner)
    }

    /// A layer with the default settings.
    pub fn layer(key: K) -> SingleFlightLayer<K> {
        SingleFlightLayer::new(key)
    }
}

impl<S, K, C> SingleFlight<S, K, C> {
    pub(crate) fn from_parts(inner: S, parts: Arc<Parts<K, C>>) -> Self {
        Self { inner, parts }
    }

    /// The service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Takes the service out.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, Req, K, C> Service<Req> for SingleFlight<S, K, C>
where
    S: Service<Req, Future: Send, Response: Send, Error: Send> + Clone + Send + 'static,
    Req: Send + 'static,
    K: KeyExtractor<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    type Response = C::Response;
    type Error = C::Error;
    type Future = ResponseFuture<S, Req, K, C>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let caller = Caller::new();
        let future = {
            let _entered = caller.enter();
            self.begin(request, &caller)
        };
        future.seen_by(caller)
    }
}

impl<S, K, C> SingleFlight<S, K, C> {
    #[expect(clippy::async_yields_async, reason = "the response's future goes on with it")]
    fn begin<Req>(&self, request: Req, caller: &Caller) -> ResponseFuture<S, Req, K, C>
    where
        S: Service<Req, Future: Send, Response: Send, Error: Send> + Clone + Send + 'static,
        Req: Send + 'static,
        K: KeyExtractor<Req>,
        C: Codec<Req, S::Response, S::Error>,
    {
        let parts = Arc::clone(&self.parts);
        let inner = self.inner.clone();
        let chain = Chain::current();
        if parts.codec.is_kept_out(&request) {
            return ResponseFuture::alone(parts, inner, request, Bypass::KeptOut);
        }
        if !parts.core().switch.is_on() {
            return ResponseFuture::alone(parts, inner, request, Bypass::SwitchedOff);
        }
        if parts.key.reads(&request) {
            let read = parts.key.read(request);
            let (entering, span) = (Arc::clone(&parts), caller.span());
            return ResponseFuture::reading(parts, async move {
                let (request, key) = read.await;
                // It may have been switched off meanwhile.
                let is_on = entering.core().switch.is_on();
                let key = if is_on { key } else { Err(Bypass::SwitchedOff) };
                enter(entering, inner, request, key, chain, &span)
            });
        }
        let key = match parts.key.extract(&request) {
            Ok(_) if !parts.key.covers_body() && parts.codec.has_body(&request) => {
                Err(Bypass::Body)
            }
            key => key,
        };
        enter(parts, inner, request, key, chain, &caller.span())
    }
}

/// Lets a request whose key is known join a flight, or run alone.
fn enter<S, Req, K, C>(
    parts: Arc<Parts<K, C>>,
    inner: S,
    request: Req,
    key: Result<Key, Bypass>,
    chain: Chain,
    span: &Span,
) -> ResponseFuture<S, Req, K, C>
where
    S: Service<Req, Future: Send, Response: Send, Error: Send> + Clone + Send + 'static,
    Req: Send + 'static,
    K: KeyExtractor<Req>,
    C: Codec<Req, S::Response, S::Error>,
{
    let name = match key {
        Err(why) => return ResponseFuture::alone(parts, inner, request, why),
        Ok(key) => Name::new(key, &parts.flying().digester),
    };
    record_key(span, &name);
    if chain.contains(&name) {
        return ResponseFuture::alone(parts, inner, request, Bypass::Recursion);
    }
    if Handle::try_current().is_err() {
        return ResponseFuture::alone(parts, inner, request, Bypass::NoRuntime);
    }
    match &parts.core().shadow {
        None => join(parts, inner, request, name, chain),
        Some(shadow) => {
            let witness = meet(&parts, shadow, &request, &name);
            let inner = chain.scope(Arc::new(name), Oneshot::new(inner, request));
            ResponseFuture::shadowed(parts, inner, witness)
        }
    }
}

impl<S: fmt::Debug, K, C> fmt::Debug for SingleFlight<S, K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight").field("inner", &self.inner).finish_non_exhaustive()
    }
}
