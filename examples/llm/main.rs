//! A chat completions gateway in the shape of OpenAI's API, over a simulated model:
//! all who ask the same at once, in any process, get the tokens of one run.
//!
//! ```text
//! cargo run --example llm
//! cargo run --example llm -- --listen 127.0.0.1:3001 --store redis://127.0.0.1/
//! ```
//!
//! It prints lines to try, and has a page that asks twice. Clients of OpenAI's API work
//! with `http://127.0.0.1:3000/v1` as their base URL and any key.

use std::{error::Error, net::SocketAddr, process::ExitCode, time::Duration};

use axum::{
    Router,
    body::Body,
    http::header,
    response::Html,
    routing::{get, post},
    serve::ListenerExt,
};
use tower_singleflight::{
    HttpKey, RedisStore, SingleFlightLayer,
    key::{BodyKey, Json, PointerError, ReadBody},
};

mod api;
mod chat;
mod model;
#[path = "../shared/mod.rs"]
mod shared;

use self::shared::{Args, listen, told_to_end};

const USAGE: &str = "usage: llm [--listen HOST:PORT] [--store redis://...]";

type GiveBack = fn(ReadBody<Body>) -> Body;
type ChatKey = HttpKey<BodyKey<GiveBack, Json>>;

/// What makes two requests the same.
fn key() -> Result<ChatKey, PointerError> {
    // Not named here, and therefore in the key: `authorization`. Callers with different
    // API keys never share, whatever they ask. To share between them as well, let the
    // gateway check API keys above this layer, and `.ignore(header::AUTHORIZATION)`.
    //
    // In the key by the same rule is all of the body: `model`, `messages`, `tools`,
    // `seed`, `temperature`, `response_format`, `max_tokens`, `n`, `stream` and
    // `stream_options`, and whatever a later API adds. Each of them can change the
    // answer or its form. To leave one out is to answer one question with another's
    // answer, so only what says who asks, and nothing of what is asked, is left out:
    let mut key = HttpKey::new()
        .json_body(Body::new as GiveBack)
        // For the upstream's watch over abuse, and its own caches.
        .leave_out("/user")?
        .leave_out("/safety_identifier")?
        .leave_out("/prompt_cache_key")?
        // Labels of stored completions. This gateway stores none; one that passes
        // `store` on to an upstream has a reason to keep them in.
        .leave_out("/metadata")?
        // Several of these servers are one service, on several ports.
        .authority("llm");
    // Browsers, curl and SDKs say different things here. Nothing below the layer reads
    // them, so the answer cannot depend on them. (What SDKs say of themselves by
    // `user-agent` and `x-stainless-*` is not in the key anyhow.)
    for name in [header::ACCEPT, header::ACCEPT_ENCODING, header::ACCEPT_LANGUAGE, header::ORIGIN] {
        key = key.ignore(name);
    }
    Ok(key)
}

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let args = Args::read(USAGE, "127.0.0.1:3000")?;
    tracing_subscriber::fmt().with_env_filter("warn").init();
    let mut layer = SingleFlightLayer::new(key()?);
    if let Some(url) = &args.store {
        layer = layer.store(RedisStore::connect(url).await?);
    }
    // The layer is around what is slow, and nothing else.
    let app = Router::new()
        .route("/v1/chat/completions", post(chat::completions))
        .layer(layer.clone())
        .route("/v1/models", get(chat::models))
        .route("/", get(Html(include_str!("page.html"))));

    let listener = listen(&args.listen).await?;
    say(listener.local_addr()?, args.store.is_some());
    // A token is not to wait for the client to confirm the one before.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let leaving = async move {
        told_to_end().await;
        // Another server takes over what is still running here after five seconds.
        layer.drain(Duration::from_secs(5)).await;
    };
    Ok(axum::serve(listener, app).with_graceful_shutdown(leaving).await?)
}

fn say(address: SocketAddr, fleet: bool) {
    let curl = |stream: &str| {
        let ask = format!(
            r#"{{"model":"slow-1",{stream}"messages":[{{"role":"user","content":"why?"}}]}}"#
        );
        println!(
            "  curl -N http://{address}/v1/chat/completions -H 'content-type: application/json' -d '{ask}'"
        );
    };
    println!("listening on http://{address}");
    println!("  open it in a browser, or ask from two terminals at once and see one run:");
    curl(r#""stream":true,"#);
    curl("");
    println!("  the base URL for OpenAI's clients is http://{address}/v1");
    match fleet {
        true => println!("  other servers with the same --store share its runs"),
        false => println!("  with --store redis://... several servers share their runs"),
    }
}
