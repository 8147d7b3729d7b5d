//! The layer.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use http::HeaderName;
use tower_layer::Layer;

use crate::{
    codec::{HttpCodec, Repeat, ValueCodec},
    config::Config,
    core::{Core, Parts},
    key::Digester,
    policy::SharePolicy,
    record::Sealer,
    service::SingleFlight,
    store::Store,
    telemetry::Telemetry,
    trace::TraceContext,
};

/// Gives every service it wraps single flight: of all identical requests in the
/// air, one is executed and all are answered. See the [crate docs](crate).
///
/// All services of one layer, and of its clones, share their flights. Setters give
/// a new layer that shares nothing with those made before.
///
/// # Examples
///
/// One process, with all defaults:
///
/// ```
/// use tower::ServiceBuilder;
/// use tower_singleflight::{HttpKey, SingleFlightLayer};
///
/// # async fn answer(_: http::Request<http_body_util::Empty<bytes::Bytes>>) -> Result<http::Response<String>, std::convert::Infallible> { Ok(http::Response::new(String::new())) }
/// let service = ServiceBuilder::new()
///     .layer(SingleFlightLayer::new(HttpKey::new()))
///     .service_fn(answer);
/// ```
///
/// A fleet, with settings of its own:
///
/// ```no_run
/// use std::time::Duration;
/// use tower_singleflight::{Config, HttpKey, RedisStore, SingleFlightLayer};
///
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::builder().hard_timeout(Duration::from_secs(600)).build()?;
/// let layer = SingleFlightLayer::new(HttpKey::new())
///     .store(RedisStore::connect("redis://127.0.0.1/").await?)
///     .namespace("reports v2")
///     .config(config);
/// # Ok(()) }
/// ```
#[must_use = "a layer does nothing until it wraps a service"]
pub struct SingleFlightLayer<K, C = HttpCodec> {
    key: K,
    codec: C,
    plan: Plan,
    /// Made when it is first needed, then shared by all clones.
    parts: Arc<OnceLock<Arc<Parts<K, C>>>>,
}

#[derive(Clone)]
struct Plan {
    config: Config,
    namespace: Option<String>,
    secret: Option<Vec<u8>>,
    store: Option<Arc<dyn Store>>,
    name: Option<String>,
    instance: Option<String>,
    trace: Option<Arc<dyn TraceContext>>,
}

impl<K> SingleFlightLayer<K> {
    /// A layer for HTTP services, with this key and all defaults.
    pub fn new(key: K) -> Self {
        Self::with_codec(key, HttpCodec::default())
    }

    /// A layer for gRPC services, with this key and all defaults. Where the layer
    /// fails a caller it answers with a gRPC status. See
    /// [`GrpcKey`](crate::GrpcKey).
    ///
    /// ```
    /// use tonic::body::Body;
    /// use tower_singleflight::{GrpcKey, SingleFlightLayer};
    ///
    /// let key = GrpcKey::new(Body::new).method("/reports.Reports/Get");
    /// let layer = SingleFlightLayer::grpc(key);
    /// ```
    pub fn grpc(key: K) -> Self {
        Self::with_codec(key, HttpCodec::default().grpc())
    }
}

impl<K, T> SingleFlightLayer<K, ValueCodec<T>> {
    /// A layer for services whose responses are values of a type that serde knows,
    /// with this key and all defaults. Its error is
    /// [`FlightError`](crate::FlightError); see [`ValueCodec`] for what is shared.
    ///
    /// Keys are often bare numbers or names, so that layers for values of different kinds on
    /// one [`store`](Self::store) need a [`namespace`](Self::namespace) each.
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// use tower::{BoxError, ServiceBuilder, ServiceExt};
    /// use tower_singleflight::{SingleFlightLayer, key_fn};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Report {
    ///     pages: u32,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), BoxError> {
    /// let reports = ServiceBuilder::new()
    ///     .layer(SingleFlightLayer::values(key_fn(|year: &u32| Some(year.to_string()))))
    ///     .service_fn(async |year: u32| Ok::<_, std::io::Error>(Report { pages: year % 100 }));
    ///
    /// let report = reports.oneshot(2024).await?;
    /// assert_eq!(report.pages, 24);
    /// # Ok(()) }
    /// ```
    pub fn values(key: K) -> Self {
        Self::with_codec(key, ValueCodec::new())
    }
}

impl<K, C> SingleFlightLayer<K, C> {
    /// A layer for services whose responses `codec` knows.
    pub fn with_codec(key: K, codec: C) -> Self {
        let (config, store) = (Config::default(), None);
        let (namespace, secret, name, instance, trace) = Default::default();
        let plan = Plan { config, namespace, secret, store, name, instance, trace };
        Self { key, codec, plan, parts: Arc::default() }
    }

    fn change(mut self, change: impl FnOnce(&mut Plan)) -> Self {
        change(&mut self.plan);
        self.parts = Arc::default();
        self
    }

    /// The store that processes meet on. Default: a [`MemoryStore`](crate::MemoryStore) of the layer's
    /// own, for one process. Where several layers of a process are given one store, each
    /// needs its own [`namespace`](Self::namespace), unless they are to share.
    pub fn store(self, store: impl Store) -> Self {
        self.change(|plan| plan.store = Some(Arc::new(store)))
    }

    /// The settings. Default: [`Config::default`].
    pub fn config(self, config: Config) -> Self {
        self.change(|plan| plan.config = config)
    }

    /// What is set apart from others on the same store: one for each service, and
    /// for each form of its answers that others could not read. Default: the file
    /// name of the executable.
    ///
    /// Two services with one namespace and equal requests would wait for each
    /// other, and get each other's answers. So would two layers of one process, say for
    /// users and for orders, both asked for `7`: where two on a store that others can come
    /// to have the default, the log has a warning, once.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        self.change(|plan| plan.namespace = Some(namespace))
    }

    /// The layer's name, the label `layer` of its metrics: see [`telemetry`](crate::telemetry).
    /// Layers of one name are counted together. Default: the
    /// [`namespace`](Self::namespace).
    pub fn name(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.change(|plan| plan.name = Some(name))
    }

    /// The name of this process, which lies beside the flights that it owns, for those who
    /// look at them: see [`fleet`](Self::fleet). Of it 64 letters are kept, and what is not
    /// printable ASCII becomes `?`. Default: the process's number and its host's name, as
    /// `4711@web-3`.
    pub fn instance(self, instance: impl Into<String>) -> Self {
        let instance = instance.into();
        self.change(|plan| plan.instance = Some(instance))
    }

    /// How spans are found in their traces and linked, by the tracing backend in use, so
    /// that who follows a run is linked to the trace of who owns it, in another process
    /// too. Default: spans are linked to nothing.
    ///
    /// What travels with a flight for it, in the store, is the owner's `traceparent`: the
    /// ids of its trace and span, and nothing of a request. See [`TraceContext`] for one
    /// with OpenTelemetry.
    pub fn trace_context(self, trace: impl TraceContext) -> Self {
        self.change(|plan| plan.trace = Some(Arc::new(trace)))
    }

    /// A secret of the fleet that key digests and the checksums of answers are made with,
    /// so that who can read the store cannot test guesses of requests against it, and who
    /// can write to it cannot forge an answer. Default: none.
    ///
    /// All processes of a fleet need the same one: with different ones they do not meet.
    pub fn secret(self, secret: impl Into<Vec<u8>>) -> Self {
        let secret = secret.into();
        self.change(|plan| plan.secret = Some(secret))
    }
}

impl<K, R> SingleFlightLayer<K, HttpCodec<R>> {
    /// Makes requests without a body again, with the empty body that `empty` gives,
    /// so that a caller whose run is lost with its lease can have another one.
    ///
    /// Without it such a caller follows the next owner, and where there is none its
    /// run goes on for it alone, or it gets a 503.
    ///
    /// ```
    /// use axum::body::Body;
    /// use tower_singleflight::{HttpKey, SingleFlightLayer};
    ///
    /// let layer = SingleFlightLayer::new(HttpKey::new()).repeat_with(Body::empty);
    /// ```
    pub fn repeat_with<F>(self, empty: F) -> SingleFlightLayer<K, HttpCodec<Repeat<F>>> {
        let Self { key, codec, plan, parts: _ } = self;
        let codec = codec.repeat_with(empty);
        SingleFlightLayer { key, codec, plan, parts: Arc::default() }
    }
}

impl<K, R> SingleFlightLayer<K, HttpCodec<R>> {
    fn with(self, change: impl FnOnce(HttpCodec<R>) -> HttpCodec<R>) -> Self {
        let Self { key, codec, plan, parts: _ } = self;
        Self { key, codec: change(codec), plan, parts: Arc::default() }
    }

    /// Decides with whom responses are shared, by their heads. Default:
    /// [`DefaultSharePolicy`](crate::DefaultSharePolicy). See [`SharePolicy`] for an
    /// example, and [`Share`](crate::Share) for what inner can say of one response.
    pub fn share_policy(self, policy: impl SharePolicy) -> Self {
        self.with(|codec| codec.share_policy(policy))
    }

    /// Gives this response header to its own caller only. Default: those of
    /// [`PER_REQUEST`](crate::PER_REQUEST), and what HTTP says is about one connection. See
    /// [`keep_header`](Self::keep_header) for an example.
    pub fn drop_header(self, name: impl Into<HeaderName>) -> Self {
        self.with(|codec| codec.drop_header(name))
    }

    /// Gives this response header to all callers, also if it is one of
    /// [`PER_REQUEST`](crate::PER_REQUEST). Headers about one connection are given to
    /// nobody else in any case.
    ///
    /// ```
    /// use http::HeaderName;
    /// use tower_singleflight::{HttpKey, SingleFlightLayer};
    ///
    /// let layer = SingleFlightLayer::new(HttpKey::new())
    ///     .drop_header(HeaderName::from_static("x-served-by"))
    ///     .keep_header(HeaderName::from_static("x-trace-id"));
    /// ```
    pub fn keep_header(self, name: impl Into<HeaderName>) -> Self {
        self.with(|codec| codec.keep_header(name))
    }

    /// Whether responses say in `cache-status` (RFC 9211) how they came about: shared or
    /// not, and where the layer fails a caller, why. Default: they do.
    pub fn cache_status(self, told: bool) -> Self {
        self.with(|codec| codec.cache_status(told))
    }

    /// Whether responses have a [`FlightRole`](crate::FlightRole) in their extensions. With
    /// neither it nor [`cache_status`](Self::cache_status), a request that bypasses costs no
    /// allocation. Default: they have.
    pub fn flight_role(self, told: bool) -> Self {
        self.with(|codec| codec.flight_role(told))
    }
}

impl<K: Clone, C: Clone> SingleFlightLayer<K, C> {
    pub(crate) fn parts(&self) -> &Arc<Parts<K, C>> {
        self.parts.get_or_init(|| {
            let Plan { config, namespace, secret, store, name, instance, trace } =
                self.plan.clone();
            let is_named = namespace.is_some();
            let namespace = namespace.unwrap_or_else(executable);
            let digester = Digester::new(&namespace, secret.as_deref());
            let sealer = Sealer::new(secret.as_deref());
            let name = name.as_deref().unwrap_or(&namespace);
            let telemetry = Telemetry::new(name, instance.as_deref(), trace);
            let core = Core::new(config, digester, sealer, store, telemetry);
            let core = Arc::new(if is_named { core } else { core.unnamed() });
            Arc::new(Parts::new(self.key.clone(), self.codec.clone(), core))
        })
    }
}

fn executable() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(std::path::Path::file_name);
    name.map_or_else(|| env!("CARGO_PKG_NAME").into(), |name| name.to_string_lossy().into_owned())
}

impl<S, K: Clone, C: Clone> Layer<S> for SingleFlightLayer<K, C> {
    type Service = SingleFlight<S, K, C>;

    fn layer(&self, inner: S) -> Self::Service {
        SingleFlight::from_parts(inner, Arc::clone(self.parts()))
    }
}

impl<K: Clone, C: Clone> Clone for SingleFlightLayer<K, C> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            codec: self.codec.clone(),
            plan: self.plan.clone(),
            parts: Arc::clone(&self.parts),
        }
    }
}

impl<K, C> fmt::Debug for SingleFlightLayer<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlightLayer")
            .field("config", &self.plan.config)
            .field("store", &self.plan.store)
            .finish_non_exhaustive()
    }
}
