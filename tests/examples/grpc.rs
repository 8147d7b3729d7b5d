//! `examples/tonic`.

use std::net::SocketAddr;

use tonic::{
    Status, Streaming,
    transport::{Channel, Endpoint},
};

use crate::{
    program::{Program, Server},
    support::redis_server::RedisServer,
};

#[path = "../../examples/tonic/reports.rs"]
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod reports;

use self::reports::{Line, Question, reports_client::ReportsClient};

#[test]
fn tonic() {
    let server = Server::start("tonic", &[]);
    let line = std::iter::from_fn(|| server.program.line()).find(|line| line.contains("client"));
    // As the line that is printed says it.
    let line = line.expect("how to ask");
    let (_, args) = line.split_once(" -- ").expect("what comes after `cargo run`");
    let args: Vec<&str> = args.split_whitespace().collect();
    let lines = Program::start("tonic", &args).lines_to_the_end();
    let all = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!(all("5 answers, runs: 1"), 2, "{lines:#?}");
    assert_eq!(all("has its own, run 1 ") + all("has its own, run 2 "), 2, "{lines:#?}");
    assert_eq!((all("shares run 1 "), all("shares run 2 ")), (4, 4), "{lines:#?}");
    // Once in each of the reports, and once for each of the watchers.
    assert_eq!((all("line 1 on rivers"), all(": line 6 on rivers")), (10, 5), "{lines:#?}");
}

#[test]
fn tonic_says_what_is_wrong() {
    for args in [&["--what"][..], &["client"], &["--listen", "here"]] {
        let (lines, status) = Program::start("tonic", args).end();
        assert!(!status.success() && lines.is_empty(), "{args:?}: {lines:?}");
    }
}

/// The next line of a report, or none at its end.
async fn next(lines: &mut Streaming<Line>) -> Result<Option<String>, Status> {
    Ok(lines.message().await?.map(|line| line.text))
}

async fn watch(address: SocketAddr) -> Streaming<Line> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut reports: ReportsClient<Channel> = ReportsClient::new(endpoint.connect().await.unwrap());
    let question = Question { topic: "lakes".into() };
    reports.watch(question).await.unwrap().into_inner()
}

/// Row O2, with a real process and a real `SIGKILL`.
#[tokio::test]
async fn o2_a_follower_goes_on_when_the_owner_is_killed() {
    let redis = RedisServer::start();
    let start = || Server::start("tonic", &["--store", &redis.url()]);
    let (owner, other) = (start(), start());
    let mut own = watch(owner.address).await;
    let mut lines = watch(other.address).await;
    for n in 1..=2 {
        let expected = format!("line {n} on lakes");
        assert_eq!(next(&mut own).await.unwrap(), Some(expected.clone()));
        assert_eq!(next(&mut lines).await.unwrap(), Some(expected));
    }
    drop(owner);
    // Its own client is told, unless the process was held up until all was there.
    let mut had = 2;
    while let Ok(line) = next(&mut own).await {
        if line.is_none() {
            assert_eq!(had, 6, "a good end too soon");
            break;
        }
        had += 1;
    }
    for n in 3..=6 {
        assert_eq!(next(&mut lines).await.unwrap(), Some(format!("line {n} on lakes")));
    }
    assert_eq!(next(&mut lines).await.unwrap(), None);
}
