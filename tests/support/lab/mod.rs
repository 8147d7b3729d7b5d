//! Labs (`examples/lab`) as child processes, to be called, stopped and killed.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{Builder, Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tokio::task::JoinHandle;

mod answer;
mod got;
mod stream;

pub(crate) use self::{
    answer::{Answer, one_answer},
    got::Got,
    stream::{Reading, Stream, WIRES, Wire},
};

/// The longest that any call or state of these tests is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at a lab's state.
const LOOK: Duration = Duration::from_millis(5);

/// Streams that the server lets into one connection.
const STREAMS: usize = 200;

type Http = Client<HttpConnector, Empty<Bytes>>;

/// A running lab; killed when dropped.
pub(crate) struct Lab {
    child: Child,
    address: SocketAddr,
    http: Http,
    /// One stream of these for each caller, where there are very many.
    wide: Http,
}

impl Lab {
    /// Starts one on this store, under the defaults but for these settings.
    pub(crate) fn start(store: &str, settings: &[&str]) -> Self {
        let mut child = Command::new(binary())
            .args(["--listen", "127.0.0.1:0", "--store", store])
            .args(settings)
            // Panics that are asked for need no backtrace.
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the lab starts");
        let stdout = child.stdout.take().expect("its stdout");
        let (send, first) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines();
            // The receiver is gone where the time limit has passed.
            let _ = send.send(lines.next());
            // What else it says is read, so that it never waits for a reader.
            lines.for_each(drop);
        });
        let line = first.recv_timeout(Duration::from_secs(10));
        let address = match &line {
            Ok(Some(Ok(line))) => line.strip_prefix("listening on ").and_then(|a| a.parse().ok()),
            _ => None,
        };
        let Some(address) = address else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the lab's first line: {line:?}");
        };
        let http = client().build_http();
        let wide = client().http2_only(true).build_http();
        Self { child, address, http, wide }
    }

    /// Several on one store.
    pub(crate) fn fleet<const N: usize>(store: &str, settings: &[&str]) -> [Self; N] {
        std::array::from_fn(|_| Self::start(store, settings))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A caller of its own task: aborted, it hangs up.
    pub(crate) fn call(&self, path: &str) -> Caller {
        self.call_over(&self.http, path)
    }

    /// As many callers, each on a connection of its own.
    pub(crate) fn calls(&self, callers: usize, path: &str) -> Vec<Caller> {
        (0..callers).map(|_| self.call(path)).collect()
    }

    /// As many callers, as streams of HTTP/2 connections.
    pub(crate) fn streams(&self, callers: usize, path: &str) -> Vec<Caller> {
        let more = |n| (n > 0 && n % STREAMS == 0).then(|| client().http2_only(true).build_http());
        let mut wide = self.wide.clone();
        let caller = |n| {
            wide = more(n).unwrap_or_else(|| wide.clone());
            self.call_over(&wide, path)
        };
        (0..callers).map(caller).collect()
    }

    fn call_over(&self, http: &Http, path: &str) -> Caller {
        let (http, uri) = (http.clone(), self.uri(path));
        Caller(tokio::spawn(async move { send(&http, Method::GET, &uri).await }))
    }

    /// `POST` without a body; a caller of its own task.
    pub(crate) fn post(&self, path: &str) -> Caller {
        let (http, uri) = (self.http.clone(), self.uri(path));
        Caller(tokio::spawn(async move { send(&http, Method::POST, &uri).await }))
    }

    /// One answer; panics where there is none.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        let uri = self.uri(path);
        let sent = send(&self.http, Method::GET, &uri);
        match tokio::time::timeout(PATIENCE, sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => panic!("{path}: {error}"),
            Err(_) => panic!("{path}: no answer in {PATIENCE:?}"),
        }
    }

    /// All counters.
    pub(crate) async fn stats(&self) -> Value {
        serde_json::from_slice(&self.get("/stats").await.body).expect("stats are JSON")
    }

    /// One counter, by its place: `/inner/calls`.
    pub(crate) async fn count(&self, place: &str) -> u64 {
        let stats = self.stats().await;
        let count = stats.pointer(place).and_then(Value::as_u64);
        count.unwrap_or_else(|| panic!("no counter {place} in {stats}"))
    }

    /// The flights in the air.
    pub(crate) async fn flights(&self) -> Vec<Value> {
        serde_json::from_slice(&self.get("/flights").await.body).expect("flights are JSON")
    }

    /// Waits until exactly one flight is in the air, in which this lab has this
    /// role and so many followers.
    pub(crate) async fn until_one(&self, role: &str, followers: u64) {
        self.until(&format!("{role} with {followers}"), |flights| {
            matches!(flights, [one] if one["role"] == role && one["followers"] == followers)
        })
        .await;
    }

    /// Waits until the flights in the air are like that.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&[Value]) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let flights = self.flights().await;
            if holds(&flights) {
                return;
            }
            assert!(Instant::now() < end, "not in {PATIENCE:?}: {what}; seen {flights:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until a counter has this value.
    pub(crate) async fn until_count(&self, place: &str, value: u64) {
        let end = Instant::now() + PATIENCE;
        loop {
            let count = self.count(place).await;
            if count == value {
                return;
            }
            assert!(Instant::now() < end, "{place} is {count}, not {value}, after {PATIENCE:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Kills it as a crash would.
    pub(crate) fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops all its threads, as a machine that hangs.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub(crate) fn cont(&self) {
        self.signal("-CONT");
    }

    /// Asks it to end, as a deploy does.
    pub(crate) fn term(&self) {
        self.signal("-TERM");
    }

    /// Whether its process has ended by itself, and without an error.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(status)) if status.success())
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal}");
    }

    pub(crate) fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// The sum of one counter over several labs.
pub(crate) async fn sum(labs: &[Lab], place: &str) -> u64 {
    let mut sum = 0;
    for lab in labs {
        sum += lab.count(place).await;
    }
    sum
}

/// A caller that waits.
pub(crate) struct Caller(JoinHandle<Result<Answer, String>>);

impl Caller {
    /// Hangs up.
    pub(crate) fn leave(self) {
        self.0.abort();
    }

    /// What it got, or why it got nothing.
    pub(crate) async fn outcome(self) -> Result<Answer, String> {
        match tokio::time::timeout(PATIENCE, self.0).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => panic!("a caller without an answer after {PATIENCE:?}"),
        }
    }

    pub(crate) async fn answer(self) -> Answer {
        self.outcome().await.unwrap_or_else(|error| panic!("a caller got: {error}"))
    }
}

/// The answers of all.
pub(crate) async fn answers(callers: impl IntoIterator<Item = Caller>) -> Vec<Answer> {
    // All of them call before one is waited for.
    let callers: Vec<_> = callers.into_iter().collect();
    let mut answers = Vec::new();
    for caller in callers {
        answers.push(caller.answer().await);
    }
    answers
}

fn client() -> Builder {
    Client::builder(TokioExecutor::new())
}

async fn send(http: &Http, method: Method, uri: &str) -> Result<Answer, String> {
    let request = Request::builder().method(method).uri(uri).body(Empty::new());
    let request = request.map_err(|error| error.to_string())?;
    let response = http.request(request).await.map_err(|error| format!("{error:?}"))?;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(|error| format!("{error:?}"))?.to_bytes();
    Ok(Answer { status: parts.status, headers: parts.headers, body, at: Instant::now() })
}

fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps");
    let lab = profile.join("examples/lab");
    assert!(lab.is_file(), "no {}: build it by `cargo build --example lab`", lab.display());
    lab
}
