//! A service without generated code, its servers and its clients.

use std::{convert::Infallible, future::Future, net::SocketAddr, pin::Pin, sync::Arc};

use bytes::{Buf, BufMut, Bytes};
use http::{HeaderValue, uri::PathAndQuery};
use http_body_util::BodyExt;
use tokio::net::TcpListener;
use tokio_stream::Stream;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder},
    metadata::MetadataMap,
    server::NamedService,
    transport::{Channel, Endpoint, Server, server::TcpIncoming},
};
use tower::{Layer, Service, util::MapResponseLayer};
use tower_singleflight::{GrpcKey, MemoryStore, SingleFlightLayer, Store, key::ReadBody};

use crate::support::{Gate, Runs};

pub(crate) const GET: &str = "/test.Answers/Get";
pub(crate) const LIST: &str = "/test.Answers/List";
pub(crate) const COLLECT: &str = "/test.Answers/Collect";
pub(crate) const CHAT: &str = "/test.Answers/Chat";

/// Messages are bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
pub(crate) type Messages = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

type Get =
    dyn Fn(usize, Request<Bytes>) -> BoxFuture<Result<Response<Bytes>, Status>> + Send + Sync;
type List = dyn Fn(usize, Request<Bytes>) -> Result<Response<Messages>, Status> + Send + Sync;
type Chat = dyn Fn(Request<Streaming<Bytes>>) -> Result<Response<Messages>, Status> + Send + Sync;

/// The service: what each method does, and a count of the runs of the first two.
#[derive(Clone)]
pub(crate) struct Answers {
    pub(crate) runs: Runs,
    get: Arc<Get>,
    list: Arc<List>,
    chat: Arc<Chat>,
}

impl Answers {
    /// Echoes.
    pub(crate) fn new(runs: &Runs) -> Self {
        Self {
            runs: runs.clone(),
            get: Arc::new(|_, request| {
                Box::pin(async move { Ok(Response::new(request.into_inner())) })
            }),
            list: Arc::new(|_, _| Err(Status::unimplemented("list"))),
            chat: Arc::new(|_| Err(Status::unimplemented("chat"))),
        }
    }

    /// A unary method; it gets the number of the run.
    pub(crate) fn get<F, A>(self, get: F) -> Self
    where
        F: Fn(usize, Request<Bytes>) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Response<Bytes>, Status>> + Send + 'static,
    {
        Self { get: Arc::new(move |run, request| Box::pin(get(run, request))), ..self }
    }

    /// A unary method that waits at the gate first.
    pub(crate) fn gated<F>(self, gate: &Gate, get: F) -> Self
    where
        F: Fn(usize, Request<Bytes>) -> Result<Response<Bytes>, Status> + Send + Sync + 'static,
    {
        let (gate, get) = (gate.clone(), Arc::new(get));
        self.get(move |run, request| {
            let (gate, get) = (gate.clone(), Arc::clone(&get));
            async move {
                gate.passed().await;
                get(run, request)
            }
        })
    }

    /// A method whose answer is a stream.
    pub(crate) fn list<F>(self, list: F) -> Self
    where
        F: Fn(usize, Request<Bytes>) -> Result<Response<Messages>, Status> + Send + Sync + 'static,
    {
        Self { list: Arc::new(list), ..self }
    }

    /// A method with streams both ways.
    pub(crate) fn chat<F>(self, chat: F) -> Self
    where
        F: Fn(Request<Streaming<Bytes>>) -> Result<Response<Messages>, Status>
            + Send
            + Sync
            + 'static,
    {
        Self { chat: Arc::new(chat), ..self }
    }
}

struct UnaryOf(Answers);

impl tonic::server::UnaryService<Bytes> for UnaryOf {
    type Response = Bytes;
    type Future = BoxFuture<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let run = self.0.runs.begin();
        let answer = (self.0.get)(run.number, request);
        Box::pin(async move {
            let answer = answer.await;
            run.finish();
            answer
        })
    }
}

struct ListOf(Answers);

impl tonic::server::ServerStreamingService<Bytes> for ListOf {
    type Response = Bytes;
    type ResponseStream = Messages;
    type Future = BoxFuture<Result<Response<Messages>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let run = self.0.runs.begin();
        let answer = (self.0.list)(run.number, request);
        run.finish();
        Box::pin(async move { answer })
    }
}

struct ChatOf(Answers);

impl tonic::server::StreamingService<Bytes> for ChatOf {
    type Response = Bytes;
    type ResponseStream = Messages;
    type Future = BoxFuture<Result<Response<Messages>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let answer = (self.0.chat)(request);
        Box::pin(async move { answer })
    }
}

impl Service<http::Request<Body>> for Answers {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            // For clients that ask for it.
            let mut grpc = tonic::server::Grpc::new(Plain)
                .accept_compressed(CompressionEncoding::Gzip)
                .send_compressed(CompressionEncoding::Gzip);
            Ok(match request.uri().path() {
                GET => grpc.unary(UnaryOf(this), request).await,
                LIST => grpc.server_streaming(ListOf(this), request).await,
                COLLECT | CHAT => grpc.streaming(ChatOf(this), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

impl NamedService for Answers {
    const NAME: &'static str = "test.Answers";
}

pub(crate) type Key = GrpcKey<fn(ReadBody<Body>) -> Body>;
pub(crate) type Node = SingleFlightLayer<Key>;

/// A key that shares `Get` and `List`.
pub(crate) fn key() -> Key {
    GrpcKey::new(Body::new as fn(ReadBody<Body>) -> Body).methods([GET, LIST])
}

pub(crate) fn node(store: impl Store) -> Node {
    SingleFlightLayer::grpc(key()).store(store).namespace("tests")
}

/// Layers that meet on one store, as processes of a fleet do.
pub(crate) fn nodes<const N: usize>() -> [Node; N] {
    let store = MemoryStore::new();
    std::array::from_fn(|_| node(store.clone()))
}

/// A port of its own.
pub(crate) async fn listen() -> (TcpIncoming, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (TcpIncoming::from(listener), address)
}

/// A server with this layer over all of its services.
pub(crate) async fn serve(node: &Node, answers: &Answers) -> Channel {
    let (incoming, address) = listen().await;
    let server = Server::builder().layer(node.clone()).add_service(answers.clone());
    tokio::spawn(server.serve_with_incoming(incoming));
    connect(address).await
}

/// As [`serve`], with more in the trailers that say how a call went.
pub(crate) async fn serve_with_trailers(node: &Node, answers: &Answers) -> SocketAddr {
    let (incoming, address) = listen().await;
    let server = Server::builder()
        .layer(node.clone())
        .layer(MapResponseLayer::new(with_trailers as fn(_) -> _))
        .add_service(answers.clone());
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

fn with_trailers(response: http::Response<Body>) -> http::Response<Body> {
    response.map(|body| {
        Body::new(body.map_frame(|frame| match frame.into_trailers() {
            Ok(mut trailers) => {
                trailers.insert("x-t", HeaderValue::from_static("1"));
                trailers.insert("x-b-bin", HeaderValue::from_static("AAH/gA"));
                http_body::Frame::trailers(trailers)
            }
            Err(frame) => frame,
        }))
    })
}

/// What [`serve_with_trailers`] adds is there.
pub(crate) fn assert_trailers(metadata: &MetadataMap) {
    assert_eq!(metadata.get("x-t").unwrap(), "1");
    let binary = metadata.get_bin("x-b-bin").unwrap().to_bytes().unwrap();
    assert_eq!(&binary[..], [0, 1, 0xFF, 0x80]);
}

/// Servers of one fleet, each with a client.
pub(crate) async fn fleet<const N: usize>(nodes: &[Node; N], answers: &Answers) -> Vec<Channel> {
    let mut channels = Vec::new();
    for node in nodes {
        channels.push(serve(node, answers).await);
    }
    channels
}

/// A client that knows the fleet by one name.
pub(crate) async fn connect(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    endpoint.origin("http://answers.test".parse().unwrap()).connect().await.unwrap()
}

/// One unary call over this channel.
pub(crate) fn get(
    channel: &Channel,
    request: Request<Bytes>,
) -> impl Future<Output = Result<Response<Bytes>, Status>> + Send + use<> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    async move {
        client.ready().await.unwrap();
        client.unary(request, PathAndQuery::from_static(GET), Plain).await
    }
}

/// A request with this message and metadata.
pub(crate) fn ask(message: impl Into<Bytes>, metadata: &[(&'static str, &str)]) -> Request<Bytes> {
    let mut request = Request::new(message.into());
    for (name, value) in metadata {
        request.metadata_mut().insert(*name, value.parse().unwrap());
    }
    request
}

/// Whether the layer says that the answer was made for another call.
pub(crate) fn is_shared(metadata: &MetadataMap) -> bool {
    let status = metadata.get("cache-status").map(|status| status.to_str().unwrap());
    status.is_some_and(|status| status.ends_with("collapsed"))
}

/// Applies a layer to a service by its type alone.
pub(crate) fn wrap<L: Layer<S>, S>(layer: &L, service: S) -> L::Service {
    layer.layer(service)
}
