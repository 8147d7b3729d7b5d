//! `POST /llm`: what stands for a model that answers token by token.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension, Json,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_singleflight::FlightToken;

use super::{
    body::line,
    work::{Inner, Run},
};

/// The most bytes of a request: more than a key reads, so that those that are too
/// large for a key are seen to pass through.
pub(crate) const MOST_BYTES: usize = 64 * 1024 * 1024;
/// A whole answer is held in memory.
const MOST_TOKENS: usize = 1_000_000;

/// What of a request matters here; whatever else is in it makes another key of it.
#[derive(Debug, Deserialize)]
#[serde(default)]
struct Ask {
    stream: bool,
    max_tokens: usize,
    gap_ms: u64,
}

impl Default for Ask {
    fn default() -> Self {
        Self { stream: false, max_tokens: 16, gap_ms: 50 }
    }
}

pub(crate) async fn llm(
    State(inner): State<Arc<Inner>>,
    token: Option<Extension<FlightToken>>,
    body: Bytes,
) -> Response {
    let ask: Ask = match serde_json::from_slice(&body) {
        Ok(ask) => ask,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    if ask.max_tokens > MOST_TOKENS {
        let message = format!("max_tokens ({}) must be at most {MOST_TOKENS}", ask.max_tokens);
        return (StatusCode::BAD_REQUEST, message).into_response();
    }
    let (run, _) = inner.begin("llm");
    let token = token.map_or(0, |Extension(token)| token.get());
    let tokens = Tokens { line: line(token), next: 0, ask, run };
    if tokens.ask.stream { events(tokens) } else { whole(tokens).await }
}

/// The answer's tokens, each at its time.
struct Tokens {
    line: String,
    next: usize,
    ask: Ask,
    run: Run,
}

impl Tokens {
    /// The next token, or none when the run is finished.
    async fn next(&mut self) -> Option<String> {
        let place = self.next;
        if place == self.ask.max_tokens {
            self.run.finish();
            return None;
        }
        if place > 0 {
            tokio::time::sleep(Duration::from_millis(self.ask.gap_ms)).await;
        }
        self.next += 1;
        Some(if place == 0 { self.line.clone() } else { format!("token {place} ") })
    }

    fn is_last(&self) -> bool {
        self.next == self.ask.max_tokens
    }
}

async fn whole(mut tokens: Tokens) -> Response {
    let mut content = String::new();
    while let Some(token) = tokens.next().await {
        content.push_str(&token);
    }
    let message = json!({ "role": "assistant", "content": content });
    Json(document("chat.completion", "message", &message, true)).into_response()
}

fn events(tokens: Tokens) -> Response {
    let events = stream::unfold(Some(tokens), async |tokens| {
        let mut tokens = tokens?;
        Some(match tokens.next().await {
            Some(token) => {
                let delta = json!({ "content": token });
                let last = tokens.is_last();
                let chunk = document("chat.completion.chunk", "delta", &delta, last);
                (Ok::<_, Infallible>(format!("data: {chunk}\n\n")), Some(tokens))
            }
            None => (Ok("data: [DONE]\n\n".to_owned()), None),
        })
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

fn document(object: &str, part: &str, text: &Value, last: bool) -> Value {
    let reason = if last { json!("length") } else { Value::Null };
    json!({
        "object": object,
        "choices": [{ "index": 0, part: text, "finish_reason": reason }],
    })
}
