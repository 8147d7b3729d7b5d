//! Spans, as OpenTelemetry exports them.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::BodyExt;
use opentelemetry::{
    Value,
    trace::{
        SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider,
    },
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tokio::sync::Semaphore;
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_singleflight::{
    Config, HttpKey, KeyDigest, MemoryStore, RedisStore, SingleFlightLayer, Store, TraceContext,
    TraceParent,
};
use tracing::{Instrument, Span, info_span, subscriber::DefaultGuard};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

use crate::support::{eventually, redis_server::RedisServer};

struct Otel;

impl TraceContext for Otel {
    fn of(&self, span: &Span) -> Option<TraceParent> {
        let context = span.context();
        let here = context.span().span_context().clone();
        let trace = u128::from_be_bytes(here.trace_id().to_bytes());
        let span = u64::from_be_bytes(here.span_id().to_bytes());
        TraceParent::new(trace, span, here.is_sampled())
    }

    fn link(&self, span: &Span, owner: &TraceParent) {
        let flags = TraceFlags::default().with_sampled(owner.is_sampled());
        let (trace, id) = (TraceId::from(owner.trace_id()), SpanId::from(owner.span_id()));
        span.add_link(SpanContext::new(trace, id, flags, true, TraceState::NONE));
    }
}

/// Spans of this thread go to an exporter of the test's own.
fn exported() -> (InMemorySpanExporter, DefaultGuard) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let otel = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(otel));
    (exporter, guard)
}

type Service = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// A process, whose runs wait for leave.
fn process(store: impl Store, leave: &Arc<Semaphore>) -> (SingleFlightLayer<HttpKey>, Service) {
    let layer =
        SingleFlightLayer::new(HttpKey::new()).store(store).namespace("traces").trace_context(Otel);
    let config = Config::builder().lease(Duration::from_millis(1500)).build().unwrap();
    let layer = layer.config(config);
    let leave = Arc::clone(leave);
    let inner = service_fn(move |_: Request<Body>| {
        let leave = Arc::clone(&leave);
        async move {
            let _leave = leave.acquire().await;
            tracing::info_span!("inner").in_scope(|| {});
            Ok::<_, Infallible>(Response::new(Body::from("answer")))
        }
    });
    let service = layer.layer(inner).map_response(|response| response.map(Body::new));
    (layer, BoxCloneSyncService::new(service))
}

/// A client's call, in a trace of its own.
async fn call(service: &Service, client: &'static str, path: &str) {
    let request = Request::get(format!("http://a.test{path}")).body(Body::empty()).unwrap();
    let call = async {
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "answer");
    };
    call.instrument(info_span!(parent: None, "client", client)).await;
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    let pair = span.attributes.iter().find(|pair| pair.key.as_str() == name)?;
    Some(match &pair.value {
        Value::I64(number) => number.to_string(),
        value => value.as_str().into_owned(),
    })
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> Vec<&'a SpanData> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn in_role<'a>(spans: &'a [SpanData], role: &str) -> Vec<&'a SpanData> {
    let callers = named(spans, "single_flight").into_iter();
    callers.filter(|span| attribute(span, "role").as_deref() == Some(role)).collect()
}

/// Two processes on a Redis of their own.
struct Pair {
    redis: RedisServer,
    leave: Arc<Semaphore>,
    one: SingleFlightLayer<HttpKey>,
    owner: Service,
    two: SingleFlightLayer<HttpKey>,
    other: Service,
}

impl Pair {
    async fn new() -> Self {
        let redis = RedisServer::start();
        let leave = Arc::new(Semaphore::new(0));
        let process = async || process(RedisStore::connect(&redis.url()).await.unwrap(), &leave);
        let ((one, owner), (two, other)) = (process().await, process().await);
        Self { leave, one, owner, two, other, redis }
    }

    /// Calls at the first of them, which owns by the time that `others` begin: they are given
    /// the flight's key, and the name of its record.
    async fn while_it_runs<T>(&self, others: impl AsyncFnOnce(KeyDigest, &str) -> T) -> T {
        let others = async {
            let owns = async || self.one.flights().iter().any(|flight| flight.token.is_some());
            eventually("an owner", owns).await;
            let key = self.one.flights()[0].key;
            others(key, &format!("ai:flight:meta:{{{key}}}")).await
        };
        tokio::join!(call(&self.owner, "a1", "/"), others).1
    }

    /// Lets the run go, as soon as so many callers of the other process follow it.
    async fn let_go(&self, followers: usize) {
        eventually("followers", async || {
            let flights = self.two.flights();
            flights.first().is_some_and(|f| f.token.is_some() && f.callers == followers)
        })
        .await;
        self.leave.add_permits(1);
    }

    /// What is exported, when so many callers are told of.
    async fn spans(&self, exporter: &InMemorySpanExporter, callers: usize) -> Vec<SpanData> {
        let none = async || self.one.flights().is_empty() && self.two.flights().is_empty();
        eventually("drivers are done", none).await;
        let spans = || exporter.get_finished_spans().unwrap();
        eventually("all spans", async || named(&spans(), "single_flight").len() == callers).await;
        spans()
    }
}

#[tokio::test]
async fn followers_are_linked_to_the_owners_trace() {
    let (exporter, _guard) = exported();
    let pair = Pair::new().await;
    let (key, parent) = pair
        .while_it_runs(async |key, meta| {
            let badge = pair.redis.lines(&["HGET", meta, "badge"]);
            let parent: TraceParent = badge[0].split_once(' ').unwrap().1.parse().unwrap();
            let followers = [
                call(&pair.owner, "a2", "/"),
                call(&pair.other, "b1", "/"),
                call(&pair.other, "b2", "/"),
                call(&pair.other, "b3", "/"),
            ];
            let let_go = async {
                eventually("a2", async || pair.one.flights()[0].callers == 2).await;
                pair.let_go(3).await;
            };
            tokio::join!(join_all(followers), let_go);
            (key.to_string(), parent)
        })
        .await;
    let spans = pair.spans(&exporter, 5).await;

    let [owner] = in_role(&spans, "owner")[..] else { panic!("one owner: {spans:?}") };
    let context = &owner.span_context;
    assert_eq!(parent.trace_id(), u128::from_be_bytes(context.trace_id().to_bytes()));
    assert_eq!(parent.span_id(), u64::from_be_bytes(context.span_id().to_bytes()));
    assert_eq!(owner.links.len(), 0);
    let token = attribute(owner, "token").expect("a token");

    let [run] = named(&spans, "flight")[..] else { panic!("one run: {spans:?}") };
    assert_eq!(run.parent_span_id, context.span_id());
    assert_eq!(attribute(run, "outcome").as_deref(), Some("done"));
    assert_eq!(attribute(run, "token").as_ref(), Some(&token));
    let [inner] = named(&spans, "inner")[..] else { panic!("one inner") };
    assert_eq!(inner.parent_span_id, run.span_context.span_id());

    let local = in_role(&spans, "follower_local");
    let remote = in_role(&spans, "follower_remote");
    assert_eq!((local.len(), remote.len()), (1, 3));
    for span in local.into_iter().chain(remote) {
        let [link] = &span.links[..] else { panic!("one link: {:?}", span.links) };
        assert_eq!(link.span_context.trace_id(), context.trace_id());
        assert_eq!(link.span_context.span_id(), context.span_id());
        assert_ne!(span.span_context.trace_id(), context.trace_id());
        assert_eq!(attribute(span, "token").as_ref(), Some(&token));
    }
    for span in named(&spans, "single_flight") {
        assert_eq!(attribute(span, "key").as_ref(), Some(&key));
        assert_eq!(attribute(span, "outcome").as_deref(), Some("answered"));
    }
}

/// A flight that the store has lost goes on under another name, as those hear who watch it.
#[tokio::test]
async fn followers_of_a_newer_flight_are_linked_to_its_owner() {
    let (exporter, _guard) = exported();
    let pair = Pair::new().await;
    pair.while_it_runs(async |_, meta| {
        let token = |layer: &SingleFlightLayer<HttpKey>| layer.flights().first()?.token;
        let let_go = async {
            eventually("a follower", async || token(&pair.two).is_some()).await;
            let lost = token(&pair.two);
            pair.redis.command(&["DEL", meta]);
            let newer = async || token(&pair.one) > lost && token(&pair.two) == token(&pair.one);
            eventually("a newer flight", newer).await;
            pair.let_go(1).await;
        };
        tokio::join!(call(&pair.other, "b1", "/"), let_go);
    })
    .await;
    let spans = pair.spans(&exporter, 2).await;
    let [owner] = in_role(&spans, "owner")[..] else { panic!("one owner: {spans:?}") };
    let [follower] = in_role(&spans, "follower_remote")[..] else { panic!("one: {spans:?}") };
    let [link] = &follower.links[..] else { panic!("one link: {:?}", follower.links) };
    assert_eq!(link.span_context.span_id(), owner.span_context.span_id());
}

/// What stands in the store is no trace of anybody's: nobody is linked, and nothing else
/// goes wrong.
#[tokio::test]
async fn hostile_traces_are_none() {
    let (exporter, _guard) = exported();
    let pair = Pair::new().await;
    pair.while_it_runs(async |_, meta| {
        pair.redis.command(&["HSET", meta, "badge", "me 00-\u{1b}[2J"]);
        tokio::join!(call(&pair.other, "b1", "/"), pair.let_go(1));
    })
    .await;
    let spans = pair.spans(&exporter, 2).await;
    let [follower] = in_role(&spans, "follower_remote")[..] else { panic!("one: {spans:?}") };
    assert!(follower.links.is_empty());
}

/// Of who leaves, of who is alone, of who is refused; and a key is told by its digest.
#[tokio::test(start_paused = true)]
async fn every_way_out_is_told() {
    let (exporter, _guard) = exported();
    let leave = Arc::new(Semaphore::new(0));
    let (layer, service) = process(MemoryStore::new(), &leave);
    let left = tokio::time::timeout(Duration::from_secs(1), call(&service, "gone", "/secret"));
    assert!(left.await.is_err());
    eventually("nothing is in the air", async || layer.flights().is_empty()).await;

    let stopped = Request::get("http://a.test/secret").body(Body::empty()).unwrap();
    let call = tokio::spawn(service.clone().oneshot(stopped));
    eventually("a run", async || layer.flights().iter().any(|f| f.token.is_some())).await;
    layer.fleet().stop(layer.flights()[0].key).await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().status(), 503);

    leave.add_permits(1);
    let alone = Request::put("http://a.test/secret").body(Body::empty()).unwrap();
    assert_eq!(service.oneshot(alone).await.unwrap().status(), 200);

    let spans = exporter.get_finished_spans().unwrap();
    let callers = named(&spans, "single_flight").into_iter();
    let mut told: Vec<_> =
        callers.map(|span| (attribute(span, "role"), attribute(span, "outcome"))).collect();
    told.sort();
    let words =
        |role: Option<&str>, outcome: &str| (role.map(str::to_owned), Some(outcome.to_owned()));
    assert_eq!(
        told,
        [words(None, "left"), words(Some("bypass"), "answered"), words(Some("failed"), "stopped"),]
    );
    let mut runs: Vec<_> =
        named(&spans, "flight").iter().map(|s| attribute(s, "outcome")).collect();
    runs.sort();
    assert_eq!(runs, [Some("stopped".to_owned()), Some("unwanted".to_owned())]);
    assert!(!format!("{spans:?}").contains("secret"));
}
