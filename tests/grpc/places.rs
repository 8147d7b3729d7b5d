//! Where the layer can stand in a server.

use bytes::Bytes;
use tonic::{
    Response,
    body::Body,
    service::{LayerExt, Routes},
    transport::Server,
};
use tower::ServiceBuilder;

use crate::{
    rig::{Answers, ask, connect, get, is_shared, listen, nodes, wrap},
    support::{Gate, Runs, callers, until},
};

/// Two callers at once over `channel` share a run.
async fn shares(node: &crate::rig::Node, channel: &tonic::transport::Channel, gate: &Gate) {
    let opened = async {
        until("both callers", || callers(node) == 2).await;
        gate.open();
    };
    let (one, two, ()) =
        tokio::join!(get(channel, ask("q", &[])), get(channel, ask("q", &[])), opened);
    let [one, two] = [one, two].map(Result::unwrap);
    assert!(is_shared(one.metadata()) != is_shared(two.metadata()));
    assert_eq!((one.into_inner(), two.into_inner()), (Bytes::from("0"), Bytes::from("0")));
}

#[tokio::test]
async fn around_one_service() {
    let (runs, gate, [node]) = (Runs::default(), Gate::new(), nodes());
    let answers =
        Answers::new(&runs).gated(&gate, |run, _| Ok(Response::new(run.to_string().into())));
    let (incoming, address) = listen().await;
    let server = Server::builder().add_service(node.named_layer(answers));
    tokio::spawn(server.serve_with_incoming(incoming));
    shares(&node, &connect(address).await, &gate).await;
}

#[tokio::test]
async fn around_one_service_with_other_layers() {
    let (runs, gate, [node]) = (Runs::default(), Gate::new(), nodes());
    let answers =
        Answers::new(&runs).gated(&gate, |run, _| Ok(Response::new(run.to_string().into())));
    let (incoming, address) = listen().await;
    let stack = ServiceBuilder::new().layer(node.clone()).concurrency_limit(1).into_inner();
    let server = Server::builder().add_service(stack.named_layer(answers));
    tokio::spawn(server.serve_with_incoming(incoming));
    shares(&node, &connect(address).await, &gate).await;
}

#[tokio::test]
async fn around_routes_in_axum() {
    let (runs, gate, [node]) = (Runs::default(), Gate::new(), nodes());
    let answers =
        Answers::new(&runs).gated(&gate, |run, _| Ok(Response::new(run.to_string().into())));
    // The bodies are axum's there, and so is what gives them back.
    let key = tower_singleflight::GrpcKey::new(axum::body::Body::new).method(crate::rig::GET);
    let layer = tower_singleflight::SingleFlightLayer::grpc(key);
    let app = Routes::new(answers).into_axum_router().layer(layer.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channel = {
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        connect(address).await
    };
    let opened = async {
        until("both callers", || callers(&layer) == 2).await;
        gate.open();
    };
    let (one, two, ()) =
        tokio::join!(get(&channel, ask("q", &[])), get(&channel, ask("q", &[])), opened);
    assert_eq!(one.unwrap().into_inner(), two.unwrap().into_inner());
    assert_eq!((runs.total(), node.stats().owner), (1, 0));
}

#[test]
fn what_a_server_asks_of_services_holds() {
    fn service<S>(_: &S)
    where
        S: tower::Service<http::Request<Body>, Error = std::convert::Infallible, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
    {
    }
    let [node] = nodes();
    service(&wrap(&node, Answers::new(&Runs::default())));
}
