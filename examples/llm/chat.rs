//! The handlers. They know nothing of single flight: a run's id and time are made here,
//! so all who share the run see the same.

use std::{
    convert::Infallible,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json,
    body::Bytes,
    http::StatusCode,
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};

use crate::{
    api::{Answer, Ask, Choice, Chunk, ChunkChoice, Completion, Delta, Head, Usage},
    model::{self, Run},
};

/// `GET /v1/models`.
pub(crate) async fn models() -> Json<Value> {
    Json(json!({
        "object": "list",
        "data": [{ "id": model::NAME, "object": "model", "created": 0, "owned_by": "nobody" }],
    }))
}

/// `POST /v1/chat/completions`.
pub(crate) async fn completions(body: Bytes) -> Response {
    let ask: Ask = match serde_json::from_slice(&body) {
        Ok(ask) => ask,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.to_string(), None),
    };
    if ask.model != model::NAME {
        let code = Some("model_not_found");
        return refuse(StatusCode::NOT_FOUND, "there is no such model: see /v1/models", code);
    }
    let run = Run::new(&ask);
    match ask.stream {
        Some(true) => {
            let usage = ask.stream_options.and_then(|options| options.include_usage);
            let chunks = Chunks::new(run, usage.unwrap_or(false));
            Sse::new(chunks.events()).into_response()
        }
        _ => whole(run).await,
    }
}

/// An error in the form that clients read.
fn refuse(status: StatusCode, message: &str, code: Option<&str>) -> Response {
    let kind = "invalid_request_error";
    let error = json!({ "message": message, "type": kind, "param": null, "code": code });
    (status, Json(json!({ "error": error }))).into_response()
}

fn head(object: &'static str) -> Head {
    let id = format!("chatcmpl-{:032x}", rand::random::<u128>());
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Head { id, object, created: since.as_secs(), model: model::NAME.to_owned() }
}

fn usage(run: &Run) -> Usage {
    let (prompt_tokens, completion_tokens) = run.counts();
    Usage { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens }
}

async fn whole(mut run: Run) -> Response {
    let head = head("chat.completion");
    let mut content = String::new();
    while let Some(token) = run.next().await {
        content.push_str(&token);
    }
    let message = Answer { role: "assistant", content, refusal: None };
    let choice = Choice { index: 0, message, finish_reason: run.reason() };
    Json(Completion { head, choices: [choice], usage: usage(&run) }).into_response()
}

/// A streamed answer.
struct Chunks {
    head: Head,
    run: Run,
    with_usage: bool,
}

impl Chunks {
    fn new(run: Run, with_usage: bool) -> Self {
        Self { head: head("chat.completion.chunk"), run, with_usage }
    }

    /// The role, the tokens one by one, why there are no more, what they cost where that
    /// was asked for, and the mark of the end.
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        let role = Delta { role: Some("assistant"), content: Some(String::new()) };
        let first = self.chunk(Some((role, None)), None);
        let rest = stream::unfold(Some(self), async |chunks| {
            let mut chunks = chunks?;
            match chunks.run.next().await {
                Some(token) => {
                    let delta = Delta { role: None, content: Some(token) };
                    Some((vec![chunks.chunk(Some((delta, None)), None)], Some(chunks)))
                }
                None => Some((chunks.end(), None)),
            }
        });
        stream::iter([vec![first]]).chain(rest).flat_map(stream::iter).map(Ok)
    }

    fn end(&self) -> Vec<Event> {
        let mut events = vec![self.chunk(Some((Delta::default(), Some(self.run.reason()))), None)];
        if self.with_usage {
            events.push(self.chunk(None, Some(usage(&self.run))));
        }
        events.push(Event::default().data("[DONE]"));
        events
    }

    fn chunk(&self, choice: Option<(Delta, Option<&'static str>)>, usage: Option<Usage>) -> Event {
        let choice =
            choice.map(|(delta, finish_reason)| ChunkChoice { index: 0, delta, finish_reason });
        let chunk = Chunk {
            head: &self.head,
            choices: choice.into_iter().collect(),
            usage: self.with_usage.then_some(usage),
        };
        // Nothing in a chunk is beyond JSON.
        Event::default().data(serde_json::to_string(&chunk).unwrap_or_default())
    }
}
