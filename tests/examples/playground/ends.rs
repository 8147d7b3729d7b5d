//! How it begins and ends: nothing that it started is left behind.

use std::{net::TcpListener, process::Command, time::Instant};

use serde_json::Value;

use super::{Playground, QUICK};
use crate::program::{PATIENCE, Program};

fn signal(pid: u64, signal: &str) -> bool {
    assert!(pid > 1 && i32::try_from(pid).is_ok(), "{pid} is no process of ours");
    let kill = Command::new("kill").args([signal, &pid.to_string()]).output();
    kill.expect("kill").status.success()
}

/// Ends it by this signal with a node frozen, and waits until all its processes are gone.
async fn ends_by(by: &str) {
    let mut all = Playground::start(&QUICK).await;
    all.burst("stream", 3).await;
    all.done("/nodes/B/freeze").await;
    let mut pids: Vec<u64> =
        all.nodes().iter().map(|node| node["pid"].as_u64().expect("a process")).collect();
    pids.push(all.setting["redis_pid"].as_u64().expect("a process"));
    assert!(pids.iter().all(|&pid| signal(pid, "-0")));
    let playground = all.setting["session"].as_u64().expect("its own");
    let folder = all.setting["folder"].as_str().expect("its folder").to_owned();
    assert!(signal(playground, by));
    let end = Instant::now() + PATIENCE;
    let is_left = |pid: &u64| signal(*pid, "-0") && !is_dead(*pid);
    while pids.iter().any(is_left) || std::fs::exists(&folder).expect("its folder") {
        assert!(Instant::now() < end, "left behind: {pids:?}, {folder}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    if by != "-KILL" {
        assert!(all.server.program.end().1.success());
    }
}

/// Ended, and not yet asked for by whoever took it over.
fn is_dead(pid: u64) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| status.contains("State:\tZ"))
}

#[tokio::test]
async fn playground_ends_all_it_started() {
    ends_by("-INT").await;
}

#[tokio::test]
async fn playground_ends_all_it_started_also_when_killed() {
    ends_by("-KILL").await;
}

#[test]
fn playground_says_what_is_wrong() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).expect("its name");
    for args in [&["--listen", &taken.1][..], &["--listen", "0.0.0.0:0"], &["--lease-ms", "no"]] {
        let (lines, status) = Program::start("playground", args).end();
        assert!(!status.success() && lines.is_empty(), "{args:?}: {lines:?}");
    }
}

#[tokio::test]
async fn playground_takes_another_port_where_nobody_chose_one() {
    // Whether this one is taken already is all the same.
    let _taken = TcpListener::bind("127.0.0.1:3000");
    let program = Program::start("playground", &["--memory"]);
    let line = program.line().expect("a first line");
    let port = line.strip_prefix("listening on http://127.0.0.1:").expect("its address");
    assert_ne!(port, "3000");
    assert!(Value::from(port).as_str().is_some_and(|port| port.parse::<u16>().is_ok()));
}
