//! Examples as child processes.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, StatusCode, response::Parts};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

/// The longest that a line or an answer is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running example; killed when dropped.
pub(crate) struct Program {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Program {
    pub(crate) fn start(example: &str, args: &[&str]) -> Self {
        Self::start_with(example, args, &[])
    }

    /// Starts one in this environment.
    pub(crate) fn start_with(example: &str, args: &[&str], envs: &[(&str, &str)]) -> Self {
        let mut child = Command::new(binary(example))
            .args(args)
            // That of who runs the tests is no part of them.
            .env_remove("REDIS_URL")
            .envs(envs.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example starts");
        let stdout = child.stdout.take().expect("its stdout");
        let (send, lines) = mpsc::channel();
        // What it says is read to the end, so that it never waits for a reader.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Self { child, lines }
    }

    /// The next line that it prints, or none when it has ended.
    pub(crate) fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no line in {PATIENCE:?}"),
        }
    }

    /// Sends it a signal, as `-INT`.
    #[cfg(feature = "redis")]
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal}");
    }

    /// All further lines, to its end, which must be a good one.
    pub(crate) fn lines_to_the_end(self) -> Vec<String> {
        let (lines, status) = self.end();
        assert!(status.success(), "{status}");
        lines
    }

    /// All further lines, and its end.
    pub(crate) fn end(mut self) -> (Vec<String>, ExitStatus) {
        let lines = std::iter::from_fn(|| self.line()).collect();
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("its status") {
                return (lines, status);
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An example that is a server.
pub(crate) struct Server {
    pub(crate) program: Program,
    pub(crate) address: SocketAddr,
    http: Client<HttpConnector, Full<Bytes>>,
}

impl Server {
    /// Starts one that takes `--listen`, on a free port.
    pub(crate) fn start(example: &str, args: &[&str]) -> Self {
        Self::start_with(example, args, &[])
    }

    /// As [`start`](Self::start), in this environment.
    pub(crate) fn start_with(example: &str, args: &[&str], envs: &[(&str, &str)]) -> Self {
        let args = [&["--listen", "127.0.0.1:0"], args].concat();
        let program = Program::start_with(example, &args, envs);
        let line = program.line().expect("a first line");
        let address = line.strip_prefix("listening on ").unwrap_or_default();
        let address = address.trim_start_matches("http://").parse();
        let address = address.unwrap_or_else(|_| panic!("the first line: {line}"));
        let http = Client::builder(TokioExecutor::new()).build_http();
        Self { program, address, http }
    }

    /// The next line that has a `curl` in it.
    pub(crate) fn curl_line(&self) -> String {
        let line = std::iter::from_fn(|| self.program.line()).find(|line| line.contains("curl "));
        line.expect("a line with curl").trim().to_owned()
    }

    /// What comes of the next line that has a `curl` in it.
    pub(crate) fn next_curl(&self) -> impl Future<Output = String> + use<> {
        pasted(self.curl_line())
    }

    /// Asks for an address or, at this server, for a path.
    pub(crate) fn get(&self, what: &str) -> impl Future<Output = (StatusCode, String)> + use<> {
        let uri = match what.strip_prefix('/') {
            Some(path) => format!("http://{}/{path}", self.address),
            None => what.to_owned(),
        };
        let answer = self.send(Request::get(uri).body(Full::default()).expect("a request"));
        async move {
            let mut answer = answer.await;
            while answer.next().await {}
            (answer.head.status, answer.text())
        }
    }

    /// Sends a request, until the head of its answer is there.
    pub(crate) fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> impl Future<Output = Answer> + use<> {
        let what = request.uri().to_string();
        let answer = self.http.request(request);
        async move {
            match tokio::time::timeout(PATIENCE, answer).await {
                Ok(Ok(response)) => {
                    let (head, body) = response.into_parts();
                    Answer { what, head, body, read: Vec::new() }
                }
                Ok(Err(error)) => panic!("{what}: {error}"),
                Err(_) => panic!("{what}: no answer in {PATIENCE:?}"),
            }
        }
    }
}

/// An answer that is read frame by frame.
pub(crate) struct Answer {
    what: String,
    pub(crate) head: Parts,
    body: Incoming,
    read: Vec<u8>,
}

impl Answer {
    /// Reads a frame; false at the end, which must be a good one.
    pub(crate) async fn next(&mut self) -> bool {
        let what = &self.what;
        match tokio::time::timeout(PATIENCE, self.body.frame()).await {
            Ok(None) => return false,
            Ok(Some(Ok(frame))) => self.read.extend(frame.into_data().unwrap_or_default()),
            Ok(Some(Err(error))) => panic!("{what}: {error}"),
            Err(_) => panic!("{what}: nothing more in {PATIENCE:?}"),
        }
        true
    }

    /// What was read so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }
}

/// What a terminal shows when this is pasted into it as it stands.
pub(crate) async fn pasted(line: String) -> String {
    let mut shell = tokio::process::Command::new("sh");
    // A proxy and settings of who runs the tests are no part of it.
    shell.args(["-c", &line]).env("no_proxy", "*").env("CURL_HOME", "/nowhere");
    shell.stdin(Stdio::null()).kill_on_drop(true);
    // To the end of all that it started: what is behind a `&` holds its output open.
    let output = match tokio::time::timeout(PATIENCE, shell.output()).await {
        Ok(output) => output.expect("a shell"),
        Err(_) => panic!("{line}: no end in {PATIENCE:?}"),
    };
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {}, {error}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The lines of the first block that an example's docs begin with.
pub(crate) fn documented(file: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(file);
    let text = std::fs::read_to_string(&file).expect("the example's source");
    let docs = text.lines().map_while(|line| line.strip_prefix("//!"));
    let block = docs.skip_while(|line| *line != " ```text").skip(1);
    block.take_while(|line| *line != " ```").map(|line| line.trim().to_owned()).collect()
}

/// What `cargo run --example` in this line starts, and the words that it gives it.
pub(crate) fn cargo_run(line: &str) -> Option<(&str, Vec<&str>)> {
    let (_, rest) = line.split_once("cargo run --example ")?;
    let (example, args) = rest.split_once(" -- ").unwrap_or((rest, ""));
    Some((example, args.split_whitespace().collect()))
}

pub(crate) fn binary(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps");
    let binary = profile.join("examples").join(example);
    let path = binary.display();
    assert!(binary.is_file(), "no {path}: build it by `cargo build --example {example}`");
    binary
}
