//! One node: a layer, a store, and a way to the server.

use std::{sync::Arc, time::Duration};

use tower::Layer;
use tower_singleflight::{
    Config, FlightInfo, HttpKey, RedisStore, SingleFlight, SingleFlightLayer, Stats,
};

use crate::{
    BEAT, LEASE, OPT, RETENTION,
    call::Call,
    inner::{Inner, Service},
    proxy::{Proxy, Scripts},
};

pub(crate) struct Node {
    pub(crate) layer: SingleFlightLayer<HttpKey>,
    pub(crate) proxy: Proxy,
    service: SingleFlight<Service, HttpKey>,
}

impl Node {
    pub(crate) async fn start(
        server: u16,
        scripts: &Arc<Scripts>,
        prefix: &str,
        inner: &Arc<Inner>,
    ) -> Self {
        Self::patient(server, scripts, prefix, inner, OPT).await
    }

    /// One with this limit of an operation.
    pub(crate) async fn patient(
        server: u16,
        scripts: &Arc<Scripts>,
        prefix: &str,
        inner: &Arc<Inner>,
        limit: Duration,
    ) -> Self {
        let proxy = Proxy::aimed(server, Arc::clone(scripts)).await;
        let store =
            RedisStore::builder(proxy.url()).prefix(prefix).operation_limit(limit).pool_size(2);
        let store = store.connect().await.unwrap();
        let config = Config::builder().lease(LEASE).heartbeat(BEAT).retention(RETENTION);
        let layer = SingleFlightLayer::new(HttpKey::new())
            .store(store)
            .namespace("network")
            .config(config.build().unwrap());
        let service = layer.layer(inner.service());
        Self { layer, proxy, service }
    }

    pub(crate) fn call(&self, path: &str) -> Call {
        Call::new(self.service.clone(), path)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.layer.stats()
    }

    /// The only flight in the air.
    pub(crate) fn flight(&self) -> Option<FlightInfo> {
        let [flight] = &self.layer.flights()[..] else { return None };
        Some(flight.clone())
    }
}
