//! A way to the server on which replies can be held up.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// A TCP proxy; gone when dropped.
pub(crate) struct Proxy {
    port: u16,
    // No reply is passed on before this.
    held: watch::Sender<Instant>,
}

impl Proxy {
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let (held, holding) = watch::channel(Instant::now());
        tokio::spawn(async move {
            let mut over = holding.clone();
            // The wait ends with an error when the proxy is dropped.
            tokio::select! {
                () = accept(listener, server, holding) => {}
                () = async { while over.changed().await.is_ok() {} } => {}
            }
        });
        Self { port, held }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// For so long, what the server says does not get through.
    pub(crate) fn hold_replies(&self, time: Duration) {
        self.held.send_replace(Instant::now() + time);
    }
}

async fn accept(listener: TcpListener, server: u16, held: watch::Receiver<Instant>) {
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
        for stream in [&client, &server] {
            stream.set_nodelay(true).expect("a socket");
        }
        let ((from_client, to_client), (from_server, to_server)) =
            (client.into_split(), server.into_split());
        tokio::spawn(copy(from_client, to_server, None));
        tokio::spawn(copy(from_server, to_client, Some(held.clone())));
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    held: Option<watch::Receiver<Instant>>,
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if let Some(held) = &held {
            let until = *held.borrow();
            tokio::time::sleep_until(until.into()).await;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
