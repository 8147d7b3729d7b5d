//! Processes of one fleet: each has a layer, a keeper, a store and connections of its own.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use tokio::{sync::watch, task::JoinHandle};
use tower::{Layer, ServiceExt, util::BoxCloneSyncService};
use tower_singleflight::{
    Config, ConfigBuilder, FlightPhase, HttpKey, RedisStore, ResponseBody, SingleFlightLayer,
};

use crate::{
    beats::{Noted, Sent},
    support::eventually,
};

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;
type Service = BoxCloneSyncService<Request<Full<Bytes>>, Response<ResponseBody<Body>>, Infallible>;

/// Beats that come after all is over.
pub(crate) fn no_beats() -> ConfigBuilder {
    let (lease, beat) = (Duration::from_secs(90), Duration::from_secs(30));
    Config::builder().lease(lease).heartbeat(beat).retention(2 * lease)
}

/// What is asked for: a body, whole or in groups, each when its gate is opened.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) groups: usize,
    pub(crate) group: usize,
}

pub(crate) struct Node {
    pub(crate) layer: SingleFlightLayer<HttpKey>,
    pub(crate) beats: Sent,
    service: Service,
}

pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Node>,
    gate: watch::Sender<usize>,
    asked: Asked,
    /// Bytes that all callers have.
    given: Arc<AtomicUsize>,
}

impl Fleet {
    pub(crate) async fn start(url: &str, n: usize, config: &Config, asked: Asked) -> Self {
        let (gate, _) = watch::channel(0);
        let mut nodes = Vec::new();
        for _ in 0..n {
            // A busy machine is not what is measured.
            let builder = RedisStore::builder(url).operation_limit(Duration::from_secs(5));
            let store = builder.connect().await.expect("a store");
            let beats = Sent::default();
            let layer = SingleFlightLayer::new(HttpKey::new())
                .store(Noted(store, Arc::clone(&beats)))
                .config(config.clone())
                .namespace("scaling")
                .instance("4711@web-3");
            let opened = gate.clone();
            let inner = tower::service_fn(move |_: Request<Full<Bytes>>| {
                let opened = opened.subscribe();
                async move { Ok::<_, Infallible>(answer(asked, opened).await) }
            });
            let service = BoxCloneSyncService::new(layer.layer(inner));
            nodes.push(Node { layer, beats, service });
        }
        Self { nodes, gate, asked, given: Arc::default() }
    }

    /// Asks.
    pub(crate) fn call(
        &self,
        node: usize,
        key: &str,
    ) -> impl Future<Output = Response<ResponseBody<Body>>> + use<> {
        let uri = format!("http://a.test/{key}");
        let request = Request::get(uri).body(Full::default()).expect("a request");
        let service = self.nodes[node].service.clone();
        async move {
            let response = service.oneshot(request).await.expect("an answer");
            assert_eq!(response.status(), 200);
            response
        }
    }

    /// Asks; how many bytes of a body come.
    pub(crate) fn ask(&self, node: usize, key: &str) -> JoinHandle<usize> {
        let (call, given) = (self.call(node, key), Arc::clone(&self.given));
        tokio::spawn(async move {
            let (mut body, mut bytes) = (call.await.into_body(), 0);
            while let Some(frame) = body.frame().await {
                let frame = frame.expect("a whole body").into_data().expect("data");
                bytes += frame.len();
                given.fetch_add(frame.len(), SeqCst);
            }
            bytes
        })
    }

    /// Asks for all keys at one process, and waits until it has this part in all of them.
    pub(crate) async fn all(
        &self,
        node: usize,
        keys: &[String],
        part: FlightPhase,
    ) -> Vec<JoinHandle<usize>> {
        let mut asked = Vec::new();
        for some in keys.chunks(50) {
            asked.extend(some.iter().map(|key| self.ask(node, key)));
            eventually("all have their part", async || {
                let flights = self.nodes[node].layer.flights();
                flights.len() == asked.len() && flights.iter().all(|flight| flight.phase == part)
            })
            .await;
        }
        asked
    }

    pub(crate) fn open(&self, groups: usize) {
        self.gate.send_replace(groups);
    }

    /// All callers get one group more.
    pub(crate) async fn group(&self, callers: usize) {
        let before = self.given.load(SeqCst);
        let opened = *self.gate.borrow();
        self.open(opened + 1);
        eventually("all have it", async || {
            self.given.load(SeqCst) == before + callers * self.asked.group
        })
        .await;
    }

    /// All flights end, and the store knows.
    pub(crate) async fn land(&self, asked: Vec<JoinHandle<usize>>) {
        self.open(self.asked.groups.max(1));
        let bytes = self.asked.groups.max(1) * self.asked.group;
        for asked in asked {
            assert_eq!(asked.await.expect("no panic"), bytes);
        }
        for node in &self.nodes {
            eventually("no flight", async || node.layer.flights().is_empty()).await;
        }
        self.open(0);
    }

    /// Every process owns once and follows once: connections and scripts are there.
    pub(crate) async fn warm(&self) {
        for owner in 0..self.nodes.len() {
            let key = vec![format!("warm-{owner}")];
            let mut asked = self.all(owner, &key, FlightPhase::Owning).await;
            let next = (owner + 1) % self.nodes.len();
            if next != owner {
                asked.extend(self.all(next, &key, FlightPhase::Following).await);
            }
            self.land(asked).await;
        }
    }
}

async fn answer(asked: Asked, mut opened: watch::Receiver<usize>) -> Response<Body> {
    let group = Bytes::from(vec![b'a'; asked.group]);
    if asked.groups == 0 {
        opened.wait_for(|open| *open > 0).await.expect("a gate");
        return Response::new(Full::new(group).boxed_unsync());
    }
    let frames = futures_util::stream::unfold((0, opened), move |(n, mut opened)| {
        let group = group.clone();
        async move {
            if n == asked.groups {
                return None;
            }
            opened.wait_for(|open| *open > n).await.expect("a gate");
            Some((Ok(Frame::data(group)), (n + 1, opened)))
        }
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}
