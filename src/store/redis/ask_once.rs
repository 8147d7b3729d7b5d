//! One question, on a connection that ends with its answer.

use std::time::Duration;

use bb8_redis::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ProtocolVersion, RedisError, Value,
    aio::ConnectionLike,
};

/// Asks. To connect may take this long; the answer is timed by whoever waits for it.
pub(super) async fn ask_once(
    place: &ConnectionInfo,
    question: &Cmd,
    limit: Duration,
) -> Result<Value, RedisError> {
    // A name for the connection would need one right more.
    let settings =
        place.redis_settings().clone().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
    let client = Client::open(place.clone().set_redis_settings(settings))?;
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(limit)).set_response_timeout(None);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    connection.req_packed_command(question).await
}
