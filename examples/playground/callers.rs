//! Bursts of callers, as many clients of a service would be.

use std::{net::SocketAddr, time::Duration};

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use hyper::{Request, body::Incoming, header::HeaderValue};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

use crate::{
    report::Kind,
    rounds::{Caller, Stage},
    scene::{NAMES, Scene, Watched},
    story::Tone,
};

/// The longest that a caller waits.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most callers that wait at a time, of each kind.
pub(crate) const MOST: usize = 300;

#[derive(Debug)]
pub(crate) struct Callers {
    scene: Watched,
    http: Client<HttpConnector, Body>,
}

impl Callers {
    pub(crate) fn new(scene: Watched) -> Self {
        // A connection for each caller: none is held up, or lost, with another one's.
        let mut client = Client::builder(TokioExecutor::new());
        Self { scene, http: client.pool_max_idle_per_host(0).build_http() }
    }

    /// Sends so many, in turn to each of these nodes.
    pub(crate) fn burst(
        &self,
        kind: Kind,
        callers: usize,
        nodes: &[(usize, SocketAddr)],
    ) -> Result<(), String> {
        if nodes.is_empty() {
            return Err("no node is up to be asked".to_owned());
        }
        let calls: Vec<_> = self.scene.change(|scene| {
            let now = scene.now();
            let round = scene.rounds.entry(kind).or_default();
            let (joins, there) = (round.open, round.callers.len());
            if joins && there + callers > MOST {
                return Err(format!("{there} callers wait already; {MOST} are the most"));
            }
            let calls = nodes.iter().cycle().take(callers);
            let calls = calls.map(|&(node, address)| (round.add(now, node), address)).collect();
            let (who, what) = match callers {
                1 => ("1 caller asks".to_owned(), kind.name()),
                n => (format!("{n} callers ask"), kind.name()),
            };
            let late = if joins { ", in the middle of the flight" } else { "" };
            let names: Vec<_> = nodes.iter().map(|&(node, _)| NAMES[node]).collect();
            let article = if kind == Kind::Answer { "an" } else { "a" };
            let text = format!("{who} for {article} {what} at {}{late}.", listed(&names));
            scene.tell(Tone::You, text);
            Ok(calls)
        })?;
        for (caller, address) in calls {
            let (scene, http) = (self.scene.clone(), self.http.clone());
            tokio::spawn(async move {
                let called = call(&scene, &http, kind, caller, address);
                let answered = tokio::time::timeout(PATIENCE, called).await;
                let stage = match answered {
                    Ok(Some(())) => Stage::Answered,
                    _ => Stage::Lost,
                };
                scene.change(|scene| end(scene, kind, caller, stage));
            });
        }
        Ok(())
    }
}

/// None where it got an error, or its connection broke.
async fn call(
    scene: &Watched,
    http: &Client<HttpConnector, Body>,
    kind: Kind,
    caller: usize,
    address: SocketAddr,
) -> Option<()> {
    let request = Request::get(format!("http://{address}/{}", kind.name()));
    let response = http.request(request.body(Body::empty()).ok()?).await.ok()?;
    let shared = response.headers().get_all("cache-status").iter().any(is_shared);
    let good = response.status().is_success();
    scene.change(|scene| {
        with(scene, kind, caller, |caller| {
            (caller.stage, caller.shared) = (Stage::Receiving, shared)
        });
    });
    let mut body: Incoming = response.into_body();
    while let Some(frame) = body.frame().await {
        let data: Bytes = frame.ok()?.into_data().unwrap_or_default();
        let text = String::from_utf8_lossy(&data);
        scene.change(|scene| with(scene, kind, caller, |caller| caller.text.push_str(&text)));
    }
    good.then_some(())
}

fn is_shared(value: &HeaderValue) -> bool {
    value.to_str().is_ok_and(|value| value.contains("collapsed") || value.contains("hit"))
}

fn with(scene: &mut Scene, kind: Kind, caller: usize, change: impl FnOnce(&mut Caller)) {
    let round = scene.rounds.get_mut(&kind);
    if let Some(caller) = round.and_then(|round| round.callers.get_mut(caller)) {
        change(caller);
    }
}

fn end(scene: &mut Scene, kind: Kind, caller: usize, stage: Stage) {
    with(scene, kind, caller, |caller| caller.stage = stage);
    let Some(round) = scene.rounds.get_mut(&kind) else { return };
    if !round.is_over() {
        return;
    }
    let tone = if round.count(Stage::Lost) > 0 { Tone::Fault } else { Tone::Done };
    let outcome = round.outcome(kind);
    // What nobody waits for is not taken over.
    if scene.holders.get(&kind).is_some_and(|holder| holder.end.is_some()) {
        scene.holders.remove(&kind);
    }
    scene.tell(tone, outcome);
}

fn listed(names: &[&str]) -> String {
    match names {
        [one] => format!("node {one}"),
        [first, last] => format!("nodes {first} and {last}"),
        names => format!("nodes {}", names.join(", ")),
    }
}
