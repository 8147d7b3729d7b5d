//! Requests of an LLM's kind: by `POST`, with a key from their bodies, answered token
//! by token.

use std::time::Instant;

use bytes::Bytes;
use http::{Request, StatusCode, response::Parts};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tokio::{task::JoinHandle, time::timeout};

use crate::{
    QUICK,
    lab::{Answer, Lab, PATIENCE, one_answer, sum},
    support::redis_server::RedisServer,
};

/// What an event begins with, but for the last.
const DATA: &[u8] = b"data: {";

#[tokio::test]
async fn o1_tokens_reach_a_follower_elsewhere_while_they_are_made() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let [one, other] = &labs;
    let mut owner = open(one, r#"{"stream":true,"max_tokens":25,"gap_ms":100,"seed":1}"#).await;
    owner.until_events(1).await;
    // The same, said in another way.
    let same = r#"{ "seed":1, "gap_ms":100, "max_tokens":25, "stre\u0061m":true }"#;
    let mut follower = open(other, same).await;
    follower.until_events(5).await;
    assert_eq!(one.count("/inner/running").await, 1, "five events came before the end");
    owner.until_events(5).await;

    let answers = [owner.end().await.unwrap(), follower.end().await.unwrap()];
    let answer = one_answer(&answers);
    assert_eq!(answers.each_ref().map(Answer::role), ["owner", "follower"]);
    assert_eq!(events(&answer.body), 25);
    assert!(answer.body.ends_with(b"\n\ndata: [DONE]\n\n"), "{answer:?}");
    let pid = format!(" pid={} token=", one.pid());
    assert!(content(&answer.body).starts_with("run=") && content(&answer.body).contains(&pid));
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
    assert_eq!(sum(&labs, "/inner/finished").await, 1);
}

#[tokio::test]
async fn k10_whole_answers_are_shared_and_what_differs_is_not() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let [one, other] = &labs;
    let ask = r#"{"model":"m","max_tokens":10,"gap_ms":100}"#;
    let owner = post(one, ask);
    one.until_one("owner", 0).await;
    let same = post(other, r#"{"gap_ms":100,"max_tokens":10,"model":"m"}"#);
    other.until_one("follower", 1).await;
    // A member more, and a model in capitals.
    let seed = post(one, r#"{"model":"m","max_tokens":10,"gap_ms":100,"seed":1}"#);
    let capital = post(other, r#"{"model":"M","max_tokens":10,"gap_ms":100}"#);
    let shared = [answer(owner).await, answer(same).await];
    let first = one_answer(&shared);
    assert_eq!(shared.each_ref().map(Answer::role), ["owner", "follower"]);
    let [seed, capital] = [answer(seed).await, answer(capital).await];
    assert_eq!([seed.role(), capital.role()], ["owner", "owner"]);
    assert!(first.body != seed.body && first.body != capital.body && seed.body != capital.body);
    assert_eq!(sum(&labs, "/inner/calls").await, 3);
}

#[tokio::test]
async fn o2_a_killed_owner_breaks_the_follower_off() {
    let redis = RedisServer::start();
    let [mut one, other] = Lab::fleet::<2>(&redis.url(), QUICK);
    let ask = r#"{"stream":true,"max_tokens":1000,"gap_ms":50}"#;
    let mut owner = open(&one, ask).await;
    owner.until_events(1).await;
    let mut follower = open(&other, ask).await;
    follower.until_events(3).await;
    one.kill9();
    assert!(owner.end().await.is_err(), "its own client is cut off");
    let error = follower.end().await.expect_err("never a clean end");
    println!("o2: the follower of a killed owner got: {error}");
}

#[tokio::test]
async fn what_has_no_key_passes_through_and_what_is_no_json_is_refused() {
    let lab = Lab::start("memory:", &[]);
    let text = Request::post(lab.uri("/llm")).header("content-type", "text/plain");
    let passed = answer(send(text.body(Full::from(r#"{"max_tokens":2}"#)).unwrap())).await;
    assert_eq!((passed.status, passed.role()), (StatusCode::OK, "bypass"));
    assert!(content(&passed.body).contains(" token=0\n"), "{passed:?}");
    for wrong in [r#"{"max_tokens":"#, r#"{"max_tokens":-1}"#, ""] {
        assert_eq!(answer(post(&lab, wrong)).await.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    assert_eq!(lab.count("/inner/calls").await, 1);
}

/// An answer that is read event by event.
struct Stream {
    head: Parts,
    body: Incoming,
    read: Vec<u8>,
}

impl Stream {
    async fn frame(&mut self) -> Option<Result<(), String>> {
        let frame = timeout(PATIENCE, self.body.frame()).await.expect("a frame in time")?;
        Some(frame.map_err(|error| format!("{error:?}")).map(|frame| {
            self.read.extend_from_slice(frame.data_ref().expect("data"));
        }))
    }

    async fn until_events(&mut self, wanted: usize) {
        while events(&self.read) < wanted {
            self.frame().await.expect("more events").expect("no error");
        }
    }

    async fn end(mut self) -> Result<Answer, String> {
        while let Some(frame) = self.frame().await {
            frame?;
        }
        let Parts { status, headers, .. } = self.head;
        Ok(Answer { status, headers, body: self.read.into(), at: Instant::now() })
    }
}

/// A caller of its own task.
fn send(request: Request<Full<Bytes>>) -> JoinHandle<Stream> {
    let http: Client<HttpConnector, _> = Client::builder(TokioExecutor::new()).build_http();
    tokio::spawn(async move {
        let (head, body) = http.request(request).await.expect("a head").into_parts();
        Stream { head, body, read: Vec::new() }
    })
}

fn post(lab: &Lab, body: &str) -> JoinHandle<Stream> {
    let request = Request::post(lab.uri("/llm")).header("content-type", "application/json");
    send(request.body(Full::from(body.to_owned())).expect("a request"))
}

async fn open(lab: &Lab, body: &str) -> Stream {
    timeout(PATIENCE, post(lab, body)).await.expect("a head in time").expect("no panic")
}

async fn answer(stream: JoinHandle<Stream>) -> Answer {
    let stream = timeout(PATIENCE, stream).await.expect("a head in time").expect("no panic");
    stream.end().await.expect("a whole answer")
}

fn events(body: &[u8]) -> usize {
    body.windows(DATA.len()).filter(|part| *part == DATA).count()
}

/// The text of the first token, or of all of them.
fn content(body: &[u8]) -> String {
    let body = body.strip_prefix(b"data: ").unwrap_or(body);
    let first: Value =
        serde_json::Deserializer::from_slice(body).into_iter().next().unwrap().unwrap();
    let part = ["/choices/0/delta/content", "/choices/0/message/content"];
    let text = part.iter().find_map(|place| first.pointer(place)?.as_str());
    text.expect("a text").to_owned()
}
