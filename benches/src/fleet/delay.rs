//! A way to the server on which everything comes so much later, in both directions.
//!
//! Threads, and no runtime: their sleep is exact to some tens of microseconds.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// Stays for as long as the process.
pub struct Delay {
    port: u16,
    sent: Arc<AtomicU64>,
}

impl Delay {
    pub fn start(server: u16, by: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let sent = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&sent);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                // A store that lives for longer than its server asks again.
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).expect("a socket");
                }
                let both = |stream: &TcpStream| stream.try_clone().expect("a socket");
                pipe(both(&client), both(&server), by, Arc::clone(&counted));
                pipe(server, client, by, Arc::default());
            }
        });
        Self { port, sent }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// How many bytes went to the server.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

fn pipe(mut from: TcpStream, mut to: TcpStream, by: Duration, count: Arc<AtomicU64>) {
    let (later, due) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            count.fetch_add(length as u64, Ordering::Relaxed);
            if later.send((Instant::now() + by, buffer[..length].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (when, bytes) in due {
            thread::sleep(when.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
