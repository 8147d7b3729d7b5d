//! A way to the server that can be slow, silent or cut, and lose a push.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
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
    swallow: Arc<AtomicU8>,
}

#[derive(Clone, Copy)]
struct Way {
    link: Link,
    /// No reply is passed on before this.
    held: Instant,
}

/// What is to be lost: nothing, the next push, or the next one that tells of an end.
const NOTHING: u8 = 0;
const ANY: u8 = 1;
const END: u8 = 2;

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
        let swallow = Arc::new(AtomicU8::new(NOTHING));
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
        self.swallow.store(ANY, Ordering::Relaxed);
    }

    /// The next message that tells of a flight's end is lost, and no other.
    pub(crate) fn swallow_end(&self) {
        self.swallow.store(END, Ordering::Relaxed);
    }

    /// Whether the message to be lost has come.
    pub(crate) fn has_swallowed(&self) -> bool {
        self.swallow.load(Ordering::Relaxed) == NOTHING
    }
}

async fn accept(
    listener: TcpListener,
    server: u16,
    way: watch::Receiver<Way>,
    swallow: Arc<AtomicU8>,
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
    swallow: Option<Arc<AtomicU8>>,
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
            && let Some(push) = lost(bytes, swallow.load(Ordering::Relaxed))
        {
            swallow.store(NOTHING, Ordering::Relaxed);
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

/// Where the message is among these bytes that is to be lost.
fn lost(bytes: &[u8], what: u8) -> Option<Range<usize>> {
    if what == NOTHING {
        return None;
    }
    let mut from = 0;
    loop {
        let (whole, payload) = message(bytes, from)?;
        // After the format comes the kind: pieces, who comes, or an end.
        let kind = bytes[payload].get(1).copied().unwrap_or_default();
        if what == ANY || !b"PNW".contains(&kind) {
            return Some(whole);
        }
        from = whole.end;
    }
}

/// Where the next whole pushed message is among these bytes, and what it says: three
/// strings after `>3`.
fn message(bytes: &[u8], from: usize) -> Option<(Range<usize>, Range<usize>)> {
    const HEAD: &[u8] = b">3\r\n$7\r\nmessage\r\n";
    let start = from + bytes[from..].windows(HEAD.len()).position(|window| window == HEAD)?;
    let mut end = start + HEAD.len();
    let mut payload = end..end;
    for _ in 0..2 {
        let line = bytes[end..].windows(2).position(|window| window == b"\r\n")?;
        let length: usize = std::str::from_utf8(&bytes[end + 1..end + line]).ok()?.parse().ok()?;
        let said = end + line + 2;
        payload = said..said + length;
        end = payload.end + 2;
    }
    (end <= bytes.len()).then_some((start..end, payload))
}
