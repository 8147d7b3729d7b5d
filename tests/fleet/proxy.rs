//! A way to the server that can be slow, silent or cut, and lose a push.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

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
    way: watch::Sender<Way>,
    swallow: Arc<AtomicBool>,
}

#[derive(Clone, Copy)]
struct Way {
    link: Link,
    /// No reply is passed on before this.
    held: Instant,
}

/// Whether anything goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Open,
    /// Connections stay open, and new ones are taken, but nothing goes through until
    /// it is open again; what was said meanwhile then comes late.
    Silent,
    /// Connections are closed, and so are new ones.
    Cut,
}

impl Proxy {
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let (way, ways) = watch::channel(Way { link: Link::Open, held: Instant::now() });
        let swallow = Arc::new(AtomicBool::new(false));
        let swallowing = Arc::clone(&swallow);
        tokio::spawn(async move {
            let mut over = ways.clone();
            // The wait ends with an error when the proxy is dropped.
            tokio::select! {
                () = accept(listener, server, ways, swallowing) => {}
                () = async { while over.changed().await.is_ok() {} } => {}
            }
        });
        Self { port, way, swallow }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// For so long, what the server says does not get through.
    pub(crate) fn hold_replies(&self, time: Duration) {
        self.way.send_modify(|way| way.held = Instant::now() + time);
    }

    pub(crate) fn set(&self, link: Link) {
        self.way.send_modify(|way| way.link = link);
    }

    /// The next message that the server pushes is lost.
    pub(crate) fn swallow_push(&self) {
        self.swallow.store(true, Ordering::Relaxed);
    }

    /// Whether the message to be lost has come.
    pub(crate) fn has_swallowed(&self) -> bool {
        !self.swallow.load(Ordering::Relaxed)
    }
}

async fn accept(
    listener: TcpListener,
    server: u16,
    way: watch::Receiver<Way>,
    swallow: Arc<AtomicBool>,
) {
    while let Ok((client, _)) = listener.accept().await {
        if way.borrow().link == Link::Cut {
            continue;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
        for stream in [&client, &server] {
            stream.set_nodelay(true).expect("a socket");
        }
        let ((from_client, to_client), (from_server, to_server)) =
            (client.into_split(), server.into_split());
        tokio::spawn(copy(from_client, to_server, way.clone(), None));
        tokio::spawn(copy(from_server, to_client, way.clone(), Some(Arc::clone(&swallow))));
    }
}

/// Passes bytes on; replies are those with `swallow`.
async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut way: watch::Receiver<Way>,
    swallow: Option<Arc<AtomicBool>>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            // With both halves of both directions gone, the connections are closed.
            _ = way.wait_for(|way| way.link == Link::Cut) => return,
        };
        let Ok(read @ 1..) = read else { return };
        let bytes = &buffer[..read];
        if swallow.is_some() {
            let until = way.borrow().held;
            tokio::time::sleep_until(until.into()).await;
        }
        match way.wait_for(|way| way.link != Link::Silent).await {
            Ok(way) if way.link == Link::Open => {}
            _ => return,
        }
        if let Some(swallow) = &swallow
            && swallow.load(Ordering::Relaxed)
            && let Some(push) = message(bytes)
        {
            swallow.store(false, Ordering::Relaxed);
            let rest = [&bytes[..push.start], &bytes[push.end..]].concat();
            if to.write_all(&rest).await.is_err() {
                return;
            }
            continue;
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}

/// Where a whole pushed message is among these bytes: three strings after `>3`.
fn message(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    const HEAD: &[u8] = b">3\r\n$7\r\nmessage\r\n";
    let start = bytes.windows(HEAD.len()).position(|window| window == HEAD)?;
    let mut end = start + HEAD.len();
    for _ in 0..2 {
        let line = bytes[end..].windows(2).position(|window| window == b"\r\n")?;
        let length = std::str::from_utf8(&bytes[end + 1..end + line]).ok()?;
        end += line + 2 + length.parse::<usize>().ok()? + 2;
    }
    (end <= bytes.len()).then_some(start..end)
}
