//! The private Redis.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use bb8_redis::redis::{Client, RedisError, Value, aio::MultiplexedConnection, cmd};
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

    /// Its address, for who is never cut off from it.
    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Its scripts, as soon as it is there.
    pub(crate) async fn scripts(
        &mut self,
    ) -> Result<Scripts, Box<dyn std::error::Error + Send + Sync>> {
        let client = Client::open(self.url())?;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("{} ended at once: {status}", self.name).into());
            }
            match client.get_multiplexed_async_connection().await {
                Ok(connection) => return Ok(Scripts { connection }),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

/// The scripts that nodes have sent.
#[derive(Clone, Debug)]
pub(crate) struct Scripts {
    connection: MultiplexedConnection,
}

impl Scripts {
    /// Makes the server forget all of them.
    pub(crate) async fn flush(&mut self) -> Result<(), RedisError> {
        let mut ask = cmd("SCRIPT");
        ask.arg("FLUSH").query_async::<Value>(&mut self.connection).await.map(drop)
    }
}
