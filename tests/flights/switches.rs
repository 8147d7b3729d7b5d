//! Callers that are kept out of sharing: one by one, or all of them (row L10).

use std::sync::Arc;

use futures_util::future::join_all;
use http::Request;
use tower_singleflight::{Bypass, Config, FlightRole, MemoryStore, NoShare, StoreDown};

use crate::rig::*;

fn alone() -> Request<Body> {
    let request = Request::get("http://a.test/a").extension(NoShare);
    request.body(Body::default()).unwrap()
}

/// What the store was asked in vain.
fn errors(node: &Node) -> u64 {
    node.layer.store_errors().into_iter().map(|(_, count)| count).sum()
}

/// Whoever has a word for the store while it is away gets a 503.
fn strict() -> Config {
    Config::builder().store_down(StoreDown::Reject).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn l10_a_request_that_says_so_runs_alone() {
    let (counts, line) = (Arc::<Counts>::default(), Line::new(&MemoryStore::new()));
    let node = Node::new(line.clone(), &slow(&counts, ms(500)), strict());
    line.cut();
    let answers = join_all((0..10).map(|_| node.send(alone()))).await;
    assert_eq!((counts.calls(), errors(&node)), (10, 0), "no word to the store");
    line.heal();
    // Beside a flight of the key that they would have.
    let followers: Vec<_> = (0..3).map(|_| node.call("/a")).collect();
    until(|| counts.calls() == 11).await;
    let beside = join_all((0..10).map(|_| node.send(alone()))).await;
    assert_eq!(counts.calls(), 21);
    for answer in answers.into_iter().chain(beside) {
        assert_eq!((answer.status, answer.took), (200, ms(500)));
        assert_eq!(answer.role, Some(FlightRole::Bypass(Bypass::KeptOut)));
    }
    for follower in join_all(followers).await {
        assert_eq!(follower.text(), "run 10");
    }
    let stats = node.layer.stats();
    assert_eq!((stats.bypassed(Bypass::KeptOut), stats.bypass), (20, 20));
}

#[tokio::test(start_paused = true)]
async fn switched_off_every_new_caller_runs_alone_and_flights_in_the_air_end_as_they_would() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let line = Line::new(&store);
    let inner = slow(&counts, ms(2000));
    let [a, b] = [
        Node::new(line.clone(), &inner, strict()),
        Node::new(store.clone(), &inner, Config::default()),
    ];
    let mut flight: Vec<_> = (0..3).map(|_| a.call("/a")).collect();
    until(|| counts.calls() == 1).await;
    flight.push(b.call("/a"));
    until(|| b.in_air() == 1).await;

    let switch = a.layer.clone().switch();
    switch.turn_off();
    assert!(!a.layer.switch().is_on());
    let alone: Vec<_> = (0..5).map(|_| a.call("/a")).collect();
    until(|| counts.calls() == 6).await;
    let (others, there) = tokio::join!(join_all(alone), b.call("/a"));
    for answer in others {
        assert_eq!(answer.role, Some(FlightRole::Bypass(Bypass::SwitchedOff)));
    }
    assert_eq!(there.text(), "run 0", "other processes share");
    for answer in join_all(flight).await {
        assert_eq!(answer.text(), "run 0");
    }
    until(|| a.in_air() == 0).await;
    line.cut();
    assert_eq!(join_all((0..5).map(|_| a.call("/b"))).await.len(), 5);
    assert_eq!((counts.calls(), errors(&a)), (11, 0), "no word to the store");
    line.heal();

    switch.turn_on();
    for answer in join_all((0..5).map(|_| a.call("/c"))).await {
        assert_eq!(answer.text(), "run 11");
    }
    let stats = a.layer.stats();
    assert_eq!((stats.bypassed(Bypass::SwitchedOff), stats.bypass), (10, 10));
    assert_eq!(stats.bypassed(Bypass::KeptOut), 0);
}
