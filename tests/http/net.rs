//! Servers on loopback, and clients that speak to them over real connections.

use std::{convert::Infallible, net::SocketAddr};

use axum::Router;
use bytes::Bytes;
use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use tower::{BoxError, Service};

use crate::support::{Answer, Full, Req, read};

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An axum server.
pub(crate) async fn axum(app: Router) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Plain hyper, for HTTP/1.1 and HTTP/2; a clone of the service for each connection.
pub(crate) async fn hyper<S, B>(service: S) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>,
    S: Clone + Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

/// One connection.
pub(crate) enum Client {
    Http1(http1::SendRequest<Full>),
    Http2(http2::SendRequest<Full>),
}

pub(crate) async fn http1(server: SocketAddr) -> Client {
    let stream = TcpStream::connect(server).await.unwrap();
    let (client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Client::Http1(client)
}

pub(crate) async fn http2(server: SocketAddr) -> Client {
    let stream = TcpStream::connect(server).await.unwrap();
    let (client, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Client::Http2(client)
}

impl Client {
    /// Sends a request; on HTTP/1.1 the authority goes into `host`.
    pub(crate) async fn send(&mut self, mut request: Req) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(client) => {
                let uri = request.uri().clone();
                if let Some(authority) = uri.authority() {
                    request.headers_mut().insert("host", authority.as_str().parse().unwrap());
                    *request.uri_mut() = uri.path_and_query().unwrap().as_str().parse().unwrap();
                }
                client.ready().await?;
                client.send_request(request).await
            }
            Self::Http2(client) => {
                client.ready().await?;
                client.send_request(request).await
            }
        }
    }

    /// Sends a request and reads all of the answer.
    pub(crate) async fn ask(&mut self, request: Req) -> Answer {
        read(self.send(request).await.unwrap()).await.unwrap()
    }
}

/// An HTTP/1 connection of which every byte is seen.
pub(crate) struct Raw(BufReader<TcpStream>);

/// An answer as it was on the wire.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Wire {
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.fields.iter().filter(|(field, _)| field == name);
        fields.map(|(_, value)| value.as_str()).collect()
    }
}

impl Raw {
    pub(crate) async fn connect(server: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(server).await.unwrap()))
    }

    pub(crate) async fn send(&mut self, request: &str) {
        self.0.get_mut().write_all(request.as_bytes()).await.unwrap();
    }

    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    async fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).await.unwrap();
        bytes
    }

    /// Reads one answer, and no byte after it.
    pub(crate) async fn answer(&mut self, head_only: bool) -> Wire {
        let status = self.line().await.split(' ').nth(1).unwrap().parse().unwrap();
        let mut wire = Wire { status, fields: Vec::new(), body: Vec::new() };
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(':') else { break };
            wire.fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if head_only {
            return wire;
        }
        if let [length] = wire.all("content-length")[..] {
            wire.body = self.bytes(length.parse().unwrap()).await;
        } else if wire.all("transfer-encoding") == ["chunked"] {
            loop {
                let length = usize::from_str_radix(&self.line().await, 16).unwrap();
                let chunk = self.bytes(length).await;
                wire.body.extend(chunk);
                assert_eq!(self.line().await, "");
                if length == 0 {
                    break;
                }
            }
        } else {
            self.0.read_to_end(&mut wire.body).await.unwrap();
        }
        wire
    }
}
