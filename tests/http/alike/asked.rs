//! Who shares with whom: requests that have one answer meet, wherever and over whatever they
//! are asked, and no others do (rows K3, K4, K6, K10, L2, L4, M1, M2, M3, M8).

use std::{collections::BTreeMap, net::SocketAddr};

use axum::{Router, body::Body, extract::Request, response::Response};
use http::{Method, StatusCode, header::HOST};
use http_body_util::BodyExt;
use tower_singleflight::{Config, HttpKey, NOISE, RedisStore, SingleFlightLayer};

use super::compare::Said;
use crate::{
    machine::redis_server::RedisServer,
    net,
    support::{Answer, Full, Gate, Req, Runs, callers, get, ms, until, with},
};

/// Requests by what they share under; those under nothing run alone.
type Row = Vec<(&'static str, Req)>;
const ALONE: &str = "";

fn method(name: &'static str) -> Req {
    let mut request = get("/");
    *request.method_mut() = Method::from_bytes(name.as_bytes()).unwrap();
    request
}

fn json(text: &'static str) -> Req {
    with(method("POST"), "content-type", "application/json").map(|_| Full::from(text))
}

fn at(uri: &'static str) -> Req {
    let mut request = get("/");
    *request.uri_mut() = uri.parse().unwrap();
    request
}

fn rows() -> Vec<Row> {
    let header = |name, value| with(get("/"), name, value);
    let mut rows = vec![
        vec![
            ("a", at("http://a.test/")),
            ("a", at("http://A.TEST:80/")),
            ("b", at("http://b.test/")),
            ("dot", at("http://a.test./")),
            ("port", at("http://a.test:81/")),
        ],
        ["?a=1&b=2", "?b=2&a=1", "?x=1&x=2", "?x=2&x=1", "?x=1%3D2", "?", "a%2Fb", "a/b", "%7Eu"]
            .map(|rest| (rest, at(format!("http://a.test/{rest}").leak())))
            .to_vec(),
        vec![
            ("none", get("/")),
            ("A", header("authorization", "Bearer A")),
            ("B", header("authorization", "Bearer B")),
            ("1", header("cookie", "s=1")),
            ("2", header("cookie", "s=2")),
            ("empty", header("cookie", "")),
            ("key", header("x-api-key", "A")),
            ("user", header("x-forwarded-user", "A")),
        ],
        vec![
            ("none", get("/")),
            ("gzip", header("accept-encoding", "gzip")),
            ("br", header("accept-encoding", "br")),
            ("two", with(header("accept-encoding", "gzip"), "accept-encoding", "br")),
        ],
        vec![
            ("same", header("user-agent", "one")),
            ("same", header("user-agent", "another")),
            ("same", header("traceparent", "00-1-2-01")),
            ("same", header("x-request-id", "7")),
            ("same", header("x-forwarded-for", "10.0.0.1")),
        ],
        vec![("get", get("/")), ("head", method("HEAD")), ("head", method("HEAD"))],
        vec![
            ("whole", get("/")),
            (ALONE, header("range", "bytes=0-9")),
            (ALONE, header("range", "bytes=10-19")),
            (ALONE, header("if-none-match", "\"x\"")),
            (ALONE, header("if-modified-since", "Tue, 15 Nov 1994 08:12:31 GMT")),
            (ALONE, header("if-match", "\"y\"")),
            (ALONE, header("cache-control", "no-store")),
            ("fresh", header("cache-control", "no-cache")),
        ],
        ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "BREW"]
            .map(|name| (ALONE, method(name).map(|_| Full::from("text"))))
            .to_vec(),
        vec![(ALONE, get("/").map(|_| Full::from("text")))],
        vec![
            ("one", json(r#"{"a":{"x":[1,2],"y":"é"},"b":1}"#)),
            ("one", json(r#" {"b":1, "a":{"y":"\u00e9","x":[1,2]}}"#)),
            ("array", json(r#"{"a":{"x":[2,1],"y":"é"},"b":1}"#)),
            ("float", json(r#"{"a":{"x":[1,2],"y":"é"},"b":1.0}"#)),
            ("seed", json(r#"{"a":{"x":[1,2],"y":"é"},"b":1,"seed":7}"#)),
            ("stream", json(r#"{"a":{"x":[1,2],"y":"é"},"b":1,"stream":true}"#)),
            ("bad", json(r#"{"a":1"#)),
            ("A", with(json("{}"), "authorization", "Bearer A")),
            ("B", with(json("{}"), "authorization", "Bearer B")),
        ],
    ];
    for (n, row) in rows.iter_mut().enumerate() {
        for (_, request) in row {
            // No row meets another.
            let number = http::HeaderValue::from(n);
            request.headers_mut().insert("x-row", number);
        }
    }
    rows
}

/// Says what it was asked, as far as that means something.
async fn echo(request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let host = parts.headers.get(HOST).map(|host| host.to_str().unwrap().to_owned());
    let host = host.or_else(|| parts.uri.authority().map(ToString::to_string)).unwrap();
    let host = host.to_ascii_lowercase();
    let mut fields = BTreeMap::<_, Vec<_>>::new();
    for (name, value) in parts.headers.iter().filter(|(name, _)| !NOISE.contains(&name.as_str())) {
        fields.entry(name.as_str()).or_default().push(value);
    }
    let body = match serde_json::from_slice::<serde_json::Value>(&body) {
        Ok(value) => value.to_string(),
        Err(_) => body.escape_ascii().to_string(),
    };
    let uri = parts.uri.path_and_query().unwrap();
    let host = host.trim_end_matches(":80");
    let said =
        format!("{} {host} {uri} {fields:?} {body}", parts.method).escape_debug().to_string();
    let said = said.as_bytes().escape_ascii().to_string();
    let mut response = Response::new(Body::from(said.clone()));
    let has = |name: &str| parts.headers.contains_key(name);
    if has("range") {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    } else if has("if-none-match") || has("if-modified-since") {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
    }
    response.headers_mut().insert("x-said", said.parse().unwrap());
    response
}

/// A server that counts its runs, and holds them at the gate.
async fn serve(node: Option<&SingleFlightLayer<Key>>, runs: &Runs, gate: &Gate) -> SocketAddr {
    let (runs, gate) = (runs.clone(), gate.clone());
    let handler = move |request: Request| {
        let (run, gate) = (runs.begin(), gate.clone());
        async move {
            gate.passed().await;
            run.finish();
            echo(request).await
        }
    };
    let app = Router::new().fallback(handler);
    net::axum(match node {
        Some(node) => app.layer(node.clone()),
        None => app,
    })
    .await
}

type GiveBack = fn(tower_singleflight::key::ReadBody<Body>) -> Body;
type Key = HttpKey<tower_singleflight::key::BodyKey<GiveBack, tower_singleflight::key::Json>>;

async fn ask(server: SocketAddr, http2: bool, request: Req) -> Answer {
    let mut client = if http2 { net::http2(server).await } else { net::http1(server).await };
    client.ask(request).await
}

fn without_remark(mut answer: Answer) -> impl PartialEq + std::fmt::Debug {
    for name in ["cache-status", "date"] {
        answer.headers.remove(name);
    }
    let fields: BTreeMap<_, _> =
        answer.fields().into_iter().map(|field| (field.0.clone(), field)).collect();
    (answer.status, answer.version, fields, answer.body)
}

#[tokio::test]
async fn l2_who_shares_gets_what_it_would_have_got_alone() {
    let redis = RedisServer::start();
    let (runs, gate, open) = (Runs::default(), Gate::new(), Gate::new());
    open.open();
    let config = Config::builder().lease(ms(60_000)).retention(ms(120_000)).build().unwrap();
    let (mut nodes, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let store =
            RedisStore::builder(redis.url()).operation_limit(ms(10_000)).connect().await.unwrap();
        let key: Key = HttpKey::new().json_body(Body::new as GiveBack);
        let node = SingleFlightLayer::new(key).store(store).namespace("asked");
        let node = node.config(config.clone());
        servers.push(serve(Some(&node), &runs, &gate).await);
        nodes.push(node);
    }
    let alone = serve(None, &Runs::default(), &open).await;

    let (mut asked, mut own) = (Vec::new(), 0);
    let mut groups = BTreeMap::new();
    for (row, requests) in rows().into_iter().enumerate() {
        for (label, request) in requests {
            for (server, http2) in [(0, false), (0, true), (1, false), (1, true)] {
                let what = format!("row {row} {label:?} {server} {http2}: {request:?}");
                let group = (label != ALONE).then_some((row, label));
                match group {
                    Some(group) => *groups.entry(group).or_insert(0) += 1,
                    None => own += 1,
                }
                let expected = tokio::spawn(ask(alone, http2, request.clone()));
                let answer = tokio::spawn(ask(servers[server], http2, request.clone()));
                asked.push((what, group, expected, answer));
            }
        }
        let shared: usize = groups.values().sum();
        until("all callers", || nodes.iter().map(callers).sum::<usize>() == shared).await;
        until("all runs", || runs.running() == own + groups.len()).await;
    }
    gate.open();
    let mut owners = BTreeMap::new();
    for (what, group, expected, answer) in asked {
        let (expected, answer) = (expected.await.unwrap(), answer.await.unwrap());
        let said = Said::of(&answer);
        match group {
            Some(group) if said == Said::Owner => *owners.entry(group).or_insert(0) += 1,
            Some(_) => assert_eq!(said, Said::Collapsed, "{what}"),
            None => assert_eq!(said, Said::Bypass, "{what}"),
        }
        assert_eq!(without_remark(answer), without_remark(expected), "{what}");
    }
    assert!(owners.len() == groups.len() && owners.values().all(|count| *count == 1));
    assert_eq!(runs.total(), own + groups.len());
}
