//! What a server and its client have between them beside requests and responses: other
//! protocols on their connection (row M4), and early hints.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
};
use tower::{Layer, service_fn};

use crate::{
    net,
    support::{Full, Gate, Req, Runs, ask, callers, get, layer, text, until},
};

/// Switches to an echo of bytes where it is asked to.
async fn echo(request: Request<Incoming>, runs: Runs) -> Result<Response<Full>, Infallible> {
    runs.begin().finish();
    let tunnel = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let Ok(tunnel) = tunnel.await else { return };
        let (mut from, mut to) = tokio::io::split(TokioIo::new(tunnel));
        let _ = tokio::io::copy(&mut from, &mut to).await;
    });
    let mut response = text("");
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert("connection", "upgrade".parse().unwrap());
    response.headers_mut().insert("upgrade", "echo".parse().unwrap());
    Ok(response)
}

#[tokio::test]
async fn m4_a_server_switches_each_connection_for_itself() {
    let (runs, node) = (Runs::default(), layer());
    let counted = runs.clone();
    let server = service_fn(move |request| echo(request, counted.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = node.layer(server);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper_util::service::TowerToHyperService::new(service.clone());
            let server = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            tokio::spawn(server);
        }
    });
    let mut tunnels = Vec::new();
    for _ in 0..2 {
        let mut raw = net::Raw::connect(address).await;
        let head = "GET /tunnel HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\n";
        raw.send(&format!("{head}upgrade: echo\r\n\r\n")).await;
        let wire = raw.answer(true).await;
        assert_eq!((wire.status, wire.all("upgrade")), (101, vec!["echo"]));
        assert_eq!(wire.all("cache-status"), ["tower-singleflight; fwd=bypass"]);
        tunnels.push(raw);
    }
    for (n, raw) in tunnels.iter_mut().enumerate() {
        raw.send(&format!("through {n}\n")).await;
    }
    for (n, raw) in tunnels.iter_mut().enumerate() {
        assert_eq!(raw.line().await, format!("through {n}"));
    }
    assert_eq!(runs.total(), 2);
    assert!(node.flights().is_empty());
}

/// Sends a hint, and the answer when the gate is open.
async fn hinting(gate: &Gate) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let gate = gate.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let gate = gate.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).await? > 2 {
                    line.clear();
                }
                let hint = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n";
                stream.write_all(hint.as_bytes()).await?;
                gate.passed().await;
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                stream.write_all(answer.as_bytes()).await?;
                stream.read_to_end(&mut Vec::new()).await
            });
        }
    });
    address
}

/// A client that asks for early hints has them where its own request is run; they are no
/// answer, and nobody else's.
#[tokio::test]
async fn early_hints_go_to_the_client_whose_request_is_run() {
    let gate = Gate::new();
    let upstream = hinting(&gate).await;
    let node = layer();
    let service = node.layer(Client::builder(TokioExecutor::new()).build_http::<Full>());
    let hints = Arc::new(Mutex::new(Vec::new()));
    let request = |name: &'static str| -> Req {
        let mut request = get("/");
        *request.uri_mut() = format!("http://{upstream}/").parse().unwrap();
        let hints = Arc::clone(&hints);
        hyper::ext::on_informational(&mut request, move |hint| {
            hints.lock().unwrap().push((name, hint.status()));
        });
        request
    };
    let owner = tokio::spawn(ask(&service, request("owner")));
    until("the hint", || hints.lock().unwrap().len() == 1).await;
    let follower = tokio::spawn(ask(&service, request("follower")));
    until("both callers", || callers(&node) == 2).await;
    gate.open();
    let (owner, follower) = (owner.await.unwrap(), follower.await.unwrap());
    assert_eq!((owner.text(), follower.text()), ("ok", "ok"));
    assert!(owner.is_owner() && follower.is_shared());
    assert_eq!(*hints.lock().unwrap(), [("owner", StatusCode::EARLY_HINTS)]);
}
