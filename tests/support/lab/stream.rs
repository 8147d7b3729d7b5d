//! Answers that are read frame by frame, over connections of their own.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpSocket, task::JoinHandle};

use super::{Got, LOOK, Lab, PATIENCE};

/// What a stream's socket and windows hold, where they are to hold little.
const NARROW: u32 = 16 * 1024;

/// The version of HTTP that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Http1,
    Http2,
}

pub(crate) const WIRES: [Wire; 2] = [Wire::Http1, Wire::Http2];

/// A connection, for one request after the other.
pub(crate) struct Connection {
    sender: Sender,
    task: JoinHandle<()>,
}

enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Lab {
    /// An answer whose head is there, over a connection of its own; dropped, its
    /// client is gone.
    pub(crate) async fn open(&self, wire: Wire, path: &str) -> Stream {
        self.opening(wire, path).opened().await
    }

    /// The same, of a client that holds next to nothing of what it has not read.
    pub(crate) async fn open_narrow(&self, wire: Wire, path: &str) -> Stream {
        Opening::new(self.address, wire, true, path).opened().await
    }

    /// A client that has asked and has no head yet.
    pub(crate) fn opening(&self, wire: Wire, path: &str) -> Opening {
        Opening::new(self.address, wire, false, path)
    }

    /// Waits until inner has given so many bytes of data in all.
    pub(crate) async fn until_bytes(&self, bytes: u64) {
        let end = Instant::now() + PATIENCE;
        while self.count("/inner/bytes").await < bytes {
            assert!(Instant::now() < end, "fewer than {bytes} bytes after {PATIENCE:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(crate) async fn connect(&self, wire: Wire) -> Connection {
        Connection::new(self.address, wire, false).await.expect("a connection")
    }
}

/// A client that has asked.
pub(crate) struct Opening(JoinHandle<Result<Stream, String>>);

impl Opening {
    fn new(address: SocketAddr, wire: Wire, narrow: bool, path: &str) -> Self {
        let path = path.to_owned();
        Self(tokio::spawn(async move {
            let mut connection = Connection::new(address, wire, narrow).await?;
            let mut stream = connection.ask(&path).await?;
            stream.connection = Some(connection);
            Ok(stream)
        }))
    }

    /// The answer, or why there is none.
    pub(crate) async fn outcome(self) -> Result<Stream, String> {
        match tokio::time::timeout(PATIENCE, self.0).await {
            Ok(outcome) => outcome.expect("no panic"),
            Err(_) => panic!("no head in {PATIENCE:?}"),
        }
    }

    pub(crate) async fn opened(self) -> Stream {
        self.outcome().await.unwrap_or_else(|error| panic!("a client got: {error}"))
    }
}

impl Connection {
    async fn new(address: SocketAddr, wire: Wire, narrow: bool) -> Result<Self, String> {
        let text = |error: hyper::Error| format!("{error:?}");
        let socket = TcpSocket::new_v4().map_err(|error| error.to_string())?;
        if narrow {
            socket.set_recv_buffer_size(NARROW).map_err(|error| error.to_string())?;
        }
        let io = socket.connect(address).await.map_err(|error| error.to_string())?;
        io.set_nodelay(true).map_err(|error| error.to_string())?;
        let io = TokioIo::new(io);
        // How the connection ends is seen by the request.
        Ok(match wire {
            Wire::Http1 => {
                let mut builder = http1::Builder::new();
                if narrow {
                    builder.max_buf_size(NARROW as usize);
                }
                let (sender, connection) = builder.handshake(io).await.map_err(text)?;
                let task = tokio::spawn(async { drop(connection.await) });
                Self { sender: Sender::Http1(sender), task }
            }
            Wire::Http2 => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                if narrow {
                    builder.initial_stream_window_size(NARROW);
                }
                let (sender, connection) = builder.handshake(io).await.map_err(text)?;
                let task = tokio::spawn(async { drop(connection.await) });
                Self { sender: Sender::Http2(sender), task }
            }
        })
    }

    /// Asks, once what was asked before is answered.
    pub(crate) async fn ask(&mut self, path: &str) -> Result<Stream, String> {
        let text = |error: hyper::Error| format!("{error:?}");
        let request = Request::builder().uri(match self.sender {
            Sender::Http1(_) => path.to_owned(),
            Sender::Http2(_) => format!("http://lab{path}"),
        });
        let request = match self.sender {
            Sender::Http1(_) => request.header("host", "lab"),
            Sender::Http2(_) => request,
        };
        let request = request.body(Empty::new());
        let request = request.map_err(|error| error.to_string())?;
        let asked = Instant::now();
        let response = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await.map_err(text)?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await.map_err(text)?;
                sender.send_request(request).await
            }
        };
        let (parts, body) = response.map_err(text)?.into_parts();
        let got = Got {
            status: parts.status,
            headers: parts.headers,
            asked,
            body: Vec::new(),
            frames: Vec::new(),
            trailers: None,
            error: None,
            at: Instant::now(),
        };
        Ok(Stream { incoming: body, got, over: false, connection: None })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An answer whose body is read by and by.
pub(crate) struct Stream {
    incoming: Incoming,
    got: Got,
    over: bool,
    /// Its own; gone with it.
    connection: Option<Connection>,
}

impl Stream {
    pub(crate) fn got(&self) -> &Got {
        &self.got
    }

    /// Reads one frame; false at the end, be it good or bad.
    pub(crate) async fn next(&mut self) -> bool {
        if self.over {
            return false;
        }
        let frame = match tokio::time::timeout(PATIENCE, self.incoming.frame()).await {
            Ok(frame) => frame,
            Err(_) => panic!("no frame in {PATIENCE:?}, after {} bytes", self.got.body.len()),
        };
        self.got.at = Instant::now();
        match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    self.got.body.extend_from_slice(&data);
                    self.got.frames.push((self.got.body.len(), self.got.at));
                }
                Err(frame) => self.got.trailers = frame.into_trailers().ok(),
            },
            Some(Err(error)) => {
                self.got.error = Some(format!("{error:?}"));
                self.over = true;
            }
            None => self.over = true,
        }
        !self.over
    }

    /// Reads until there are so many bytes, or the end is there.
    pub(crate) async fn until(&mut self, bytes: usize) {
        while self.got.body.len() < bytes && self.next().await {}
    }

    /// Reads the rest.
    pub(crate) async fn rest(mut self) -> Got {
        while self.next().await {}
        self.got
    }

    /// Reads the rest in a task of its own.
    pub(crate) fn reading(self) -> Reading {
        Reading(tokio::spawn(self.rest()))
    }

    /// The same, so many bytes a second.
    pub(crate) fn reading_at(mut self, pace: usize) -> Reading {
        Reading(tokio::spawn(async move {
            let (start, before) = (Instant::now(), self.got.body.len());
            while self.next().await {
                let read = (self.got.body.len() - before) as f64;
                let due = start + Duration::from_secs_f64(read / pace as f64);
                tokio::time::sleep_until(due.into()).await;
            }
            self.got
        }))
    }
}

/// A client that reads on by itself; aborted, it hangs up.
pub(crate) struct Reading(JoinHandle<Got>);

impl Reading {
    /// What it got, however that ended.
    pub(crate) async fn got(self) -> Got {
        match tokio::time::timeout(PATIENCE, self.0).await {
            Ok(got) => got.expect("no panic"),
            Err(_) => panic!("a body without an end in {PATIENCE:?}"),
        }
    }

    /// Hangs up.
    pub(crate) fn leave(self) {
        self.0.abort();
    }
}
