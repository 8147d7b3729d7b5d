//! `examples/playground`, by what its page hears and what its buttons send.

use std::time::Instant;

use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;

use crate::program::{Answer, PATIENCE, Server};

mod browser;
mod chromium;
mod ends;
mod faults;

/// As quick as a lease can be kept on a busy machine.
const QUICK: [&str; 4] = ["--lease-ms", "1800", "--run-ms", "3600"];

/// A playground, and what it tells.
struct Playground {
    server: Server,
    events: Answer,
    /// How much of what was told has been looked at.
    seen: usize,
    setting: Value,
    state: Value,
    /// All lines of the story so far.
    story: Vec<String>,
}

impl Playground {
    async fn start(args: &[&str]) -> Self {
        let server = Server::start("playground", args);
        let events = Request::get(format!("http://{}/events", server.address));
        let events = server.send(events.body(Full::default()).expect("a request")).await;
        let (setting, state) = Default::default();
        let mut playground = Self { server, events, seen: 0, setting, state, story: Vec::new() };
        let up = |node: &Value| node["health"] == "up";
        playground.until("all are up", |all| all.nodes().iter().all(up)).await;
        playground
    }

    fn nodes(&self) -> &[Value] {
        self.state["nodes"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn node(&self, name: &str) -> &Value {
        self.nodes().iter().find(|node| node["name"] == name).expect("a node of that name")
    }

    /// Who runs, under a lease.
    fn owners(&self) -> Vec<&str> {
        let owns = |node: &&Value| node["flights"].as_array().into_iter().flatten().any(is_owned);
        self.nodes().iter().filter(owns).filter_map(|node| node["name"].as_str()).collect()
    }

    fn has_told(&self, what: &str) -> bool {
        self.story.iter().any(|line| line.contains(what))
    }

    /// Reads on until it holds.
    async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while self.state.is_null() || !holds(self) {
            assert!(Instant::now() < end, "not yet: {what}\n{:#?}\n{}", self.story, self.state);
            assert!(self.events.next().await, "the end, and not yet: {what}");
            let text = self.events.text();
            // What is not at its end is looked at again.
            while let Some(end) = text[self.seen..].find("\n\n") {
                let event = &text[self.seen..self.seen + end];
                self.seen += end + 2;
                let Some((kind, data)) = event.split_once("\ndata: ") else { continue };
                let data: Value = serde_json::from_str(data).expect("JSON");
                match kind {
                    "event: setting" => self.setting = data,
                    "event: state" => self.state = data,
                    "event: line" => self.story.push(data["text"].as_str().unwrap().to_owned()),
                    kind => panic!("{kind}"),
                }
            }
        }
    }

    /// Until a line of the story says so.
    async fn until_told(&mut self, what: &str) {
        self.until(what, |all| all.has_told(what)).await;
    }

    /// Presses a button.
    fn post(&self, path: &str) -> impl Future<Output = (StatusCode, String)> + use<> {
        let request = Request::post(format!("http://{}{path}", self.server.address));
        let answer = self.server.send(request.body(Full::default()).expect("a request"));
        async move {
            let mut answer = answer.await;
            while answer.next().await {}
            (answer.head.status, answer.text())
        }
    }

    fn done(&self, path: &str) -> impl Future<Output = ()> + use<> {
        let (path, answer) = (path.to_owned(), self.post(path));
        async move {
            let (status, text) = answer.await;
            assert!(status.is_success(), "{path}: {status}: {text}");
        }
    }

    /// Sends so many callers, and waits until one node runs and the others follow it.
    async fn burst(&mut self, kind: &str, callers: usize) -> String {
        self.done(&format!("/burst?kind={kind}&callers={callers}")).await;
        self.until("one runs and all others follow", |all| {
            let flights = |node: &Value| node["flights"].as_array().map_or(0, Vec::len);
            all.owners().len() == 1 && all.nodes().iter().all(|node| flights(node) == 1)
        })
        .await;
        self.owners()[0].to_owned()
    }
}

fn is_owned(flight: &Value) -> bool {
    flight["phase"] == "owning"
}
