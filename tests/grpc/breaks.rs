//! Answers that break off: no client takes one for whole.

use std::time::Duration;

use futures_util::future::join_all;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use tokio_stream::StreamExt;
use tonic::{
    Code, Response, Status,
    body::Body,
    transport::{Channel, Server},
};
use tower::util::MapResponseLayer;
use tower_singleflight::Config;

use crate::{
    rig::{Answers, Node, ask, connect, get, listen, nodes},
    support::{Gate, Runs, callers, until},
    tap::{Taps, open},
};

type Cut = fn(http::Response<Body>) -> http::Response<Body>;

/// The body fails in place of its trailers.
fn failing(response: http::Response<Body>) -> http::Response<Body> {
    response.map(|body| {
        let frames = BodyStream::new(body).map(|frame| {
            let frame = frame?;
            if frame.is_trailers() { Err(Status::internal("the line is cut")) } else { Ok(frame) }
        });
        Body::new(StreamBody::new(frames).boxed_unsync())
    })
}

/// The body ends in place of its trailers, as clients of HTTP/2 take some resets.
fn ending(response: http::Response<Body>) -> http::Response<Body> {
    response.map(|body| {
        let frames = BodyStream::new(body)
            .filter(|frame| !frame.as_ref().is_ok_and(http_body::Frame::is_trailers));
        Body::new(StreamBody::new(frames).boxed_unsync())
    })
}

const CUTS: [Cut; 2] = [failing, ending];

/// Servers whose answers are cut before they come to the layer.
async fn fleet(nodes: &[Node; 2], answers: &Answers, cut: Cut) -> [Channel; 2] {
    let mut channels = Vec::new();
    for node in nodes {
        let (incoming, address) = listen().await;
        let server = Server::builder()
            .layer(node.clone())
            .layer(MapResponseLayer::new(cut))
            .add_service(answers.clone());
        tokio::spawn(server.serve_with_incoming(incoming));
        channels.push(connect(address).await);
    }
    channels.try_into().unwrap()
}

#[tokio::test]
async fn o2_a_stream_without_its_status_is_an_error_for_all() {
    for cut in CUTS {
        let (taps, nodes) = (Taps::default(), nodes());
        let [here, there] = fleet(&nodes, &taps.answers(), cut).await;
        let mut all = Vec::new();
        for channel in [&here, &here, &there] {
            all.push(open(channel, ask("q", &[])).await.unwrap());
        }
        taps.send(0, "one");
        for reader in &mut all {
            assert_eq!(reader.next().await.unwrap().unwrap(), "one");
        }
        taps.end(0);
        for reader in all {
            let status = reader.failure().await;
            assert_eq!(status.code(), Code::Internal, "{status:?}");
        }
        assert_eq!((taps.runs(), nodes[0].stats().failed_runs), (1, 1));
    }
}

/// Of an answer that was to be whole first, another run is made, once.
#[tokio::test]
async fn a_unary_answer_without_its_status_is_a_failed_run() {
    for cut in CUTS {
        let (runs, gate, nodes) = (Runs::default(), Gate::new(), nodes());
        let answers = Answers::new(&runs).gated(&gate, |_, _| Ok(Response::new("answer".into())));
        let channels = fleet(&nodes, &answers, cut).await;
        let calls = [0, 0, 0, 1].map(|server| get(&channels[server], ask("q", &[])));
        let opened = async {
            until("all callers", || nodes.iter().map(callers).sum::<usize>() == 4).await;
            gate.open();
        };
        let (got, ()) = tokio::join!(join_all(calls), opened);
        assert!((2..=3).contains(&runs.total()), "{} runs", runs.total());
        for status in got.into_iter().map(Result::unwrap_err) {
            assert!(matches!(status.code(), Code::Internal | Code::Unavailable), "{status:?}");
        }
    }
}

#[tokio::test]
async fn what_broke_off_is_not_reused() {
    let config = Config::builder().reuse(Duration::from_secs(20)).build().unwrap();
    for cut in CUTS {
        let (runs, nodes) =
            (Runs::default(), nodes().map(|node: Node| node.config(config.clone())));
        let channels = fleet(&nodes, &Answers::new(&runs), cut).await;
        for run in 1..3 {
            assert!(get(&channels[0], ask("q", &[])).await.is_err());
            until("the flight is over", || nodes[0].flights().is_empty()).await;
            assert_eq!(runs.total(), run);
        }
    }
}
