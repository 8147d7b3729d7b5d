//! Instructions of a call that nobody shares, counted under callgrind. This program
//! runs itself there, with few calls and with more.

use std::{
    fs,
    process::{Command, Stdio},
};

use tower_singleflight::{HttpKey, key_fn};

use super::{Effort, one_thread};
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
        names.0.iter().map(|name| (*name, instructions(name, "path"))).collect();
    let of = |name: &str| counts.iter().find(|count| count.0 == name).expect("a count").1;
    for (name, count) in &counts {
        point("instructions", "", name, *count);
    }
    let spawn = of("spawn per key");
    let ours = of("tower-singleflight");
    let (http, http_spawn) =
        (instructions("tower-singleflight", "http"), instructions("spawn per key", "http"));
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
}

#[derive(Default)]
struct Names(Vec<&'static str>);

impl Visit for Names {
    fn visit<P: Peer>(&mut self, _: P) {
        self.0.push(P::NAME);
    }
}

/// Of a call.
fn instructions(name: &str, key: &str) -> f64 {
    let count = |calls: u32| -> f64 {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("callgrind");
        let done = Command::new("valgrind")
            .args(["--tool=callgrind", "--quiet"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(std::env::current_exe().expect("this program"))
            .args(["calls", name, key, &calls.to_string()])
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

/// What is counted.
pub fn calls(name: &str, key: &str, calls: u32) {
    let mut these = These { name: name.to_owned(), calls };
    if key == "http" {
        peers::each(&HttpKey::new(), || Inner::new(64), &mut these);
    } else {
        peers::each(&key_fn(path), || Inner::new(64), &mut these);
    }
}

struct These {
    name: String,
    calls: u32,
}

impl Visit for These {
    fn visit<P: Peer>(&mut self, peer: P) {
        if P::NAME != self.name {
            return;
        }
        one_thread().block_on(async {
            // Made beforehand, as many in any case.
            let requests: Vec<_> = (0..MORE).map(|_| get("/a")).collect();
            for request in requests.into_iter().take(self.calls as usize) {
                peer.call(request).await;
            }
        });
    }
}
