//! Instructions of a call that nobody shares, and of a caller of a hot key, counted under
//! callgrind. This program runs itself there, with few calls and with more.

use std::{
    fs,
    process::{Command, Stdio},
    sync::Arc,
};

use tokio::sync::Semaphore;
use tower_singleflight::{HttpKey, key_fn};

use super::{Effort, hot::Crowd, one_thread};
use crate::{
    peers::{self, Peer, Visit},
    row::{Bound, Goal, point},
    work::{Inner, get, path},
};

const FEW: u32 = 200;
const MORE: u32 = 1200;

pub fn run(_: Effort) {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped\tinstructions: valgrind is missing");
        return;
    }
    let mut names = Names::default();
    peers::each(&key_fn(path), || Inner::new(64), &mut names);
    let counts: Vec<(&str, f64)> =
        names.0.iter().map(|name| (*name, instructions("calls", name, "path"))).collect();
    let of = |name: &str| counts.iter().find(|count| count.0 == name).expect("a count").1;
    for (name, count) in &counts {
        point("instructions", "", name, *count);
    }
    let spawn = of("spawn per key");
    let ours = of("tower-singleflight");
    let http = instructions("calls", "tower-singleflight", "http");
    let http_spawn = instructions("calls", "spawn per key", "http");
    for (what, ours, spawn) in [
        ("lone caller, its path as the key", ours, spawn),
        ("lone caller, all of its request as the key", http, http_spawn),
    ] {
        Goal {
            group: "In process",
            what,
            of: "x spawn per key, instructions",
            most: Bound::AtMost(1.2),
            measured: ours / spawn,
            detail: format!("{ours:.0} to {spawn:.0}"),
        }
        .print();
    }
    let ours = instructions("crowd", "tower-singleflight", "path");
    let quick = instructions("crowd", "quick_cache", "path");
    Goal {
        group: "In process",
        what: "a caller of one key with a thousand others",
        of: "x quick_cache, instructions",
        most: Bound::None,
        measured: ours / quick,
        detail: format!("{ours:.0} to {quick:.0}"),
    }
    .print();
}

#[derive(Default)]
struct Names(Vec<&'static str>);

impl Visit for Names {
    fn visit<P: Peer>(&mut self, _: P) {
        self.0.push(P::NAME);
    }
}

/// Of a call: `calls` one after the other, or a `crowd` of them at once.
fn instructions(what: &str, name: &str, key: &str) -> f64 {
    let count = |calls: u32| -> f64 {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("callgrind");
        let done = Command::new("valgrind")
            .args(["--tool=callgrind", "--quiet"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(std::env::current_exe().expect("this program"))
            .args([what, name, key, &calls.to_string()])
            .stderr(Stdio::null())
            .status()
            .expect("valgrind");
        assert!(done.success(), "valgrind ran {name}");
        let text = fs::read_to_string(out).expect("the counts");
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
        totals.expect("the total").trim().parse().expect("a number")
    };
    (count(MORE) - count(FEW)) / f64::from(MORE - FEW)
}

/// What is counted: calls one after the other.
pub fn calls(name: &str, key: &str, calls: u32) {
    let mut these = These { name: name.to_owned(), calls, gate: None };
    if key == "http" {
        peers::each(&HttpKey::new(), || Inner::new(64), &mut these);
    } else {
        peers::each(&key_fn(path), || Inner::new(64), &mut these);
    }
}

/// What is counted: calls of one key at once.
pub fn crowd(name: &str, calls: u32) {
    let gate = Arc::new(Semaphore::new(0));
    let mut these = These { name: name.to_owned(), calls, gate: Some(Arc::clone(&gate)) };
    peers::each(&key_fn(path), || Inner::new(64).behind(&gate), &mut these);
}

struct These {
    name: String,
    calls: u32,
    /// Lets the run answer that all of them wait for.
    gate: Option<Arc<Semaphore>>,
}

impl Visit for These {
    fn visit<P: Peer>(&mut self, peer: P) {
        if P::NAME != self.name {
            return;
        }
        one_thread().block_on(async {
            // Made beforehand, as many in any case.
            let requests: Vec<_> = (0..MORE).map(|_| get("/a")).collect();
            let requests = requests.into_iter().take(self.calls as usize);
            let Some(gate) = &self.gate else {
                for request in requests {
                    peer.call(request).await;
                }
                return;
            };
            let crowd = Crowd::default();
            let calls = crowd.enter(&peer, requests.collect());
            crowd.all_wait().await;
            gate.add_permits(1);
            for call in calls {
                call.await.expect("an answer");
            }
        });
    }
}
