//! A key whose owners are lost one after the other.

use std::sync::Arc;

use futures_util::future::join_all;
use tower_singleflight::{Config, FailureKind, FlightPhase, MemoryStore};

use crate::rig::*;

const QUARANTINE: std::time::Duration = ms(5000);

#[track_caller]
fn is_refused(answer: &Answer) {
    assert_eq!((answer.status, answer.kind()), (503, Some(FailureKind::Quarantined)));
    assert_eq!(answer.headers["retry-after"], "5");
    assert_eq!(answer.headers["cache-status"], "tower-singleflight; detail=quarantined");
}

/// After three of them nobody runs it for a while: who waits, and who comes, is told so.
#[tokio::test(start_paused = true)]
async fn f3_a_key_that_lost_three_owners_is_refused_for_a_while() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = slow(&counts, ms(10_000));
    let lines = [(); 3].map(|()| Line::new(&store));
    let lost = lines.each_ref().map(|line| Node::new(line.clone(), &inner, Config::default()));
    let [waits, comes] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
    let phase = |node: &Node| node.layer.flights().first().map(|flight| flight.phase);
    let mut calls = Vec::new();
    for (node, becomes) in
        lost.iter().zip([FlightPhase::Owning, FlightPhase::Following, FlightPhase::Following])
    {
        calls.push(node.call("/a"));
        until(|| phase(node) == Some(becomes)).await;
    }
    let waiting = [(); 3].map(|()| waits.call("/a"));
    until(|| phase(&waits) == Some(FlightPhase::Following)).await;
    for (nth, (node, call)) in lost.iter().zip(calls).enumerate() {
        until(|| phase(node) == Some(FlightPhase::Owning)).await;
        assert_eq!(counts.calls(), nth + 1);
        lines[nth].cut();
        call.hang_up();
    }
    for answer in join_all(waiting).await {
        is_refused(&answer);
    }
    // It costs no run, and no wait.
    let answer = comes.call("/a").await;
    is_refused(&answer);
    assert_eq!(answer.took, ms(0));
    assert_eq!(counts.calls(), 3);
    let stats = [waits.layer.stats(), comes.layer.stats()];
    assert_eq!(stats.map(|stats| (stats.quarantined, stats.failed)), [(1, 3), (1, 1)]);
    // Other keys are none the worse for it.
    let other = comes.call("/b");
    tokio::time::sleep(QUARANTINE - ms(10)).await;
    is_refused(&comes.call("/a").await);
    tokio::time::sleep(ms(20)).await;
    let answer = comes.call("/a").await;
    assert_eq!((answer.text(), answer.took), ("run 4", ms(10_000)), "it is over by then");
    assert_eq!(other.await.text(), "run 3");
    until(|| waits.in_air() + comes.in_air() == 0).await;
}
