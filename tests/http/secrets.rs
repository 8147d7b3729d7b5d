//! Nothing of a request, and of an answer only what is kept to be given on, is seen beside
//! the answers themselves: in logs at their most talkative, in `Debug` output, in errors,
//! and in Redis, of which every command is watched.

use std::{
    fmt::Debug,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body, extract::Request};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, header::AUTHORIZATION};
use http_body::Frame;
use http_body_util::StreamBody;
use tower_singleflight::{
    Config, HttpKey, RedisStore, SingleFlightLayer, StoreDown,
    key::{BodyKey, Json, ReadBody},
};

use crate::{
    machine::redis_server::RedisServer,
    net,
    support::{Answer, Full, Gate, Req, callers, ms, until},
};

/// In every part of every request.
const ASKED: &str = "s3cr3t-asked";
/// In every part of every answer that is given on.
const TOLD: &str = "s3cr3t-told";
/// Of the fleet.
const FLEETS: &str = "s3cr3t-fleet";

/// Bytes that come by and by.
#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<u8>>>);

impl Tape {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What the crate logs, on all threads, from now on.
fn log() -> Tape {
    let tape = Tape::default();
    let writer = tape.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("tower_singleflight=trace")
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // The store's own threads log too. No other test has one for all threads.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    tape
}

/// Every command that the server runs from now on, also inside of scripts.
fn monitor(redis: &RedisServer) -> Tape {
    let (tape, mut connection) = (Tape::default(), redis.connect());
    connection.write_all(b"MONITOR\r\n").unwrap();
    let mut lines = BufReader::new(connection);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "+OK\r\n");
    let mut writer = tape.clone();
    std::thread::spawn(move || std::io::copy(&mut lines, &mut writer));
    tape
}

type GiveBack = fn(ReadBody<Body>) -> Body;
type Layer = SingleFlightLayer<HttpKey<BodyKey<GiveBack, Json>>>;

const NAMES: [&str; 5] = ["authorization", "cookie", "user-agent", "x-plan", "x-own"];

/// A request with the mark wherever there is room for it.
fn request(method: &Method, path: &str) -> Req {
    let path = format!("/{path}/{ASKED}?{ASKED}=1&q={ASKED}");
    let mut request = crate::support::get(&path);
    request.method_mut().clone_from(method);
    for name in NAMES {
        let value = HeaderValue::from_str(&format!("{name} {ASKED}")).unwrap();
        request.headers_mut().append(name, value);
    }
    if *method == Method::POST {
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        *request.body_mut() = Full::from(format!("{{\"{ASKED}\": [\"{ASKED}\"]}}"));
    }
    request
}

/// An answer of this kind, with its mark in all parts.
fn answer(kind: &str) -> Response<Body> {
    let text = TOLD.repeat(if kind == "large" { 20_000 } else { 1 });
    let mark = HeaderValue::from_static(TOLD);
    let trailers = HeaderMap::from_iter([(HeaderName::from_static("x-late"), mark.clone())]);
    let last = match kind {
        "broken" => Err(std::io::Error::other("the disk is gone")),
        _ => Ok(Frame::trailers(trailers)),
    };
    let frames = [Ok(Frame::data(Bytes::from(text))), last];
    let mut response = Response::new(Body::new(StreamBody::new(tokio_stream::iter(frames))));
    response.headers_mut().insert("x-early", mark);
    let (name, value) = match kind {
        "private" => ("cache-control", "no-store"),
        // Outside the key.
        "varying" => ("vary", "x-plan"),
        _ => ("etag", "\"x\""),
    };
    response.headers_mut().insert(name, value.parse().unwrap());
    response
}

async fn serve(redis: &RedisServer, gate: &Gate, config: Config) -> (Layer, SocketAddr) {
    let key = HttpKey::new()
        .identity(AUTHORIZATION)
        .ignore(HeaderName::from_static("x-plan"))
        .json_body(Body::new as GiveBack);
    let url = redis.url_for("flight", FLEETS, 0);
    let store = RedisStore::connect(&url).await.unwrap();
    let node = SingleFlightLayer::new(key).store(store).namespace("secrets").secret(FLEETS);
    let (node, gate) = (node.config(config), gate.clone());
    let handler = move |request: Request| {
        let gate = gate.clone();
        async move {
            gate.passed().await;
            let kind = request.uri().path().split('/').nth(1).unwrap().to_owned();
            answer(&kind)
        }
    };
    let app = Router::new().fallback(handler).layer(node.clone());
    (node, net::axum(app).await)
}

fn marks(text: &str) -> Vec<&'static str> {
    [ASKED, TOLD, FLEETS].into_iter().filter(|mark| text.contains(mark)).collect()
}

fn clean(what: &str, text: &str) {
    assert_eq!(marks(text), [""; 0], "{what}: {text}");
}

fn shows_nothing(what: &str, value: &dyn Debug) {
    clean(what, &format!("{value:?} {value:#?}"));
}

/// What is in Redis, by the names of the keys.
fn keys(redis: &RedisServer) {
    let names = redis.lines(&["KEYS", "*"]);
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        clean("the name of a key", &name);
        let value = match redis.lines(&["TYPE", &name])[0].as_str() {
            "+string" => redis.command(&["GET", &name]),
            "+hash" => redis.command(&["HGETALL", &name]),
            "+zset" => redis.command(&["ZRANGE", &name, "0", "-1"]),
            "+stream" => redis.command(&["XRANGE", &name, "-", "+"]),
            other => panic!("{name}: {other}"),
        };
        let answers = [":result:", ":stream:"].iter().any(|kind| name.contains(kind));
        let expected: &[&str] = if answers && value.contains(TOLD) { &[TOLD] } else { &[] };
        assert_eq!(marks(&value), expected, "{name}");
    }
}

/// What was sent there and run there: an answer goes where answers are kept, and to those
/// who wait.
fn commands(seen: &str) {
    let mut told = 0;
    for line in seen.lines() {
        let found = marks(line);
        if found == [TOLD] {
            told += 1;
            let place = [":result:", ":stream:", ":push:"].iter().any(|place| line.contains(place));
            assert!(place, "{line}");
        } else {
            assert_eq!(found, [""; 0], "{line}");
        }
    }
    assert!(told > 0);
}

async fn ask(server: SocketAddr, http2: bool, request: Req) -> Answer {
    let mut client = if http2 { net::http2(server).await } else { net::http1(server).await };
    client.ask(request).await
}

#[tokio::test]
async fn nothing_of_a_request_is_seen_anywhere() {
    let log = log();
    let mut redis = RedisServer::start();
    let password = format!(">{FLEETS}");
    redis.set_user("flight", &["on", &password, "~*", "&*", "+@all"].map(str::to_owned));
    let seen = monitor(&redis);
    let gate = Gate::new();
    let config = |down| {
        let config = Config::builder().reuse(ms(60_000)).retention(ms(120_000)).store_down(down);
        config.build().unwrap()
    };
    let (here, one) = serve(&redis, &gate, config(StoreDown::Open)).await;
    let (there, other) = serve(&redis, &gate, config(StoreDown::Reject)).await;
    let nodes = [&here, &there];

    let methods = [Method::GET, Method::POST];
    for kind in ["small", "large", "private", "varying", "broken"] {
        for method in &methods {
            gate.close();
            let mut asked = Vec::new();
            for (server, http2) in [(one, false), (one, true), (other, false), (other, true)] {
                let request = request(method, kind);
                asked.push(tokio::spawn(async move {
                    let mut client =
                        if http2 { net::http2(server).await } else { net::http1(server).await };
                    match client.send(request).await {
                        Ok(answer) => crate::support::read(answer).await,
                        Err(error) => Err(error.into()),
                    }
                }));
            }
            let waiting = || nodes.iter().map(|node| callers(*node)).sum::<usize>();
            until("all callers", || waiting() == 4).await;
            for node in nodes {
                shows_nothing("flights", &node.flights());
            }
            gate.open();
            for asked in asked {
                match asked.await.unwrap() {
                    Ok(answer) if answer.status == 200 => assert!(answer.text().contains(TOLD)),
                    // What failed says so, and no more.
                    Ok(answer) => clean("a failure", &format!("{answer:?} {}", answer.text())),
                    Err(error) => clean("a broken body", &format!("{error} {error:?}")),
                }
            }
            until("all are gone", || nodes.iter().all(|node| node.flights().is_empty())).await;
        }
    }
    keys(&redis);
    let forgotten = request(&Method::GET, "small").map(|_| Body::empty());
    here.forget(&forgotten).await.unwrap();

    redis.kill();
    commands(&seen.text());
    let apart = ask(one, true, request(&Method::GET, "apart")).await;
    assert_eq!(apart.text(), TOLD);
    let refused = ask(other, false, request(&Method::POST, "refused")).await;
    assert_eq!(refused.status, 503);
    clean("a refusal", &format!("{refused:?} {}", refused.text()));
    let error = here.forget(&forgotten).await.unwrap_err();
    clean("an error", &format!("{error} {error:?}"));

    let key = HttpKey::new().identity(AUTHORIZATION);
    for method in methods {
        let explained = key.explain(&request(&method, "small"));
        clean("what is told of a key", &format!("{explained} {explained:?}"));
    }
    for node in nodes {
        shows_nothing("a layer", node);
        shows_nothing("counts", &(node.stats(), node.store_errors(), node.store_state()));
    }
    let logged = log.text();
    clean("the log", &logged);
    for said in ["is not shared", "the store is away"] {
        assert!(logged.contains(said), "{said} is not in the log: {logged}");
    }
}
