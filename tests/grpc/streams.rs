//! Calls with streams (row N8).

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Request, Response, Status, Streaming, transport::Channel};
use tower_singleflight::{Config, MemoryStore};

use crate::{
    rig::{Answers, CHAT, COLLECT, LIST, Messages, Plain, ask, fleet, node, nodes, serve},
    support::{Gate, Runs, callers, until},
};

/// One call that is answered by a stream: its messages, and how it ended.
async fn list(channel: Channel, request: Request<Bytes>) -> (Vec<Bytes>, Result<(), Status>) {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static(LIST);
    let mut stream = match client.server_streaming(request, path, Plain).await {
        Ok(response) => response.into_inner(),
        Err(status) => return (Vec::new(), Err(status)),
    };
    let mut messages = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return (messages, Ok(())),
            Err(status) => return (messages, Err(status)),
        }
    }
}

/// Ten messages, then how it ended.
fn ten(gate: &Gate, last: Option<Status>) -> Messages {
    let gate = gate.clone();
    let messages = (0..10).map(|n| Ok(Bytes::from(format!("message {n}"))));
    let messages: Vec<_> = messages.chain(last.map(Err)).collect();
    let begin = futures_util::stream::once(async move { gate.passed().await });
    Box::pin(begin.map(|()| None).chain(tokio_stream::iter(messages).map(Some)).filter_map(|m| m))
}

#[tokio::test]
async fn an_answer_that_is_a_stream_goes_to_all_in_order() {
    for last in [None, Some(Status::data_loss("the end is gone"))] {
        let (runs, gate) = (Runs::default(), Gate::new());
        let answers = {
            let (gate, last) = (gate.clone(), last.clone());
            Answers::new(&runs).list(move |_, _| Ok(Response::new(ten(&gate, last.clone()))))
        };
        let nodes = nodes();
        let channels = fleet::<2>(&nodes, &answers).await;
        let calls = [0, 0, 1].map(|server| list(channels[server].clone(), ask("q", &[])));
        let opened = async {
            until("all callers", || nodes.iter().map(callers).sum::<usize>() == 3).await;
            gate.open();
        };
        let (got, ()) = tokio::join!(join_all(calls), opened);
        assert_eq!(runs.total(), 1);
        for (messages, end) in got {
            let expected: Vec<_> = (0..10).map(|n| format!("message {n}")).collect();
            assert_eq!(messages, expected);
            match &last {
                None => end.unwrap(),
                Some(last) => {
                    let end = end.unwrap_err();
                    assert_eq!((end.code(), end.message()), (Code::DataLoss, last.message()));
                }
            }
        }
    }
}

#[tokio::test]
async fn an_error_at_the_end_is_not_reused() {
    let config = Config::builder().reuse(Duration::from_secs(20)).build().unwrap();
    for (last, expected) in [(None, 1), (Some(Status::unavailable("later")), 2)] {
        let (runs, gate) = (Runs::default(), Gate::new());
        gate.open();
        let failed = last.is_some();
        let answers =
            Answers::new(&runs).list(move |_, _| Ok(Response::new(ten(&gate, last.clone()))));
        let [node] = nodes();
        let node = node.config(config.clone());
        let channel = serve(&node, &answers).await;
        for _ in 0..2 {
            let (messages, end) = list(channel.clone(), ask("q", &[])).await;
            assert_eq!((messages.len(), end.is_err()), (10, failed));
            until("the flight is over", || node.flights().is_empty()).await;
        }
        assert_eq!(runs.total(), expected);
    }
}

#[tokio::test]
async fn n8_what_the_key_does_not_name_is_not_held_back() {
    for path in [COLLECT, CHAT] {
        let (heard, mut hears) = mpsc::channel(1);
        let answers = Answers::new(&Runs::default()).chat(move |request| {
            let heard = heard.clone();
            let echo = request.into_inner().then(move |message| {
                let heard = heard.clone();
                async move {
                    heard.send(()).await.unwrap();
                    message
                }
            });
            Ok(Response::new(Box::pin(echo) as Messages))
        });
        let store = MemoryStore::new();
        let node = node(store.clone());
        let channel = serve(&node, &answers).await;
        let (sender, messages) = mpsc::channel(1);
        sender.send(Bytes::from("first")).await.unwrap();
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        let request = Request::new(ReceiverStream::new(messages));
        let mut stream: Streaming<Bytes> = client
            .streaming(request, PathAndQuery::from_static(path), Plain)
            .await
            .unwrap()
            .into_inner();
        // The server has the first message, and the client its answer, before there is
        // another one.
        hears.recv().await.unwrap();
        assert_eq!(stream.message().await.unwrap().unwrap(), "first");
        assert!(node.flights().is_empty() && store.is_empty());
        sender.send(Bytes::from("second")).await.unwrap();
        hears.recv().await.unwrap();
        assert_eq!(stream.message().await.unwrap().unwrap(), "second");
        drop(sender);
        assert!(stream.message().await.unwrap().is_none());
        assert_eq!((node.stats().bypass, node.stats().owner), (1, 0));
    }
}
