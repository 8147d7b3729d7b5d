//! Ends what the playground has started, however the playground itself ends.
//!
//! The warden is told of each process by its id. When its stdin closes, which the kernel
//! sees to also when the playground is killed, it kills those that are left, and nothing
//! else. A frozen node, which could not watch anything, goes with them.

use std::{
    collections::BTreeSet,
    io,
    path::Path,
    process::{ExitCode, Stdio},
    sync::Arc,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::Mutex,
};

/// What the playground tells its warden.
#[derive(Clone, Debug)]
pub(crate) struct Warden {
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    child: Arc<Mutex<Child>>,
}

impl Warden {
    /// Starts one, which also removes this folder in the end.
    pub(crate) fn start(folder: &Path) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["warden", "--folder"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C is for the playground alone.
            .process_group(0)
            .spawn()?;
        let stdin = Arc::new(Mutex::new(child.stdin.take()));
        Ok(Self { stdin, child: Arc::new(Mutex::new(child)) })
    }

    /// From now on it is there to be ended.
    pub(crate) async fn started(&self, id: Option<u32>) -> io::Result<()> {
        self.tell('+', id).await
    }

    /// To be said before its end is asked for, after which its id may be another's.
    pub(crate) async fn ended(&self, id: Option<u32>) -> io::Result<()> {
        self.tell('-', id).await
    }

    async fn tell(&self, sign: char, id: Option<u32>) -> io::Result<()> {
        match (&mut *self.stdin.lock().await, id) {
            (Some(stdin), Some(id)) => stdin.write_all(format!("{sign}{id}\n").as_bytes()).await,
            _ => Ok(()),
        }
    }

    /// Ends all, and returns when that is done.
    pub(crate) async fn end(&self) {
        self.stdin.lock().await.take();
        let _ = self.child.lock().await.wait().await;
    }
}

/// The warden itself.
pub(crate) async fn watch(folder: &Path) -> ExitCode {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut left = BTreeSet::new();
    while let Ok(Some(line)) = lines.next_line().await {
        match line.split_at_checked(1).map(|(sign, id)| (sign, process(id))) {
            Some(("+", Some(id))) => drop(left.insert(id)),
            Some(("-", Some(id))) => drop(left.remove(&id)),
            _ => {}
        }
    }
    for id in left {
        let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status().await;
    }
    let _ = std::fs::remove_dir_all(folder);
    ExitCode::SUCCESS
}

/// An id of one process and nothing else: what is not above 1 is much more to `kill`.
fn process(id: &str) -> Option<i32> {
    id.parse().ok().filter(|&id| id > 1)
}
