//! `examples/tonic`.

use std::path::Path;

use serde_json::Value;
use tonic::{Status, Streaming, client::Grpc, transport::Endpoint};
use tonic_prost::ProstCodec;

use crate::{
    program::{Program, Server, cargo_run},
    support::redis_server::RedisServer,
};

#[path = "../../examples/tonic/reports.rs"]
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod reports;

use self::reports::{Line, Question};

#[test]
fn tonic() {
    let server = Server::start("tonic", &[]);
    let line = std::iter::from_fn(|| server.program.line()).find(|line| line.contains("client"));
    // As the line that is printed says it.
    let line = line.expect("how to ask");
    let (example, args) = cargo_run(&line).expect("how to run it");
    let lines = Program::start(example, &args).lines_to_the_end();
    let all = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!(all("5 answers, runs: 1"), 2, "{lines:#?}");
    assert_eq!((all("its own run"), all("another's run")), (2, 8), "{lines:#?}");
    assert_eq!(all("run, run 1 of process"), 5, "{lines:#?}");
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

/// The line for grpcurl that the server prints.
fn grpcurl(server: &Server) -> String {
    let line = std::iter::from_fn(|| server.program.line()).find(|line| line.contains("grpcurl"));
    line.expect("how to ask by grpcurl")
}

/// Does what that line says.
async fn watch(line: &str) -> Streaming<Line> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["grpcurl", "-plaintext", "-proto", file, "-d", json, address, method] = words[..] else {
        panic!("{line}");
    };
    // What it needs to know is in the file that it names, from where the project is.
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let proto = std::fs::read_to_string(proto).expect("the file of the line");
    let (service, call) = method.split_once('/').expect("a service and a method");
    let (package, service) = service.split_once('.').expect("a package and a service");
    for part in [format!("package {package};"), format!("service {service} {{")] {
        assert!(proto.contains(&part), "{part}");
    }
    assert!(proto.contains(&format!("rpc {call}(Question) returns (stream Line)")), "{proto}");
    let asked: Value = serde_json::from_str(json.trim_matches('\'')).expect("JSON");
    assert_eq!(asked.as_object().map(|fields| fields.len()), Some(1), "{asked}");
    let question = Question { topic: asked["topic"].as_str().expect("a text").to_owned() };

    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = Grpc::new(endpoint.connect().await.unwrap());
    client.ready().await.unwrap();
    let path = format!("/{method}").parse().unwrap();
    let codec = ProstCodec::default();
    let answer = client.server_streaming(tonic::Request::new(question), path, codec).await;
    answer.unwrap().into_inner()
}

#[tokio::test]
async fn tonic_ends_when_all_are_answered() {
    let server = Server::start("tonic", &[]);
    let mut lines = watch(&grpcurl(&server)).await;
    for n in 1..=6 {
        assert_eq!(next(&mut lines).await.unwrap(), Some(format!("line {n} on rivers")));
        if n == 1 {
            server.program.signal("-INT");
        }
    }
    assert_eq!(next(&mut lines).await.unwrap(), None);
    // Not here: the client is told too, and has to be able to hear of it.
    let ended = tokio::task::spawn_blocking(|| server.program.lines_to_the_end()).await;
    ended.expect("a good end");
}

/// Row O2, with a real process and a real `SIGKILL`.
#[tokio::test]
async fn o2_a_follower_goes_on_when_the_owner_is_killed() {
    let redis = RedisServer::start();
    let start = || Server::start("tonic", &["--store", &redis.url()]);
    let (owner, other) = (start(), start());
    let mut own = watch(&grpcurl(&owner)).await;
    let mut lines = watch(&grpcurl(&other)).await;
    for n in 1..=2 {
        let expected = format!("line {n} on rivers");
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
        assert_eq!(next(&mut lines).await.unwrap(), Some(format!("line {n} on rivers")));
    }
    assert_eq!(next(&mut lines).await.unwrap(), None);
}
