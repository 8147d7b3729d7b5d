//! A node's way to Redis, which can be cut as a cable is: nobody is told, connections stay
//! open, and what was said meanwhile comes when it is whole again.

use std::{io, net::SocketAddr, path::PathBuf};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, UnixStream},
    sync::watch,
    task::JoinHandle,
};

/// Gone when dropped, and its connections with it.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    whole: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// To the server at this socket.
    pub(crate) async fn start(server: PathBuf) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (whole, way) = watch::channel(true);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let _ = client.set_nodelay(true);
                let Ok(server) = UnixStream::connect(&server).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (up, down) = (way.clone(), way.clone());
                // When one direction is at its end, so is the connection.
                tokio::spawn(async move {
                    tokio::select! {
                        _ = pass(from_client, to_server, up) => {}
                        _ = pass(from_server, to_client, down) => {}
                    }
                });
            }
        });
        Ok(Self { address, whole, accepting })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    pub(crate) fn set_whole(&self, whole: bool) {
        self.whole.send_replace(whole);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Passes on what comes, while the way is whole.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut way: watch::Receiver<bool>,
) -> Option<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let length = from.read(&mut buffer).await.ok().filter(|&length| length > 0)?;
        way.wait_for(|&whole| whole).await.ok()?;
        to.write_all(buffer.get(..length)?).await.ok()?;
    }
}
