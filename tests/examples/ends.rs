//! How the examples that serve begin and end.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Output, Stdio},
};

use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;

use crate::{
    program::{Program, Server, binary},
    support::{eventually, redis_server::RedisServer},
};

/// Those that serve, and take a store.
const SERVERS: [&str; 4] = ["axum", "llm", "server", "tonic"];

/// What becomes of one that ends by itself.
fn ended(example: &str, args: &[&str], envs: &[(&str, &str)]) -> (bool, String, String) {
    let mut command = Command::new(binary(example));
    command.args(args).env_remove("REDIS_URL").envs(envs.iter().copied()).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().expect("the example starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.success(), text(stdout), text(stderr))
}

#[tokio::test]
async fn server_answers_who_waits_when_it_is_told_to_end() {
    let servers = ["-INT", "-TERM"].map(|signal| (signal, Server::start("server", &[])));
    let ask = |(_, server): &(_, Server)| tokio::spawn(server.get("/answer?q=why"));
    let callers = servers.each_ref().map(ask);
    for (signal, server) in &servers {
        eventually("it runs", async || {
            let stats: Value = serde_json::from_str(&server.get("/stats").await.1).expect("JSON");
            stats["running"] == 1
        })
        .await;
        server.program.signal(signal);
    }
    for ((signal, server), caller) in servers.into_iter().zip(callers) {
        let (status, text) = caller.await.expect("an answer");
        assert_eq!(status, StatusCode::OK, "{signal}: {text}");
        assert!(text.starts_with("You asked q=why."), "{signal}: {text}");
        server.program.lines_to_the_end();
    }
}

#[tokio::test]
async fn llm_goes_on_to_the_last_token_when_it_is_told_to_end() {
    let server = Server::start("llm", &[]);
    let ask = r#"{"model":"slow-1","stream":true,"messages":[{"role":"user","content":"why?"}]}"#;
    let request = Request::post(format!("http://{}/v1/chat/completions", server.address))
        .header("content-type", "application/json")
        .body(Full::from(ask));
    let mut answer = server.send(request.expect("a request")).await;
    assert!(answer.next().await);
    server.program.signal("-INT");
    while answer.next().await {}
    assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    server.program.lines_to_the_end();
}

/// What still runs need not be waited for.
#[test]
fn told_twice_a_server_ends_at_once() {
    let mut server = Command::new(binary("server"));
    server.args(["--listen", "127.0.0.1:0"]).env_remove("REDIS_URL");
    server.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Killed(server.spawn().expect("the example starts"));
    let mut out = BufReader::new(server.0.stdout.take().expect("its stdout")).lines();
    let mut said = BufReader::new(server.0.stderr.take().expect("its stderr")).lines();
    let line = out.next().expect("a first line").expect("text");
    let address = line.strip_prefix("listening on http://").expect("its address");
    let mut caller = TcpStream::connect(address).expect("a connection");
    write!(caller, "GET /events?q=why HTTP/1.1\r\nhost: demo\r\n\r\n").expect("a request");
    assert_ne!(caller.read(&mut [0; 16]).expect("an answer"), 0);
    let interrupt = || {
        let sent = Command::new("kill").args(["-INT", &server.0.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    };
    interrupt();
    let line = said.next().expect("what it does").expect("text");
    assert!(line.starts_with("ending, "), "{line}");
    interrupt();
    assert_eq!(server.0.wait().expect("its end").code(), Some(130));
}

/// Killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn servers_say_where_they_cannot_listen() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).expect("its name");
    for example in SERVERS.into_iter().chain(["hyper", "playground"]) {
        for (address, says) in [(&*taken.1, "`--listen 127.0.0.1:0`"), ("3001", "127.0.0.1:3001`")]
        {
            let (well, out, error) = ended(example, &["--listen", address], &[]);
            assert!(!well && out.is_empty(), "{example}: {out}");
            let named = error.contains(&format!("--listen ({address}): "));
            assert!(named && error.contains(says), "{example}: {error}");
        }
    }
}

#[test]
fn servers_listen_by_a_name() {
    for example in ["server", "playground"] {
        let program = Program::start(example, &["--listen", "localhost:0"]);
        let line = program.line().expect("a first line");
        assert!(line.starts_with("listening on http://"), "{line}");
    }
}

#[test]
fn servers_say_how_they_are_used() {
    for example in SERVERS.into_iter().chain(["playground"]) {
        let (well, out, error) = ended(example, &["--help"], &[]);
        assert!(well && error.is_empty(), "{example}: {error}");
        assert!(out.starts_with(&format!("usage: {example} [--listen ")), "{example}: {out}");
    }
}

#[test]
fn servers_take_a_store_by_argument_and_from_the_environment() {
    let redis = RedisServer::start();
    let (url, nowhere) = (redis.url(), "redis://127.0.0.1:1/");
    let listen = ["--listen", "127.0.0.1:0"];
    for example in SERVERS {
        let (well, _, error) = ended(example, &listen, &[("REDIS_URL", nowhere)]);
        assert!(!well && error.contains("127.0.0.1:1"), "{example}: {error}");
        // The argument goes first.
        drop(Server::start_with(example, &["--store", &url], &[("REDIS_URL", nowhere)]));
        drop(Server::start_with(example, &[], &[("REDIS_URL", &url)]));
    }
}
