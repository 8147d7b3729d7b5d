//! Many processes wait for one that dies: few of them ask the store.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use tokio::time::{Duration, Instant};
use tower_singleflight::{Config, MemoryStore};

use crate::rig::*;

const WAITING: usize = 50;

/// So many processes wait for one that dies, and so many of them, the first in line, with
/// it: the time to the answer that all others get, and how many have asked to own.
async fn death(with: usize) -> (Duration, usize) {
    let (store, counts) = (MemoryStore::new(), Arc::new(Counts::default()));
    let run = |nth| async move {
        tokio::time::sleep(if nth == 0 { ms(60_000) } else { BEAT * 3 / 2 }).await;
        answer(format!("run {nth}"))
    };
    let inner = inner(&counts, run);
    let lines: Vec<Line> = (0..=WAITING).map(|_| Line::new(&store)).collect();
    let config = Config::builder().lease(LEASE).build().unwrap();
    let nodes: Vec<Node> =
        lines.iter().map(|line| Node::new(line.clone(), &inner, config.clone())).collect();
    let mut calls = Vec::new();
    for node in &nodes {
        calls.push(node.call("/a"));
        until(|| node.layer.flights().first().is_some_and(|flight| flight.token.is_some())).await;
    }
    // All have beaten, not all at once.
    tokio::time::sleep(BEAT * 5 / 2).await;
    let asked = || lines.iter().map(|line| line.attempts.load(SeqCst)).sum::<usize>();
    let before = asked();
    let killed = Instant::now();
    for line in &lines[..=with] {
        line.cut();
    }
    drop(calls.drain(..=with));
    for call in calls {
        assert_eq!(call.await.text(), "run 1");
    }
    assert_eq!(counts.calls(), 2);
    (killed.elapsed() - BEAT * 3 / 2, asked() - before)
}

#[tokio::test(start_paused = true)]
async fn f3_of_fifty_processes_that_wait_three_ask_to_own() {
    let (took, asked) = death(0).await;
    assert!(took <= LEASE + ms(1000), "{took:?}");
    assert!((1..=3).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn f3_the_others_own_where_the_first_in_line_die_too() {
    let (took, asked) = death(3).await;
    assert!(took <= LEASE + BEAT * 3 / 2 + ms(500), "{took:?}");
    // All of them may ask before they know of one who owns; none asks twice.
    assert!((1..=WAITING - 3).contains(&asked), "{asked}");
}
