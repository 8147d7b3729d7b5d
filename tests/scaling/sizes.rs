//! Whole flights, in fleets of several sizes, against the formulas.

use std::cell::Cell;

use tower_singleflight::{Delivery, FlightPhase};

use crate::{
    fleet::{Asked, Fleet, no_beats},
    meter::{Counts, measured},
    model::{Cost, Steps, constant},
    support::{eventually, redis_server::RedisServer},
};

/// Bytes of `PUBSUB CHANNELS *` and `QUIT`.
const POLL: usize = 39 + 14;

/// Until owners hear who comes, and nobody listens who need not; what that costs.
async fn channels(server: &RedisServer, flights: usize) -> Counts {
    let polls = Cell::new([0, 0]);
    eventually("as many channels as flights", async || {
        let answer = server.command(&["PUBSUB", "CHANNELS", "*"]);
        let [asked, answered] = polls.get();
        // With the word that ends the connection, and its answer.
        polls.set([asked + POLL, answered + answer.len() + 5]);
        answer.starts_with(&format!("*{flights}\r\n"))
    })
    .await;
    let [asked, answered] = polls.get();
    Counts { bytes_in: asked as f64, bytes_out: answered as f64, ..Counts::default() }
}

/// Counts within so much of what the page says.
fn compare(what: &str, counts: Counts, cost: Cost, band: f64) {
    println!("{what}: {counts}; by the page {cost:?}");
    let near = |is: f64, told: f64| (is - told).abs() <= told * band;
    assert!(near(counts.scripts, cost.scripts), "{what}: scripts");
    assert!(near(counts.commands, cost.commands), "{what}: commands");
    assert!(near(counts.bytes_in, cost.bytes_in), "{what}: bytes in");
    assert!(near(counts.bytes_out, cost.bytes_out), "{what}: bytes out");
}

/// Each process asks for each key: one owns all of them, and the others follow.
async fn flown(n: usize, flights: usize, delivery: Delivery, asked: Asked) -> (Counts, f64) {
    let server = RedisServer::start();
    let config = no_beats().delivery(delivery).build().expect("settings");
    // Two at least, so that all steps are known to the server.
    let fleet = Fleet::start(&server.url(), n.max(2), &config, asked).await;
    fleet.warm().await;
    channels(&server, 0).await;
    let keys: Vec<String> = (0..flights).map(|n| format!("key-{n:04}")).collect();
    let stored = || fleet.nodes[0].layer.stats().published_bytes;
    let before = stored();
    let (counts, polls) = measured(&server, async {
        let mut callers = fleet.all(0, &keys, FlightPhase::Owning).await;
        let polls = channels(&server, flights).await;
        for node in 1..n {
            callers.extend(fleet.all(node, &keys, FlightPhase::Following).await);
        }
        for _ in 0..asked.groups {
            fleet.group(callers.len()).await;
        }
        fleet.land(callers).await;
        polls.plus(channels(&server, 0).await)
    })
    .await;
    let counts = counts - polls;
    (counts.by(flights as f64), (stored() - before) as f64 / flights as f64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_answers() {
    let steps = Steps::read();
    for (n, flights, bytes) in [
        (1, 1000, 1000),
        (2, 100, 1000),
        (5, 50, 1000),
        (10, 10, 1000),
        (2, 20, 10_000),
        (3, 20, 100_000),
        (1, 20, 100_000),
    ] {
        let asked = Asked { groups: 0, group: bytes };
        let (counts, stored) = flown(n, flights, Delivery::Buffered, asked).await;
        let told = bytes as f64 + constant("answer");
        let others = n as f64 - 1.0;
        if n > 1 || bytes <= 3072 {
            assert!((stored - told).abs() < 8.0, "{stored} stored, {told} by the page");
        } else {
            assert_eq!(stored, 0.0);
        }
        let cost = steps.whole(told, others, others.min(1.0));
        compare(&format!("{n} processes, {flights} of {bytes}"), counts, cost, 0.015);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams() {
    let steps = Steps::read();
    for (n, flights, groups) in [(1, 20, 10), (2, 10, 20), (5, 10, 10), (10, 5, 10)] {
        let asked = Asked { groups, group: 2000 };
        let (counts, stored) = flown(n, flights, Delivery::Streaming, asked).await;
        let others = n as f64 - 1.0;
        // The head goes before the first group.
        let sent = groups as f64 + 1.0;
        let bytes = 2000.0 * groups as f64 + constant("piece") * sent;
        let told = if n > 1 { bytes } else { 0.0 };
        assert!((stored - told).abs() <= told * 0.01, "{stored} stored, {told} by the page");
        let cost = steps.streamed((bytes, sent, 0.0), others, others.min(1.0));
        compare(&format!("{n} processes, {flights} of {groups} groups"), counts, cost, 0.08);
    }
}
