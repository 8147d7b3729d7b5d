//! What the page is shown.

use serde_json::{Value, json};

use crate::{
    report::Kind,
    rounds::{Crowd, Stage},
    scene::{NAMES, Scene},
};

/// All that is known now, but for the story.
pub(crate) fn state(scene: &Scene) -> Value {
    let token = |token: Option<u64>| {
        let known = token.and_then(|token| scene.seen(token).map(|place| (place, token)));
        // As text: it may be more than a number in a browser can be.
        known.map(|(place, token)| json!({ "place": place, "whole": token.to_string() }))
    };
    let crowds = |node| {
        let rounds =
            Kind::ALL.into_iter().filter_map(|kind| Some((kind, scene.rounds.get(&kind)?)));
        rounds.map(|(kind, round)| round.crowd(kind, node)).collect::<Vec<Crowd>>()
    };
    let nodes: Vec<Value> = std::iter::zip(NAMES, &scene.nodes)
        .enumerate()
        .map(|(at, (name, node))| {
            let flights = node.state.flights.iter().map(|flight| {
                json!({
                    "kind": scene.kinds.get(&flight.digest),
                    "phase": flight.phase,
                    "token": token(flight.token),
                    "callers": flight.callers,
                    "age_ms": flight.age_ms,
                })
            });
            let runs = node.state.runs.iter().map(|run| {
                json!({
                    "kind": run.kind,
                    "number": run.number,
                    "token": token(run.token),
                    "pieces": run.pieces,
                    "of": run.of,
                    "elapsed_ms": run.elapsed_ms,
                })
            });
            json!({
                "name": name,
                "pid": node.pid,
                "health": node.health,
                "cut": node.cut,
                "store": node.state.store,
                "flights": flights.collect::<Value>(),
                "runs": runs.collect::<Value>(),
                "counts": node.state.counts,
                "callers": crowds(at),
            })
        })
        .collect();
    let records = Kind::ALL.into_iter().filter_map(|kind| {
        let (view, beats) = scene.records.get(&kind)?;
        Some(json!({
            "kind": kind,
            "token": token(Some(view.flight.token)),
            "left_ms": view.lease_left.map(|left| left.as_millis() as u64),
            "beats": beats,
            "waiters": view.waiters,
        }))
    });
    let rounds = Kind::ALL.into_iter().filter_map(|kind| {
        let round = scene.rounds.get(&kind)?;
        Some(json!({
            "kind": kind,
            "number": round.number,
            "open": round.open,
            "callers": round.callers.len(),
            "answered": round.count(Stage::Answered),
            "shared": round.shared(),
            "lost": round.count(Stage::Lost),
            "runs": round.runs,
            "takeovers": round.takeovers,
        }))
    });
    json!({
        "now_ms": scene.now(),
        "nodes": nodes,
        "records": records.collect::<Value>(),
        "rounds": rounds.collect::<Value>(),
        "spans": scene.lanes.spans(),
    })
}
