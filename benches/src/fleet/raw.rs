//! The client alone, as the layer sets it up: one connection that all share, Nagle off.

use std::time::Duration;

use bb8_redis::redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, IntoConnectionInfo,
    aio::{MultiplexedConnection, PubSub},
    io::tcp::TcpSettings,
};
use bytes::Bytes;

pub use bb8_redis::redis::cmd;

pub struct Raw {
    client: Client,
    connection: MultiplexedConnection,
}

impl Raw {
    pub async fn connect(url: &str) -> Self {
        let info = url.into_connection_info().expect("an address");
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = Client::open(info).expect("a client");
        let limit = Some(Duration::from_secs(30));
        let config = AsyncConnectionConfig::new().set_response_timeout(limit);
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let connection = connection.await.expect("a connection");
        Self { client, connection }
    }

    pub async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> T {
        let mut connection = self.connection.clone();
        command.query_async(&mut connection).await.expect("an answer")
    }

    pub async fn set(&self, key: &str, value: &[u8]) {
        self.ask(cmd("SET").arg(key).arg(value).arg("PX").arg(30_000)).await
    }

    pub async fn get(&self, key: &str) -> Option<Bytes> {
        let value: Option<Vec<u8>> = self.ask(cmd("GET").arg(key)).await;
        value.map(Bytes::from)
    }

    /// A connection that hears this channel.
    pub async fn subscribe(&self, channel: &str) -> PubSub {
        let mut pubsub = self.client.get_async_pubsub().await.expect("a connection");
        pubsub.subscribe(channel).await.expect("a subscription");
        pubsub
    }

    /// The name that the server gives to a script.
    pub async fn load(&self, script: &str) -> String {
        self.ask(cmd("SCRIPT").arg("LOAD").arg(script)).await
    }
}

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raw").finish_non_exhaustive()
    }
}
