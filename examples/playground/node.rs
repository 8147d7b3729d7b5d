//! One node of the fleet: the service, the layer around it, and what it tells of both.

use std::{
    io::{self, Write},
    time::Duration,
};

use axum::{Router, body::Body, routing::get, serve::ListenerExt};
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedSender, unbounded_channel},
};
use tower_singleflight::{
    Config, ConfigError, HttpCodec, HttpKey, MemoryStore, RedisStore, SingleFlightLayer,
    codec::Repeat,
};

use crate::{
    args::Pace,
    report::{Report, State},
    work::{self, Desk},
};

/// Between two reports of the node's state.
const TELL: Duration = Duration::from_millis(100);

type Layer = SingleFlightLayer<HttpKey, HttpCodec<Repeat<fn() -> Body>>>;

/// The layer, but for its store.
fn layer(pace: Pace) -> Result<Layer, ConfigError> {
    // Several ports are one service here.
    let key = HttpKey::new().authority("playground");
    let config = Config::builder().lease(pace.lease).hard_timeout(pace.takes * 10);
    Ok(SingleFlightLayer::new(key)
        .namespace("playground")
        .config(config.build()?)
        // A caller whose run is lost can own again, and not only follow.
        .repeat_with(Body::empty as fn() -> Body))
}

/// A node that is a process of its own: it tells on its stdout.
pub(crate) async fn process(
    name: String,
    redis: &str,
    pace: Pace,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // More than the default: a machine that three nodes are tried on is often a busy one.
    let store = RedisStore::builder(redis).operation_limit(pace.lease / 4);
    let store = match store.clone().connect().await {
        Ok(store) => store,
        // Cut off before it was started.
        Err(_) => store.connect_lazy()?,
    };
    let layer = layer(pace)?.store(store);
    let (tell, mut reports) = unbounded_channel();
    let serving = tokio::spawn(serve(name, layer, pace, tell));
    while let Some(report) = reports.recv().await {
        let mut line = serde_json::to_vec(&report)?;
        line.push(b'\n');
        let mut out = io::stdout().lock();
        // Nobody reads any more: the playground is gone, and so is this.
        out.write_all(&line)?;
        out.flush()?;
    }
    Ok(serving.await??)
}

/// A node inside this process, on a store that it shares with its like.
pub(crate) async fn inside(
    name: String,
    store: MemoryStore,
    pace: Pace,
    tell: UnboundedSender<Report>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let layer = layer(pace)?.store(store);
    Ok(serve(name, layer, pace, tell).await?)
}

async fn serve(
    name: String,
    layer: Layer,
    pace: Pace,
    tell: UnboundedSender<Report>,
) -> io::Result<()> {
    let desk = Desk::new(name, pace.takes, tell.clone());
    let app = Router::new()
        .route("/answer", get(work::answer))
        .route("/stream", get(work::words))
        .layer(layer.clone())
        .with_state(desk.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let _ = tell.send(Report::Listening(listener.local_addr()?));
    // A word is not to wait for the client to confirm the one before.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let telling = async move {
        let mut ticks = tokio::time::interval(TELL);
        loop {
            ticks.tick().await;
            if tell.send(Report::State(State::of(&layer, desk.runs()))).is_err() {
                return;
            }
        }
    };
    tokio::select! {
        result = async { axum::serve(listener, app).await } => result,
        () = telling => Ok(()),
    }
}
