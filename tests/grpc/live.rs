//! Answers that are streams, handed out message by message (rows O1, O10, D2).

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tonic::{Code, Status, metadata::BinaryMetadataValue, metadata::MetadataMap};
use tower_singleflight::{Config, Delivery, RedisStore};

use crate::{
    redis::redis_server::RedisServer,
    rig::{
        Node, ask, assert_trailers, connect, fleet, is_shared, node, nodes, serve_with_trailers,
    },
    support::{callers, until},
    tap::{Open, Taps, open, open_compressed},
};

async fn redis_nodes(server: &RedisServer) -> [Node; 2] {
    let store = async || RedisStore::connect(&server.url()).await.unwrap();
    [node(store().await), node(store().await)]
}

/// Each message is there for all before there is another one.
async fn o1(nodes: [Node; 2]) {
    for error in [None, Some(rich_error())] {
        let taps = Taps::default();
        let [here, there] = {
            let servers = nodes.each_ref().map(|node| {
                let answers = taps.answers();
                async move { connect(serve_with_trailers(node, &answers).await).await }
            });
            let [here, there] = servers;
            [here.await, there.await]
        };
        let question = if error.is_some() { "which fails" } else { "which does not" };
        let call = |channel| open(channel, ask(question, &[]));
        let mut all = vec![call(&here).await.unwrap()];
        all.push(call(&here).await.unwrap());
        all.push(call(&there).await.unwrap());
        for n in 0..5 {
            let text = format!("message {n}");
            taps.send(0, &text);
            for reader in &mut all {
                assert_eq!(reader.next().await.unwrap().unwrap(), text);
            }
        }
        // Who comes late gets all from the start, and then each message like all others.
        let (mut late_here, mut late_there) =
            (call(&here).await.unwrap(), call(&there).await.unwrap());
        for late in [&mut late_here, &mut late_there] {
            for n in 0..5 {
                assert_eq!(late.next().await.unwrap().unwrap(), format!("message {n}"));
            }
        }
        all.extend([late_here, late_there]);
        taps.send(0, "last");
        for reader in &mut all {
            assert_eq!(reader.next().await.unwrap().unwrap(), "last");
        }
        let shared = all.iter().filter(|reader| is_shared(&reader.metadata)).count();
        assert_eq!((taps.runs(), shared), (1, 4));
        match error {
            None => {
                taps.end(0);
                for reader in all {
                    let (rest, trailers) = reader.rest().await.unwrap();
                    assert_eq!(rest, [""; 0]);
                    assert_trailers(&trailers);
                }
            }
            // As inner meant it: a good end of the body, and nobody's fault here.
            Some(error) => {
                taps.fail(0, error);
                for reader in all {
                    assert_rich_error(&reader.failure().await);
                }
            }
        }
        for node in &nodes {
            until("all flights are over", || node.flights().is_empty()).await;
            let stats = node.stats();
            assert_eq!((stats.failed, stats.failed_runs, stats.bad_records), (0, 0, 0));
        }
    }
}

fn rich_error() -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert("x-why", "gone".parse().unwrap());
    metadata.insert_bin("x-more-bin", BinaryMetadataValue::from_bytes(&[0, 255]));
    let details = Bytes::from_static(&[8, 5, 0, 255]);
    Status::with_details_and_metadata(Code::DataLoss, "gone: \u{e9} 100 %", details, metadata)
}

fn assert_rich_error(status: &Status) {
    assert_eq!((status.code(), status.message()), (Code::DataLoss, "gone: \u{e9} 100 %"));
    assert_eq!(status.details(), [8, 5, 0, 255]);
    assert_eq!(status.metadata().get("x-why").unwrap(), "gone");
    let binary = status.metadata().get_bin("x-more-bin").unwrap().to_bytes().unwrap();
    assert_eq!(&binary[..], [0, 255]);
    assert_trailers(status.metadata());
}

#[tokio::test]
async fn o1_o10_each_message_comes_at_once_here_and_elsewhere() {
    o1(nodes()).await;
}

#[tokio::test]
async fn o1_o10_each_message_comes_at_once_over_redis() {
    let server = RedisServer::start();
    o1(redis_nodes(&server).await).await;
}

#[tokio::test]
async fn a_client_that_cancels_leaves_the_others_alone() {
    let (taps, nodes) = (Taps::default(), nodes());
    let channels = fleet::<2>(&nodes, &taps.answers()).await;
    let call = |server: usize| open(&channels[server], ask("q", &[]));
    let owner = call(0).await.unwrap();
    let local = call(0).await.unwrap();
    let mut remote = call(1).await.unwrap();
    taps.send(0, "one");
    assert_eq!(remote.next().await.unwrap().unwrap(), "one");
    let here = || callers(&nodes[0]);
    drop(owner);
    until("one is left here", || here() == 1).await;
    drop(local);
    until("nobody is left here", || here() == 0).await;
    taps.send(0, "two");
    assert_eq!(remote.next().await.unwrap().unwrap(), "two");
    assert!(!taps.is_dropped(0));
    // Nobody is left anywhere.
    drop(remote);
    until("the run is dropped", || taps.is_dropped(0)).await;
    assert_eq!(taps.runs(), 1);
}

/// Clients end their calls when their deadlines pass; no run is told of any.
#[tokio::test]
async fn d2_a_deadline_in_mid_stream_ends_that_call_alone() {
    const DEADLINE: Duration = Duration::from_millis(300);
    let hasty = || {
        let mut request = ask("q", &[]);
        request.set_timeout(DEADLINE);
        request
    };
    let until_deadline = async |mut reader: Open| {
        let read = async { while let Ok(Some(_)) = reader.next().await {} };
        assert!(tokio::time::timeout(DEADLINE, read).await.is_err(), "an end before its time");
    };
    let (taps, nodes) = (Taps::default(), nodes());
    let channels = fleet::<2>(&nodes, &taps.answers()).await;
    // The one whose request is run is among them.
    let hasty = [
        open(&channels[0], hasty()).await.unwrap(),
        open(&channels[0], hasty()).await.unwrap(),
        open(&channels[1], hasty()).await.unwrap(),
    ];
    let mut patient = [
        open(&channels[0], ask("q", &[])).await.unwrap(),
        open(&channels[1], ask("q", &[])).await.unwrap(),
    ];
    taps.send(0, "one");
    join_all(hasty.map(until_deadline)).await;
    for node in &nodes {
        until("the patient one is left", || callers(node) == 1).await;
    }
    taps.send(0, "two");
    for reader in &mut patient {
        assert_eq!(reader.next().await.unwrap().unwrap(), "one");
        assert_eq!(reader.next().await.unwrap().unwrap(), "two");
    }
    taps.end(0);
    for reader in patient {
        assert!(reader.rest().await.is_ok());
    }
    assert_eq!(taps.runs(), 1);
    assert!(taps.metadata(0).get("grpc-timeout").is_none());
}

/// Compressed for those who ask for it, and as it is for all others.
#[tokio::test]
async fn l4_compressed_answers_go_to_those_who_know_them() {
    let (taps, nodes) = (Taps::default(), nodes());
    let channels = fleet::<2>(&nodes, &taps.answers()).await;
    let mut plain = [
        open(&channels[0], ask("q", &[])).await.unwrap(),
        open(&channels[1], ask("q", &[])).await.unwrap(),
    ];
    let mut compressed = [
        open_compressed(&channels[0], ask("q", &[])).await.unwrap(),
        open_compressed(&channels[0], ask("q", &[])).await.unwrap(),
        open_compressed(&channels[1], ask("q", &[])).await.unwrap(),
    ];
    assert_eq!(taps.runs(), 2);
    let text = "the same again and again ".repeat(100);
    for _ in 0..3 {
        [0, 1].into_iter().for_each(|run| taps.send(run, &text));
        for reader in plain.iter_mut().chain(&mut compressed) {
            assert_eq!(reader.next().await.unwrap().unwrap(), text);
        }
    }
    [0, 1].into_iter().for_each(|run| taps.end(run));
    for reader in plain {
        assert!(reader.metadata.get("grpc-encoding").is_none());
        assert!(reader.rest().await.is_ok());
    }
    for reader in compressed {
        assert_eq!(reader.metadata.get("grpc-encoding").unwrap(), "gzip");
        assert!(reader.rest().await.is_ok());
    }
}

#[tokio::test]
async fn a_stream_that_is_to_be_whole_first_comes_at_its_end() {
    for error in [None, Some(rich_error())] {
        let taps = Taps::default();
        let config = Config::builder().delivery(Delivery::Buffered).build().unwrap();
        let nodes = nodes().map(|node: Node| node.config(config.clone()));
        let channels = fleet::<2>(&nodes, &taps.answers()).await;
        let calls = [0, 0, 1].map(|server| tokio::spawn(open(&channels[server], ask("q", &[]))));
        until("all callers", || nodes.iter().map(callers).sum::<usize>() == 3).await;
        let texts = ["one", "two", "three"];
        texts.into_iter().for_each(|text| taps.send(0, text));
        taps.until_read(0).await;
        assert!(calls.iter().all(|call| !call.is_finished()));
        match error.clone() {
            Some(error) => taps.fail(0, error),
            None => taps.end(0),
        }
        for call in calls {
            let mut reader = call.await.unwrap().unwrap();
            for text in texts {
                assert_eq!(reader.next().await.unwrap().unwrap(), text);
            }
            match &error {
                Some(error) => assert_eq!(reader.failure().await.message(), error.message()),
                None => assert!(reader.rest().await.is_ok()),
            }
        }
        assert_eq!(taps.runs(), 1);
    }
}
