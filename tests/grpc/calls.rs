//! Unary calls (rows N1, N2, N4).

use bytes::Bytes;
use futures_util::future::join_all;
use http::HeaderMap;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tonic::{
    Code, Response, Status,
    body::Body,
    metadata::{BinaryMetadataValue, MetadataMap},
};
use tower_singleflight::{Bypass, FlightRole, MemoryStore, RedisStore};

use crate::{
    redis::redis_server::RedisServer,
    rig::{
        Answers, GET, Node, ask, assert_trailers, connect, fleet, get, is_shared, node, nodes,
        serve, serve_with_trailers,
    },
    support::{Full, Gate, Runs, callers, read, until},
};

/// Opens the gate when so many callers are in the air.
async fn open_for(nodes: &[Node], expected: usize, gate: &Gate) {
    until("all callers", || nodes.iter().map(callers).sum::<usize>() == expected).await;
    gate.open();
}

/// Two callers of one process and one of another.
async fn n1(nodes: [Node; 2]) {
    let message: Bytes = (0..100_000_u32).map(|at| (at / 7 + at) as u8).collect();
    let (runs, gate) = (Runs::default(), Gate::new());
    let answers = {
        let message = message.clone();
        Answers::new(&runs).gated(&gate, move |_, _| {
            let mut response = Response::new(message.clone());
            response.metadata_mut().insert("x-h", "2".parse().unwrap());
            Ok(response)
        })
    };
    let mut channels = Vec::new();
    let mut addresses = Vec::new();
    for node in &nodes {
        let address = serve_with_trailers(node, &answers).await;
        channels.push(connect(address).await);
        addresses.push(address);
    }
    let calls = [0, 0, 1].map(|server| get(&channels[server], ask("question", &[])));
    let (got, ()) = tokio::join!(join_all(calls), open_for(&nodes, 3, &gate));
    assert_eq!(runs.total(), 1);
    let mut shared = 0;
    for response in got {
        let response = response.unwrap();
        let metadata = response.metadata();
        shared += usize::from(is_shared(metadata));
        assert_eq!(metadata.get("x-h").unwrap(), "2");
        assert_trailers(metadata);
        assert!(response.into_inner() == message, "other bytes");
    }
    assert_eq!(shared, 2);
    // And what is on the wire, for clients that are less kind.
    for address in addresses {
        let answer = raw_call(address).await;
        assert_eq!(answer.headers["content-type"], "application/grpc");
        let trailers = answer.trailers.unwrap();
        let names = ["grpc-status", "x-t", "x-b-bin"].map(|name| trailers[name].as_bytes());
        assert_eq!(names, [&b"0"[..], b"1", b"AAH/gA"]);
        assert_eq!(answer.body.len(), 5 + message.len());
    }
}

async fn raw_call(server: std::net::SocketAddr) -> crate::support::Answer {
    let stream = TokioIo::new(TcpStream::connect(server).await.unwrap());
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://answers.test{GET}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::from(Bytes::from_static(b"\0\0\0\0\x01q")))
        .unwrap();
    read(client.send_request(request).await.unwrap()).await.unwrap()
}

#[tokio::test]
async fn n1_all_get_message_status_and_trailers() {
    n1(nodes()).await;
}

#[tokio::test]
async fn n1_all_get_message_status_and_trailers_over_redis() {
    let server = RedisServer::start();
    let store = async || RedisStore::connect(&server.url()).await.unwrap();
    n1([node(store().await), node(store().await)]).await;
}

#[tokio::test]
async fn n2_all_get_the_same_error() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let answers = Answers::new(&runs).gated(&gate, |_, _| {
        let mut metadata = MetadataMap::new();
        metadata.insert("x-why", "gone".parse().unwrap());
        metadata.insert_bin("x-b-bin", BinaryMetadataValue::from_bytes(&[0, 255]));
        let details = Bytes::from_static(&[8, 5, 0, 255]);
        let text = "nothing here: \u{e9}\u{1f980} 100 %\n";
        Err(Status::with_details_and_metadata(Code::NotFound, text, details, metadata))
    });
    let nodes = nodes();
    let channels = fleet::<3>(&nodes, &answers).await;
    let calls = [0, 0, 1, 2, 2].map(|server| get(&channels[server], ask("question", &[])));
    let (got, ()) = tokio::join!(join_all(calls), open_for(&nodes, 5, &gate));
    assert_eq!(runs.total(), 1);
    let mut shared = 0;
    for status in got {
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(status.message(), "nothing here: \u{e9}\u{1f980} 100 %\n");
        assert_eq!(status.details(), [8, 5, 0, 255]);
        assert_eq!(status.metadata().get("x-why").unwrap(), "gone");
        let binary = status.metadata().get_bin("x-b-bin").unwrap().to_bytes().unwrap();
        assert_eq!(&binary[..], [0, 255]);
        shared += usize::from(is_shared(status.metadata()));
    }
    assert_eq!(shared, 4);
}

#[tokio::test]
async fn n4_what_belongs_to_one_call_does_not_tell_calls_apart() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let answers = Answers::new(&runs).gated(&gate, |run, request| {
        // No deadline of a caller reaches a run that others wait for.
        assert!(request.metadata().get("grpc-timeout").is_none());
        Ok(Response::new(run.to_string().into()))
    });
    let nodes = nodes();
    let channels = fleet::<2>(&nodes, &answers).await;
    let metadata: [&[(&str, &str)]; 9] = [
        &[],
        &[("grpc-timeout", "20S")],
        &[("grpc-timeout", "30S"), ("x-request-id", "7")],
        &[("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")],
        &[("authorization", "Bearer A")],
        &[("authorization", "Bearer B")],
        &[("x-unknown", "1")],
        &[("x-unknown", "2")],
        &[("x-unknown", "2"), ("grpc-timeout", "10S")],
    ];
    let calls = metadata
        .iter()
        .enumerate()
        .map(|(place, metadata)| get(&channels[place % 2], ask("question", metadata)));
    let (got, ()) = tokio::join!(join_all(calls), open_for(&nodes, metadata.len(), &gate));
    let runs_of: Vec<_> = got.into_iter().map(|got| got.unwrap().into_inner()).collect();
    assert_eq!(runs.total(), 5);
    assert!(runs_of[..4].iter().all(|run| *run == runs_of[0]));
    assert_eq!(runs_of[7], runs_of[8]);
    let mut apart = [&runs_of[0], &runs_of[4], &runs_of[5], &runs_of[6], &runs_of[7]].to_vec();
    apart.sort();
    apart.dedup();
    assert_eq!(apart.len(), 5);
}

#[tokio::test]
async fn n4_another_message_is_another_call() {
    let (runs, gate, [node]) = (Runs::default(), Gate::new(), nodes());
    let answers =
        Answers::new(&runs).gated(&gate, |_, request| Ok(Response::new(request.into_inner())));
    let channel = serve(&node, &answers).await;
    let calls = ["a", "b", "", "a"].map(|message| get(&channel, ask(message, &[])));
    let (got, ()) = tokio::join!(join_all(calls), open_for(std::slice::from_ref(&node), 4, &gate));
    let texts: Vec<_> = got.into_iter().map(|got| got.unwrap().into_inner()).collect();
    assert_eq!(texts, ["a", "b", "", "a"]);
    assert_eq!((runs.total(), node.stats().follower_local), (3, 1));
}

#[tokio::test]
async fn large_messages_pass_through_whole() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let node = crate::rig::Node::grpc(crate::rig::key().message_limit(1000)).store(store.clone());
    let channel = serve(&node, &Answers::new(&runs)).await;
    for (size, ran) in [(200_000_u32, (1, 0)), (1001, (2, 0)), (1000, (2, 1))] {
        assert!(store.is_empty(), "{size}");
        let message: Bytes = (0..size).map(|at| (at / 7 + at) as u8).collect();
        let got = get(&channel, ask(message.clone(), &[])).await.unwrap();
        assert!(got.into_inner() == message, "other bytes");
        assert_eq!((node.stats().bypass, node.stats().owner), ran, "{size}");
    }
}

#[tokio::test]
async fn what_is_not_one_message_runs_alone() {
    let runs = Runs::default();
    let [node] = nodes();
    let service = crate::rig::wrap(&node, Answers::new(&runs));
    for body in [&b""[..], b"\0\0\0\0\x01", b"\0\0\0\0\x01qq", b"\0\0\0\0\x01q\0\0\0\0\x01q"] {
        let request = http::Request::post(format!("http://answers.test{GET}"))
            .header("content-type", "application/grpc")
            .body(Body::new(Full::from(Bytes::from_static(body))))
            .unwrap();
        let response = tower::ServiceExt::oneshot(service.clone(), request).await.unwrap();
        let role = response.extensions().get().copied();
        assert_eq!(role, Some(FlightRole::Bypass(Bypass::Body)), "{body:?}");
        // Inner is the judge of it.
        let headers: &HeaderMap = response.headers();
        assert!(headers.contains_key("content-type"), "{body:?}");
    }
}
