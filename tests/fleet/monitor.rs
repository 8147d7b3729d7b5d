//! What the server is asked, by whom and when.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    thread::JoinHandle,
};

use crate::support::redis_server::RedisServer;

/// Listens to all commands that clients send, or to what is read of its lines.
pub(crate) struct Monitor<T = Sent> {
    stream: UnixStream,
    thread: JoinHandle<Vec<T>>,
}

/// One command; those that scripts call are none.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Microseconds of the server's clock.
    pub(crate) at: u64,
    /// The address of the connection.
    pub(crate) from: String,
    pub(crate) command: String,
}

impl Monitor {
    pub(crate) fn start(redis: &RedisServer) -> Self {
        Self::parsing(redis, Sent::parse)
    }
}

impl<T: Send + 'static> Monitor<T> {
    pub(crate) fn parsing(redis: &RedisServer, parse: fn(&str) -> Option<T>) -> Self {
        let mut stream = redis.connect();
        stream.write_all(b"*1\r\n$7\r\nMONITOR\r\n").expect("the server listens");
        let reading = stream.try_clone().expect("a handle");
        let mut lines = BufReader::new(reading).lines();
        let begun = lines.next().and_then(Result::ok);
        assert_eq!(begun.as_deref(), Some("+OK"));
        let sent = move || lines.map_while(Result::ok).filter_map(move |line| parse(&line));
        Self { stream, thread: std::thread::spawn(move || sent().collect()) }
    }

    /// All that was sent over TCP.
    pub(crate) fn end(self) -> Vec<T> {
        // It may be gone with the server.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.thread.join().expect("the monitor's thread")
    }
}

impl Sent {
    /// `+1700000000.123456 [0 127.0.0.1:41000] "EVALSHA" "…" …`
    fn parse(line: &str) -> Option<Self> {
        let (time, rest) = line.strip_prefix('+')?.split_once(" [")?;
        let (from, command) = rest.split_once("] ")?;
        let from = from.split_once(' ')?.1;
        let at = time.replace('.', "").parse().ok()?;
        let command = command.chars().take(40).collect();
        from.starts_with("127.").then(|| Self { at, from: from.to_owned(), command })
    }
}

/// Which user each connection belongs to.
pub(crate) fn users(redis: &RedisServer) -> HashMap<String, String> {
    let clients = redis.command(&["CLIENT", "LIST"]);
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|field| field.strip_prefix(name)).map(str::to_owned)
    };
    clients
        .lines()
        .filter_map(|line| Some((field(line, "addr=")?, field(line, "user=")?)))
        .collect()
}
