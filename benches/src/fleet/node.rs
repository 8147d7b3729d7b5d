//! A simulated process: connections, a keeper and a table of its own.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use tower::{Layer, Service, ServiceExt};
use tower_singleflight::{
    Config, HttpKey, RedisStore, SingleFlight, SingleFlightLayer, store::RedisStoreBuilder,
};

use super::seen::{Seen, Watched};
use crate::work::{self, Body};

pub struct Node {
    pub layer: SingleFlightLayer<HttpKey>,
    /// What its layer asked of the store; nothing where nobody looks.
    pub seen: Arc<Seen>,
}

impl Node {
    /// As an application has it.
    pub async fn connect(url: &str, config: Config) -> Self {
        let store = RedisStore::connect(url).await.expect("a store");
        Self { layer: layer(config).store(store), seen: Arc::default() }
    }

    /// The same, with somebody who looks at what the layer asks of the store.
    pub async fn watched(url: &str, config: Config) -> Self {
        Self::over(RedisStore::builder(url), config).await
    }

    /// The same, where so much begins at once that a machine which does other things would
    /// pass the limit of an operation.
    pub async fn patient(url: &str, config: Config) -> Self {
        let limit = Duration::from_secs(5);
        Self::over(RedisStore::builder(url).operation_limit(limit), config).await
    }

    async fn over(store: RedisStoreBuilder, config: Config) -> Self {
        let seen = Arc::<Seen>::default();
        let store = store.connect().await.expect("a store");
        let store = Watched::new(store, Arc::clone(&seen));
        Self { layer: layer(config).store(store), seen }
    }

    pub fn around<S>(&self, inner: S) -> SingleFlight<S, HttpKey> {
        self.layer.layer(inner)
    }
}

fn layer(config: Config) -> SingleFlightLayer<HttpKey> {
    SingleFlightLayer::new(HttpKey::new()).namespace("bench").config(config)
}

/// One call, from the request to the end of the answer.
pub fn call<S, B>(service: &S, path: &str) -> impl Future<Output = Bytes> + Send + use<S, B>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send,
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Unpin + Send,
{
    ask(service, work::get(path))
}

/// The same, of a request that is there.
pub fn ask<S, B>(
    service: &S,
    request: Request<Body>,
) -> impl Future<Output = Bytes> + Send + use<S, B>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send,
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Unpin + Send,
{
    let answer = service.clone().oneshot(request);
    async move {
        match answer.await {
            Ok(answer) => {
                assert!(answer.status().is_success(), "{}", answer.status());
                work::read(answer).await
            }
            Err(never) => match never {},
        }
    }
}
