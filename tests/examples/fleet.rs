//! `examples/fleet`: three servers by one command.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::program::{binary, pasted};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fleet").join(name)
}

/// The script, told to end when dropped: what it has started is its to end.
struct Script(Child);

impl Script {
    fn end(&mut self) -> Option<i32> {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        self.0.wait().ok().and_then(|status| status.code())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.end();
        }
    }
}

#[tokio::test]
async fn fleet_of_processes() {
    let room = tempfile::tempdir().expect("a folder");
    let mut script = Command::new(file("run.sh"));
    script.env("SERVER", binary("server")).env("TMPDIR", room.path());
    script.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut script = Script(script.spawn().expect("the script starts"));
    let stdout = BufReader::new(script.0.stdout.take().expect("its stdout"));
    let mut lines = stdout.lines().map(|line| line.expect("a line"));
    let (mut processes, mut curl) = (Vec::new(), None);
    while curl.is_none() {
        let line = lines.next().expect("a line with curl");
        processes.extend(line.split_once(" is process ").map(|(_, pid)| pid.to_owned()));
        curl = line.contains("curl ").then_some(line);
    }
    assert_eq!(processes.len(), 3, "{processes:?}");

    let shown = pasted(curl.expect("a line")).await;
    let shown: Vec<_> = shown.lines().collect();
    assert!(shown.len() == 3 && shown.iter().all(|line| *line == shown[0]), "{shown:?}");
    let run = |pid: &String| shown[0].ends_with(&format!("This is run 1 of process {pid}."));
    assert!(processes.iter().any(run), "{shown:?}");

    // Ended, it leaves no process and no file behind.
    assert_eq!(script.end(), Some(143));
    for pid in processes {
        let there = Command::new("kill").args(["-0", &pid]).stderr(Stdio::null()).status();
        assert!(!there.expect("kill").success(), "{pid}");
    }
    assert_eq!(std::fs::read_dir(room.path()).expect("the folder").count(), 0);
}

/// Docker is not there to run it: that its files name one another, and what is there.
#[test]
fn fleet_of_containers() {
    let text = |name: &str| std::fs::read_to_string(file(name)).expect("a file");
    let (compose, docker) = (text("compose.yaml"), text("Dockerfile"));
    assert!(compose.contains("context: ../..\n"));
    assert!(compose.contains("dockerfile: examples/fleet/Dockerfile\n"));
    assert!(docker.contains("cargo build --locked --example server && "));
    for (at, port) in [(1, 3001), (2, 3002), (3, 3003)] {
        let service =
            format!("server-{at}:\n    <<: *server\n    ports: [\"127.0.0.1:{port}:3000\"]");
        assert!(compose.contains(&service), "{service}");
    }
    assert!(compose.contains("REDIS_URL: redis://redis/\n"));
    assert!(compose.contains("condition: service_healthy\n") && compose.contains("healthcheck:\n"));
}
