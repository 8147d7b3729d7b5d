//! `examples/llm`.

use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::program::{Answer, Server, pasted};

const OWNER: &str = "tower-singleflight; fwd=miss";
const FOLLOWER: &str = "tower-singleflight; fwd=miss; collapsed";

#[tokio::test]
async fn llm_streams_one_run_to_all() {
    let server = Server::start("llm", &[]);
    // As the lines that are printed say it.
    let (line, whole_line) = (server.curl_line(), server.curl_line());
    let body = line.rsplit_once(" -d '").and_then(|(_, body)| body.strip_suffix('\''));
    let body = body.expect("a body in the line");
    let mut owner = ask(&server, "", body).await;
    // The role, and a token.
    while owner.text().matches("data: ").count() < 2 {
        assert!(owner.next().await);
    }
    assert!(!owner.text().contains("[DONE]"), "the first token comes before the last is made");
    // Somebody else asks, with the members in another order: the same request.
    let mut said: Value = serde_json::from_str(body).unwrap();
    said["user"] = "somebody else".into();
    let (one, other) = (body.find("messages"), said.to_string());
    assert_ne!(one, other.find("messages"));
    let mut follower = ask(&server, "", &other).await;
    assert_eq!([role(&owner), role(&follower)], [OWNER, FOLLOWER]);

    // Others do it from two terminals, and two do it without a stream.
    let twice = format!("{whole_line} & {whole_line}; wait");
    let (shown, answers) = tokio::join!(pasted(line.clone()), pasted(twice));
    let [owner, follower] = [whole(&mut owner).await, whole(&mut follower).await];
    assert_eq!([&owner, &owner], [&follower, &shown]);
    let said = "This is run 2 of process";
    assert_eq!(answers.matches(said).count(), 2, "{answers}");
    let events: Vec<_> = owner.split_terminator("\n\n").collect();
    let (done, chunks) = events.split_last().expect("events");
    assert_eq!(*done, "data: [DONE]");
    let chunks = chunks.iter().map(|event| {
        let data = event.strip_prefix("data: ").expect("data");
        serde_json::from_str(data).expect("JSON")
    });
    let chunks: Vec<Value> = chunks.collect();
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert!(["id", "created", "model"].iter().all(|name| chunk[name] == chunks[0][name]));
        assert_eq!(chunk.get("usage"), None, "nobody asked for it");
    }
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    assert!(text.collect::<String>().contains("This is run 1 of process"));
    assert_eq!(chunks[chunks.len() - 1]["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn llm_shares_whole_answers_of_those_who_ask_the_same() {
    let server = Server::start("llm", &[]);
    let message = r#""messages":[{"role":"user","content":"why?"}]"#;
    let plain = format!(r#"{{"model":"slow-1","max_tokens":12,{message}}}"#);
    let turned = format!(r#"{{{message}, "max_tokens":12, "model":"slow-1", "user":"b"}}"#);
    let seed = format!(r#"{{"model":"slow-1","max_tokens":12,"seed":1,{message}}}"#);
    let (mut a, mut same, mut seed, mut key) = tokio::join!(
        ask(&server, "Bearer a", &plain),
        ask(&server, "Bearer a", &turned),
        ask(&server, "Bearer a", &seed),
        ask(&server, "Bearer b", &plain),
    );
    // Which of the two came first is open.
    let mut roles = [role(&a), role(&same)].map(str::to_owned);
    roles.sort();
    assert_eq!(roles, [OWNER, FOLLOWER]);
    assert_eq!([role(&seed), role(&key)], [OWNER, OWNER]);
    let a = whole(&mut a).await;
    assert_eq!(a, whole(&mut same).await);
    assert_ne!(a, whole(&mut seed).await);
    assert_ne!(a, whole(&mut key).await);
    let answer: Value = serde_json::from_str(&a).unwrap();
    assert_eq!(answer["object"], "chat.completion");
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": 12, "total_tokens": 13 });
    assert_eq!(answer["usage"], usage);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn llm_says_what_it_has_and_what_is_wrong() {
    let server = Server::start("llm", &[]);
    let models: Value = serde_json::from_str(&server.get("/v1/models").await.1).unwrap();
    assert_eq!(models["data"][0]["id"], "slow-1");
    let (status, page) = server.get("/").await;
    assert!(status == StatusCode::OK && page.contains("<html"), "{page}");
    for (body, status) in [
        (r#"{"model":"other","messages":[]}"#, StatusCode::NOT_FOUND),
        (r#"{"model":"slow-1"}"#, StatusCode::BAD_REQUEST),
        (r#"{"model":"#, StatusCode::BAD_REQUEST),
    ] {
        let mut answer = ask(&server, "", body).await;
        assert_eq!(answer.head.status, status);
        let error: Value = serde_json::from_str(&whole(&mut answer).await).unwrap();
        assert_eq!(error["error"]["type"], "invalid_request_error");
    }
    let usage = r#"{"model":"slow-1","messages":[],"max_tokens":1,"stream":true,
        "stream_options":{"include_usage":true}}"#;
    let text = whole(&mut ask(&server, "", usage).await).await;
    assert!(text.contains(r#""choices":[],"usage":{"prompt_tokens":0,"completion_tokens":1,"#));
}

const PATH: &str = "/v1/chat/completions";

fn ask(server: &Server, authorization: &str, body: &str) -> impl Future<Output = Answer> + use<> {
    let request = Request::post(format!("http://{}{PATH}", server.address))
        .header("content-type", "application/json")
        .body(Full::from(body.to_owned()));
    let mut request = request.expect("a request");
    if !authorization.is_empty() {
        let value = authorization.parse().expect("a header's value");
        request.headers_mut().insert("authorization", value);
    }
    server.send(request)
}

fn role(answer: &Answer) -> &str {
    answer.head.headers["cache-status"].to_str().expect("text")
}

async fn whole(answer: &mut Answer) -> String {
    while answer.next().await {}
    answer.text()
}
