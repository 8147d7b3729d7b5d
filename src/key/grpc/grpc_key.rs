//! The key for gRPC.

use std::{collections::BTreeSet, fmt, sync::Arc};

use http::{HeaderName, Method, Request};
use http_body::Body;
use tower::BoxError;

use super::message::{is_grpc, is_one_message};
use crate::key::{
    Bypass, Key, KeyExtractor, ReadBody, RequestView,
    body::{BODY_LIMIT, read_request, write},
    rules::Rules,
};

/// The key of a gRPC call: method, authority, message, and all metadata but a
/// [published list of noise](crate::key::NOISE), which has `grpc-timeout`,
/// `user-agent` and the headers of traces.
///
/// It shares the methods that it is told, since nothing in a request says whether
/// more messages will follow; all others run alone and are not touched. For
/// [`SingleFlightLayer::grpc`](crate::SingleFlightLayer::grpc), which answers with
/// gRPC statuses.
///
/// **Only name methods that a client sends one message to**: unary ones, and those
/// whose answer is a stream. A call of another kind, if named, is held back until
/// its client has sent all, and then runs alone. Their handlers must only answer,
/// since one run stands for many callers.
///
/// The message is read before the call joins a flight; a call runs alone when its
/// message is larger than [`message_limit`](Self::message_limit), when it has none
/// or several, and when it speaks gRPC-Web: place the layer below the one that
/// translates that.
///
/// # Streams
///
/// An answer that is there at once, as that of a unary method is, is handed out whole.
/// A stream goes to all callers message by message, as they come, and who comes late
/// gets all of it from the start; see [`Delivery`](crate::Delivery). Its status ends it
/// for all: an error status is an answer like any other, though never reused.
///
/// A stream that breaks off, also one that ends without a status, is reset, which
/// clients know as `INTERNAL`. Where its owner is lost, callers elsewhere go on with the
/// next run if that begins with the very messages they have, and else are told so.
/// Streams of which this is to be true give the same messages each time.
///
/// # Deadlines
///
/// A run has the layer's time limits and not those of the caller who happened to
/// start it: `grpc-timeout` is taken off its request. Each caller's own deadline is
/// kept by its client, and by servers that heed it above the layer, as that of tonic
/// does until the answer begins; it ends that caller's waiting and no run that others
/// wait for.
///
/// # Examples
///
/// All services of a server:
///
/// ```no_run
/// use tonic::{body::Body, transport::Server};
/// use tower_singleflight::{GrpcKey, SingleFlightLayer};
///
/// # async fn f(reports: tonic::service::Routes) -> Result<(), Box<dyn std::error::Error>> {
/// let key = GrpcKey::new(Body::new)
///     .method("/reports.Reports/Get")
///     .method("/reports.Reports/List");
/// Server::builder()
///     .layer(SingleFlightLayer::grpc(key))
///     .add_routes(reports)
///     .serve("127.0.0.1:50051".parse()?)
///     .await?;
/// # Ok(()) }
/// ```
///
/// One service; `named_layer` keeps the name that the server routes by:
///
/// ```
/// use tonic::{body::Body, service::LayerExt};
/// use tower_singleflight::{GrpcKey, SingleFlightLayer};
///
/// # fn f<S: tonic::server::NamedService + Clone + Send + Sync + 'static>(reports: S)
/// # where S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = std::convert::Infallible, Future: Send>
/// # {
/// let key = GrpcKey::new(Body::new).method("/reports.Reports/Get");
/// let reports = SingleFlightLayer::grpc(key).named_layer(reports);
/// let routes = tonic::service::Routes::new(reports);
/// # }
/// ```
#[derive(Clone)]
pub struct GrpcKey<F> {
    give_back: F,
    rules: Arc<Rules>,
    calls: Arc<Calls>,
}

#[derive(Clone)]
struct Calls {
    /// By path.
    methods: BTreeSet<Box<str>>,
    limit: usize,
}

impl<F> GrpcKey<F> {
    /// A key that shares no method yet. `give_back` turns what was read of a body,
    /// and the rest, into the type of body that the service takes: for tonic it is
    /// `tonic::body::Body::new`.
    #[must_use]
    pub fn new<B>(give_back: F) -> Self
    where
        F: Fn(ReadBody<B>) -> B + Clone + Send + Sync + 'static,
    {
        let calls = Calls { methods: BTreeSet::new(), limit: BODY_LIMIT };
        Self { give_back, rules: Arc::default(), calls: Arc::new(calls) }
    }

    /// Shares a method, named by its path: `/package.Service/Method`.
    ///
    /// Default: none.
    #[must_use]
    pub fn method(mut self, path: impl AsRef<str>) -> Self {
        let path = path.as_ref();
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = format!("{slash}{path}").into_boxed_str();
        Arc::make_mut(&mut self.calls).methods.insert(path);
        self
    }

    /// Shares these methods too. See [`method`](Self::method).
    #[must_use]
    pub fn methods(self, paths: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        paths.into_iter().fold(self, Self::method)
    }

    /// The most bytes of a message that are read for its key. A larger one goes to
    /// inner whole, as it comes, and its call is not shared.
    ///
    /// Default: 1 MiB.
    #[must_use]
    pub fn message_limit(mut self, bytes: usize) -> Self {
        Arc::make_mut(&mut self.calls).limit = bytes;
        self
    }

    /// Uses this name in place of the authority that a call names, for fleets that
    /// answer alike under several names.
    ///
    /// Default: the authority of the call.
    #[must_use]
    pub fn authority(mut self, fixed: impl Into<String>) -> Self {
        self.rules().set_authority(fixed.into());
        self
    }

    /// Leaves metadata out of the key: calls that differ in it alone get **the same
    /// answer**.
    ///
    /// Default: the names in [`NOISE`](crate::key::NOISE).
    #[must_use]
    pub fn ignore(mut self, name: impl Into<HeaderName>) -> Self {
        self.rules().ignore(&name.into());
        self
    }

    /// Takes metadata into the key, also such as is in [`NOISE`](crate::key::NOISE).
    ///
    /// Default: everything but what is there.
    #[must_use]
    pub fn cover(mut self, name: impl Into<HeaderName>) -> Self {
        self.rules().cover(&name.into());
        self
    }

    /// Lets the calls for which this says `true` run alone. Called several times,
    /// one `true` is enough.
    ///
    /// Default: none.
    #[must_use]
    pub fn bypass_if<P>(mut self, predicate: P) -> Self
    where
        P: Fn(RequestView<'_>) -> bool + Send + Sync + 'static,
    {
        self.rules().bypass_if(Arc::new(predicate));
        self
    }

    fn rules(&mut self) -> &mut Rules {
        Arc::make_mut(&mut self.rules)
    }

    fn names<B>(&self, request: &Request<B>) -> bool {
        *request.method() == Method::POST
            && self.calls.methods.contains(request.uri().path())
            && is_grpc(request.headers())
    }

    fn fits<B: Body>(&self, body: &B) -> bool {
        body.size_hint().lower() <= self.limit() as u64
    }

    /// With what frames a message.
    fn limit(&self) -> usize {
        self.calls.limit.saturating_add(5)
    }
}

impl<B, F> KeyExtractor<Request<B>> for GrpcKey<F>
where
    B: Body<Error: Into<BoxError>> + Send + 'static,
    F: Fn(ReadBody<B>) -> B + Clone + Send + Sync + 'static,
{
    /// Never has a key: that of a call is found by [`read`](KeyExtractor::read).
    fn extract(&self, request: &Request<B>) -> Result<Key, Bypass> {
        Err(match request.body() {
            _ if !self.names(request) => Bypass::Method,
            body if self.fits(body) => Bypass::Body,
            _ => Bypass::BodyTooLarge,
        })
    }

    fn reads(&self, request: &Request<B>) -> bool {
        let body = request.body();
        self.names(request) && !body.is_end_stream() && self.fits(body)
    }

    fn read(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = (Request<B>, Result<Key, Bypass>)> + Send + 'static {
        let head = self.rules.head(RequestView::new(&request));
        read_request(request, head, self.limit(), self.give_back.clone(), |whole, key| {
            if !is_one_message(&whole.data) {
                return Err(Bypass::Body);
            }
            write(b"grpc", blake3::hash(&whole.data), whole.trailers.as_ref(), key);
            Ok(())
        })
    }

    fn covers_header(&self, name: &HeaderName) -> bool {
        self.rules.covers(name)
    }
}

impl<F> fmt::Debug for GrpcKey<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("GrpcKey");
        self.rules.debug(&mut out);
        out.field("methods", &self.calls.methods)
            .field("limit", &self.calls.limit)
            .finish_non_exhaustive()
    }
}
