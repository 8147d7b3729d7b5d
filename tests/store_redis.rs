//! The Redis store, held to the store protocol on a real server.
#![cfg(feature = "redis")]

mod conformance;
mod support;

use std::{sync::Arc, time::Duration};

use tower_singleflight::{RedisStore, Store};

use self::{conformance::Engine, support::redis_server::RedisServer};

struct Redis(RedisServer);

impl Engine for Redis {
    async fn node(&self) -> Arc<dyn Store> {
        Arc::new(RedisStore::connect(&self.0.unix_url()).await.expect("the server of this test"))
    }

    // The server's clock is real: what is tested here is that time passes.
    async fn elapse(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

conformance::conformance!((), Redis(RedisServer::start()));
