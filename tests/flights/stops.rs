//! Flights that are stopped, for all their callers in every process.

use std::sync::Arc;

use futures_util::future::join_all;
use http::Request;
use tower_singleflight::{Abandon, Config, FailureKind, LeaseLoss, MemoryStore, StoreDown};

use crate::{rig::*, tap::Taps};

async fn stop(node: &Node, path: &str) {
    let request = Request::get(format!("http://a.test{path}")).body(Body::default()).unwrap();
    node.layer.stop(&request).await.unwrap();
}

fn is_stopped(answer: &Answer) {
    assert_eq!((answer.status, answer.kind()), (503, Some(FailureKind::Stopped)));
}

#[tokio::test(start_paused = true)]
async fn a_flight_is_stopped_from_any_process_for_all_its_callers() {
    // From the owner's process, from one that follows, and from one with no part in it.
    for from in 0..3 {
        let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
        let inner = slow(&counts, ms(60_000));
        let config = Config::builder().abandon(Abandon::Finish).build().unwrap();
        let nodes = [(); 3].map(|()| Node::new(store.clone(), &inner, config.clone()));
        let mut calls = vec![nodes[0].call("/a")];
        until(|| counts.calls() == 1).await;
        calls.extend((0..5).map(|_| nodes[0].call("/a")));
        calls.extend((0..5).map(|_| nodes[1].call("/a")));
        until(|| nodes[1].in_air() == 1).await;
        tokio::time::sleep(ms(100)).await;
        stop(&nodes[from], "/a").await;
        let dropped = tokio::time::Instant::now();
        for answer in join_all(calls).await {
            is_stopped(&answer);
            assert!(answer.took <= ms(100) + BEAT + ms(10), "{from}: {:?}", answer.took);
        }
        until(|| counts.dropped() == 1).await;
        let late = if from == 0 { ms(10) } else { BEAT + ms(10) };
        assert!(dropped.elapsed() <= late, "{from}: {:?}", dropped.elapsed());
        until(|| nodes.iter().all(|node| node.in_air() == 0)).await;
        let stats = nodes[0].layer.stats();
        assert_eq!((stats.stopped, stats.leases_lost, stats.fenced), (1, 0, 0));
        // Who comes after begins anew, at once.
        let next = [&nodes[1], &nodes[0]].map(|node| node.call("/a"));
        until(|| counts.calls() == 2).await;
        let took = dropped.elapsed();
        assert!(took <= late + ms(20), "{from}: {took:?}");
        for answer in join_all(next).await {
            assert_eq!(answer.text(), "run 1");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn readers_of_a_stopped_stream_get_an_error_everywhere() {
    let (taps, store) = (Taps::default(), MemoryStore::new());
    let config = Config::builder().lease_loss(LeaseLoss::FinishLocally).build().unwrap();
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &taps.inner(), config.clone()));
    let mut here = a.open("/a").await;
    let mut there = b.open("/a").await;
    taps.send(0, "begin");
    assert_eq!(here.next().await.unwrap(), "begin");
    assert_eq!(there.next().await.unwrap(), "begin");
    stop(&b, "/a").await;
    for reader in [here, there] {
        let error = reader.rest().await.unwrap_err();
        assert!(error.contains("was stopped"), "{error}");
    }
    until(|| taps.is_dropped(0)).await;
    let next = a.opening("/a");
    until(|| taps.runs() == 2).await;
    taps.send(1, "new");
    taps.end(1);
    assert_eq!(next.await.unwrap().rest().await.unwrap(), "new");
}

#[tokio::test(start_paused = true)]
async fn a_run_without_the_store_is_stopped_in_its_process() {
    let counts = Arc::<Counts>::default();
    let line = Line::new(&MemoryStore::new());
    let config = Config::builder().store_down(StoreDown::Open).build().unwrap();
    let node = Node::new(line.clone(), &slow(&counts, ms(60_000)), config);
    line.cut();
    let calls: Vec<_> = (0..3).map(|_| node.call("/a")).collect();
    until(|| counts.calls() == 1).await;
    let request = Request::get("http://a.test/a").body(Body::default()).unwrap();
    assert!(node.layer.stop(&request).await.is_err(), "the store did not hear of it");
    for answer in join_all(calls).await {
        is_stopped(&answer);
    }
    until(|| counts.dropped() == 1 && node.in_air() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_is_not_stopped() {
    let counts = Arc::<Counts>::default();
    let config = Config::builder().reuse(ms(10_000)).build().unwrap();
    let node = Node::new(MemoryStore::new(), &slow(&counts, ms(100)), config);
    stop(&node, "/a").await;
    assert_eq!(node.call("/a").await.text(), "run 0");
    stop(&node, "/a").await;
    assert_eq!(node.call("/a").await.text(), "run 0");
    assert_eq!(node.layer.stats().stopped, 0);
}
