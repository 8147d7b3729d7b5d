//! Three servers of one service: two with layers that meet on one Redis, and one without.

use std::net::SocketAddr;

use axum::{Router, body::Body, extract::Request};
use http::{HeaderMap, HeaderValue, Method, Response, Version, header::TE};
use hyper::body::Incoming;
use tower::ServiceBuilder;
use tower_singleflight::{
    Abandon, Config, FlightPhase, HttpKey, RedisStore, SingleFlightLayer,
    key::{BodyKey, Raw, ReadBody},
};

use super::answers::ROWS;
use crate::{
    machine::redis_server::RedisServer,
    net,
    support::{Full, Gate, Req, Runs, callers, ms, until},
};

/// What serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stack {
    Axum,
    Hyper,
}

type Layer = SingleFlightLayer<HttpKey<BodyKey<fn(ReadBody<Body>) -> Body, Raw>>>;

pub(crate) struct Fleet {
    pub(crate) nodes: [Layer; 2],
    pub(crate) servers: [SocketAddr; 2],
    /// The server without the layer.
    pub(crate) alone: SocketAddr,
    /// One connection to each.
    http2: Vec<(SocketAddr, net::Client)>,
    /// Of the two with the layer.
    pub(crate) runs: Runs,
    pub(crate) gate: Gate,
    _redis: RedisServer,
}

impl Fleet {
    pub(crate) async fn start(stack: Stack) -> Self {
        let redis = RedisServer::start();
        let (runs, gate, open) = (Runs::default(), Gate::new(), Gate::new());
        open.open();
        // Its beats are too far apart to be seen.
        let config = Config::builder().lease(ms(60_000)).retention(ms(120_000)).reuse(ms(60_000));
        // axum has no use for a body that nobody is to get, and hangs up on it.
        let config = config.abandon(Abandon::Finish).build().unwrap();
        let (mut nodes, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            // A busy machine is no store that is away.
            let store = RedisStore::builder(redis.url())
                .operation_limit(ms(10_000))
                .connect()
                .await
                .unwrap();
            let key = HttpKey::new().authority("fleet").raw_body(Body::new as fn(_) -> _);
            let node = SingleFlightLayer::new(key).store(store).namespace("alike");
            let node = node.config(config.clone());
            servers.push(serve(stack, Some(&node), &runs, &gate).await);
            nodes.push(node);
        }
        let alone = serve(stack, None, &Runs::default(), &open).await;
        let mut http2 = Vec::new();
        for server in [servers[0], servers[1], alone] {
            http2.push((server, net::http2(server).await));
        }
        Self {
            nodes: nodes.try_into().unwrap_or_else(|_| unreachable!()),
            servers: servers.try_into().unwrap(),
            alone,
            http2,
            runs,
            gate,
            _redis: redis,
        }
    }

    /// Callers in the air in both.
    pub(crate) fn waiting(&self) -> usize {
        self.nodes.iter().map(callers).sum()
    }

    /// Waits until so many callers are in flights that the store knows of.
    pub(crate) async fn until_waiting(&self, count: usize) {
        until("all callers", || self.waiting() == count).await;
        until("all flights", || {
            let mut flights = self.nodes.iter().flat_map(Layer::flights);
            flights.all(|flight| flight.phase != FlightPhase::Joining)
        })
        .await;
    }

    /// A connection of its own, or on HTTP/2 one that all share.
    pub(crate) async fn connect(&self, server: SocketAddr, version: Version) -> net::Client {
        let shared =
            self.http2.iter().find(|(one, _)| *one == server && version == Version::HTTP_2);
        match shared {
            Some((_, net::Client::Http2(client))) => net::Client::Http2(client.clone()),
            _ => net::http1(server).await,
        }
    }
}

async fn serve(stack: Stack, node: Option<&Layer>, runs: &Runs, gate: &Gate) -> SocketAddr {
    let (runs, gate) = (runs.clone(), gate.clone());
    let handler = move |request: Request| {
        let (runs, gate) = (runs.clone(), gate.clone());
        async move {
            let Some(row) = request.uri().path().strip_prefix("/row/") else {
                return Response::new(Body::from("again"));
            };
            let run = runs.begin();
            gate.passed().await;
            run.finish();
            // axum takes the body off itself.
            let bare = stack == Stack::Hyper && request.method() == Method::HEAD;
            ROWS[row.parse::<usize>().unwrap()].answer(bare)
        }
    };
    match stack {
        Stack::Axum => {
            let app = Router::new().fallback(handler);
            net::axum(node.map_or_else(|| app.clone(), |node| app.clone().layer(node.clone())))
                .await
        }
        Stack::Hyper => {
            let inner = tower::service_fn(move |request| {
                let answer = handler(request);
                async move { Ok::<_, std::convert::Infallible>(answer.await) }
            });
            let body = |request: http::Request<Incoming>| request.map(Body::new);
            let outer = ServiceBuilder::new().map_request(body);
            match node {
                Some(node) => net::hyper(outer.layer(node.clone()).service(inner)).await,
                None => net::hyper(outer.service(inner)).await,
            }
        }
    }
}

pub(crate) const VERSIONS: [Version; 3] = [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2];

/// A request of a client that takes trailers.
pub(crate) fn request(version: Version, method: &Method, path: &str) -> Req {
    let mut request = crate::support::get(path);
    request.method_mut().clone_from(method);
    *request.version_mut() = version;
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    if version == Version::HTTP_11 {
        // Allowed only where `connection` names it.
        request.headers_mut().insert("connection", HeaderValue::from_static("te"));
    }
    if *method == Method::POST {
        *request.body_mut() = Full::from("a question");
    }
    request
}

/// One that runs alone.
pub(crate) fn again(version: Version) -> Req {
    let mut again = request(version, &Method::GET, "/again");
    let range =
        HeaderMap::from_iter([(http::header::RANGE, HeaderValue::from_static("bytes=0-9"))]);
    again.headers_mut().extend(range);
    again
}
