//! The page, what it hears, and what its buttons do.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, Query, Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN},
    },
    middleware::{Next, from_fn},
    response::{
        Html, IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::{get, post},
};
use futures_util::{Stream, StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{
    callers::{Callers, MOST},
    fleet::{Deed, Fleet},
    redis::Scripts,
    report::Kind,
    scene::{NAMES, Watched},
    story::Tone,
    view,
};

/// The page is told no more often.
const PACE: Duration = Duration::from_millis(100);

/// All that the page shows and does.
#[derive(Debug)]
pub(crate) struct Playground {
    pub(crate) scene: Watched,
    pub(crate) fleet: Fleet,
    pub(crate) callers: Callers,
    /// None where there is no Redis.
    pub(crate) scripts: Option<Mutex<Scripts>>,
    /// What never changes: how quick it is, and where nodes meet.
    pub(crate) setting: Value,
}

type Shared = State<Arc<Playground>>;
type Done = Result<Json<Value>, (StatusCode, String)>;

pub(crate) fn app(playground: Arc<Playground>) -> Router {
    let text = |kind, text: &'static str| get(async move || ([(CONTENT_TYPE, kind)], text));
    Router::new()
        .route("/", get(page))
        .route("/page.css", text("text/css", include_str!("page.css")))
        .route("/page.js", text("text/javascript", include_str!("page.js")))
        .route("/lanes.js", text("text/javascript", include_str!("lanes.js")))
        .route("/state", get(state))
        .route("/events", get(events))
        .route("/burst", post(burst))
        .route("/nodes/{name}/{deed}", post(act))
        .route("/scripts/flush", post(flush))
        .with_state(playground)
        .layer(from_fn(own_page_only))
}

async fn page() -> impl IntoResponse {
    let policy = "default-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'";
    ([(CONTENT_SECURITY_POLICY, policy)], Html(include_str!("page.html")))
}

/// Another site's page, open in the same browser, must not kill anything here.
async fn own_page_only(headers: HeaderMap, request: Request, next: Next) -> Response {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(HOST).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_local = name == "localhost" || name.starts_with("127.") || name == "[::1]";
    let own = text(ORIGIN).is_none_or(|origin| origin == format!("http://{host}"));
    match is_local && own {
        true => next.run(request).await,
        false => StatusCode::FORBIDDEN.into_response(),
    }
}

async fn state(State(playground): Shared) -> Json<Value> {
    let scene = playground.scene.look();
    let story: Vec<_> = scene.story.after(0).collect();
    Json(json!({
        "setting": playground.setting,
        "state": view::state(&scene),
        "story": story,
    }))
}

/// The setting, then the state whenever it changes, and each line of the story.
async fn events(State(playground): Shared) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let first = Event::default().event("setting").data(playground.setting.to_string());
    let changes = playground.scene.changes();
    let later = stream::unfold(
        (playground, changes, 0, true),
        |(all, mut changes, told, new)| async move {
            if !new {
                tokio::time::sleep(PACE).await;
                changes.changed().await.ok()?;
            }
            let (events, last) = {
                let scene = all.scene.look();
                let lines: Vec<_> = scene.story.after(told).collect();
                let last = lines.last().map_or(told, |line| line.id);
                let line = |line| Event::default().event("line").data(json!(line).to_string());
                let mut events: Vec<_> = lines.into_iter().map(line).collect();
                let state = view::state(&scene).to_string();
                events.push(Event::default().event("state").data(state));
                (events, last)
            };
            Some((stream::iter(events), (all, changes, last, false)))
        },
    );
    let all = stream::once(std::future::ready(first)).chain(later.flatten());
    Sse::new(all.map(Ok)).keep_alive(KeepAlive::default())
}

#[derive(Deserialize)]
struct Burst {
    kind: Kind,
    callers: usize,
}

async fn burst(State(playground): Shared, Query(burst): Query<Burst>) -> Done {
    if !(1..=MOST).contains(&burst.callers) {
        return Err(refused(format!("callers must be 1 to {MOST}")));
    }
    let nodes = playground.fleet.open();
    playground.callers.burst(burst.kind, burst.callers, &nodes).map_err(refused)?;
    Ok(Json(json!({})))
}

async fn act(State(playground): Shared, Path((name, deed)): Path<(String, String)>) -> Done {
    let at = NAMES.iter().position(|known| *known == name);
    let (Some(at), Some(deed)) = (at, Deed::named(&deed)) else {
        return Err((StatusCode::NOT_FOUND, format!("there is no {deed} of node {name}")));
    };
    playground.fleet.act(at, deed).await.map_err(refused)?;
    Ok(Json(json!({})))
}

async fn flush(State(playground): Shared) -> Done {
    let Some(scripts) = &playground.scripts else {
        return Err(refused("there is no Redis".to_owned()));
    };
    let flushed = scripts.lock().await.flush().await;
    flushed.map_err(|error| refused(error.to_string()))?;
    let text = "You flushed all scripts from Redis. They are sent again when they are missed.";
    playground.scene.change(|scene| scene.tell(Tone::You, text));
    Ok(Json(json!({})))
}

fn refused(why: String) -> (StatusCode, String) {
    (StatusCode::CONFLICT, why)
}
