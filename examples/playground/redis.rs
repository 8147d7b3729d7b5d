//! The private Redis, and what is written in it of the flights.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use bb8_redis::redis::{Client, Pipeline, RedisError, Value, aio::MultiplexedConnection, pipe};
use tokio::process::{Child, Command};

/// The first of these that is on the path is started.
const BINARIES: [&str; 2] = ["redis-server", "valkey-server"];

/// A server of the playground's own, on a socket in this folder and on no port.
#[derive(Debug)]
pub(crate) struct Redis {
    pub(crate) name: String,
    socket: PathBuf,
    child: Child,
}

impl Redis {
    /// Starts one; none where there is no such program.
    pub(crate) fn start(folder: &Path) -> io::Result<Option<Self>> {
        for name in BINARIES {
            let socket = folder.join("redis.sock");
            let child = Command::new(name)
                .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
                .arg(&socket)
                .arg("--dir")
                .arg(folder)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                // Ctrl-C is for the playground alone.
                .process_group(0)
                .spawn();
            match child {
                Ok(child) => return Ok(Some(Self { name: name.to_owned(), socket, child })),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// A connection that is never cut, as soon as the server is there.
    pub(crate) async fn connect(
        &mut self,
    ) -> Result<Records, Box<dyn std::error::Error + Send + Sync>> {
        let client = Client::open(format!("unix://{}", self.socket.display()))?;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("{} ended at once: {status}", self.name).into());
            }
            match client.get_multiplexed_async_connection().await {
                Ok(connection) => return Ok(Records { connection }),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

/// What is written in Redis of a flight: the truth that all nodes go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) status: String,
    pub(crate) token: u64,
    /// What is left of the lease.
    pub(crate) left: Duration,
    /// Changes with each renewal.
    pub(crate) heartbeat: u64,
    /// Processes that wait.
    pub(crate) waiters: u64,
}

/// The playground's own look at the records.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    connection: MultiplexedConnection,
}

impl Records {
    /// The record of the flight of this key; none where there is none, or none that can be
    /// read.
    pub(crate) async fn read(&mut self, digest: &str) -> Result<Option<Record>, RedisError> {
        let fields = ["status", "ownerToken", "heartbeatAt", "lease"];
        let mut ask = Pipeline::new();
        ask.cmd("TIME").cmd("HMGET").arg(format!("ai:flight:meta:{{{digest}}}")).arg(&fields);
        ask.cmd("ZCARD").arg(format!("ai:flight:waiters:{{{digest}}}"));
        type Answer = ((u64, u64), Vec<Option<String>>, u64);
        let ((seconds, micros), fields, waiters): Answer =
            ask.query_async(&mut self.connection).await?;
        let now = seconds * 1_000_000 + micros;
        let field = |at: usize| fields.get(at).cloned().flatten();
        let number = |at| field(at).and_then(|text| text.parse::<u64>().ok());
        let (heartbeat, lease) = (number(2).unwrap_or(0), number(3).unwrap_or(0));
        let left = (heartbeat + lease * 1000).saturating_sub(now);
        Ok(field(0).zip(number(1)).map(|(status, token)| Record {
            status,
            token,
            left: Duration::from_micros(left),
            heartbeat,
            waiters,
        }))
    }

    /// Makes the server forget all scripts.
    pub(crate) async fn flush_scripts(&mut self) -> Result<(), RedisError> {
        let mut ask = pipe();
        ask.cmd("SCRIPT").arg("FLUSH");
        ask.query_async::<Value>(&mut self.connection).await.map(drop)
    }
}
