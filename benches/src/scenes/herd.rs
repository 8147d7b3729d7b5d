//! An owner is killed while other processes wait.

use std::{
    convert::Infallible,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use http::{Request, Response};
use tokio::sync::{Semaphore, mpsc};
use tower_singleflight::Config;

use super::{Effort, two_threads};
use crate::{
    fleet::{Node, Server, call},
    row::{Bound, Goal, point},
    work::{Body, Inner},
};

const PATH: &str = "/herd";
const RUN: Duration = Duration::from_secs(1);
const GROUP: &str = "An owner is killed";

/// What is seen of one death.
#[derive(Debug)]
pub struct Death {
    /// To the beginning of the next run.
    pub seconds: f64,
    pub owners: u64,
    pub takeovers: u64,
    pub commands: u64,
}

pub fn run(effort: Effort) {
    let sizes: &[usize] = effort.pick(&[2, 10, 50], &[2, 5, 10, 20, 35, 50]);
    let mut last = None;
    let mut costs = Vec::new();
    for &size in sizes {
        let death = death(size);
        let cost = death.commands as f64 / size as f64;
        point("herd-commands", "commands", size, cost);
        point("herd-time", "seconds", size, death.seconds);
        costs.push(cost);
        last = Some(death);
    }
    let death = last.expect("a size");
    let limit = Config::default().lease() + Duration::from_secs(1);
    for (what, of, most, measured, detail) in [
        ("50 processes wait: next owners", "owners", Bound::Exactly(1.0), death.owners as f64, ""),
        (
            "50 processes wait: attempts to own",
            "takeover scripts",
            Bound::AtMost(3.0),
            death.takeovers as f64,
            "",
        ),
        (
            "50 processes wait: the next run begins",
            "seconds",
            Bound::AtMost(limit.as_secs_f64()),
            death.seconds,
            "a lease and a second",
        ),
        (
            "commands for each process that waits, 50 of them",
            "x those where 2 wait",
            Bound::AtMost(1.2),
            costs[costs.len() - 1] / costs[0],
            "scripts and subscriptions, from the death to the last answer",
        ),
    ] {
        Goal { group: GROUP, what, of, most, measured, detail: detail.to_owned() }.print();
    }
}

/// Kills an owner for which so many processes wait.
pub fn death(size: usize) -> Death {
    let server = Server::start();
    let mut owner = Command::new(std::env::current_exe().expect("this program"))
        .args(["owner", &server.url()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("an owner");
    let mut said = BufReader::new(owner.stdout.take().expect("its output")).lines();
    assert_eq!(said.next().expect("a line").expect("a line"), "owns");
    two_threads().block_on(async {
        let mut waiting = Vec::new();
        let mut nodes = Vec::new();
        let (tell, mut told) = mpsc::unbounded_channel();
        // It goes on for so long that all who try to own meet it.
        let next = tower::service_fn(move |_: Request<Body>| {
            tell.send(Instant::now()).expect("who listens");
            async {
                tokio::time::sleep(RUN).await;
                Ok::<_, Infallible>(Response::new(Body::from("next")))
            }
        });
        for _ in 0..size {
            let node = Node::patient(&server.url(), Config::default()).await;
            let call = tokio::spawn(call(&node.around(next.clone()), PATH));
            node.seen.until(|seen| seen.followed(), 1).await;
            waiting.push(call);
            nodes.push(node);
        }
        // All have been watching for a while.
        tokio::time::sleep(Duration::from_millis(1200)).await;
        server.reset();
        let since = Instant::now();
        owner.kill().expect("a death");
        owner.wait().expect("a death");
        let begun = told.recv().await.expect("the next run");
        let seconds = (begun - since).as_secs_f64();
        for call in waiting {
            call.await.expect("an answer");
        }
        let commands = server.commands();
        let sum = |of: fn(&Node) -> u64| nodes.iter().map(of).sum();
        Death {
            seconds,
            owners: sum(|node| node.seen.owned()),
            takeovers: sum(|node| node.seen.takeovers()),
            commands: commands.scripts()
                + commands.calls("subscribe")
                + commands.calls("unsubscribe"),
        }
    })
}

/// What the one does that is killed.
pub fn owner(url: &str) {
    two_threads().block_on(async {
        let node = Node::watched(url, Config::default()).await;
        let never = Arc::new(Semaphore::new(0));
        let call = tokio::spawn(call(&node.around(Inner::new(64).behind(&never)), PATH));
        node.seen.until(|seen| seen.owned(), 1).await;
        println!("owns");
        let _ = call.await;
    });
}
