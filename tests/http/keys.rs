//! Requests that look alike where their parts are joined (row K1), over real connections,
//! and what any two requests differ in.

use std::collections::BTreeMap;

use axum::{Router, body::Body, extract::Request};
use http::{HeaderName, HeaderValue, Method};
use http_body_util::BodyExt;
use proptest::{collection::vec, prelude::*, sample::select};
use tower_singleflight::{HttpKey, KeyExtractor, NOISE, SingleFlightLayer, key::ReadBody};

use crate::{
    net,
    support::{Full, Gate, Req, Runs, callers, get, until, with},
};

fn post(path: &str, body: &'static str) -> Req {
    let mut request = get(path);
    *request.method_mut() = Method::POST;
    *request.body_mut() = Full::from(body);
    request
}

/// Says all of what it was asked, once the gate is open.
async fn answer(request: Request, runs: Runs, gate: Gate) -> String {
    let run = runs.begin();
    gate.passed().await;
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let fields = ["a", "b"].map(|name| parts.headers.get(name).cloned());
    run.finish();
    format!("{} {} {fields:?} {body:?}", parts.method, parts.uri)
}

#[tokio::test]
async fn k1_parts_are_never_taken_for_others() {
    let pairs = || {
        [
            [with(get("/"), "a", "x:b=y"), with(with(get("/"), "a", "x"), "b", "y")],
            [with(get("/"), "a", "x\tb"), with(with(get("/"), "a", "x"), "b", "")],
            [with(get("/"), "a", ""), get("/")],
            [with(with(get("/"), "a", "1"), "a", "2"), with(get("/"), "a", "1, 2")],
            [post("/items/a", "b|c"), post("/items/a%7Cb", "c")],
            [post("/items/a|b", "c"), post("/items/a", "|bc")],
            [post("/p", "\0\u{1e}\u{1f}"), post("/p", "\0\u{1e}")],
            [get("/?q=1%3D2"), get("/?q=1=2")],
            [get("/p"), get("/p?")],
        ]
    };
    for http2 in [false, true] {
        for pair in pairs() {
            let (runs, gate) = (Runs::default(), Gate::new());
            let node = SingleFlightLayer::new(HttpKey::new().sorted_query().raw_body(Body::new));
            let (counted, held) = (runs.clone(), gate.clone());
            let handler = move |request| answer(request, counted.clone(), held.clone());
            let server = net::axum(Router::new().fallback(handler).layer(node.clone())).await;
            let mut asked = Vec::new();
            for request in pair.iter().flat_map(|one| [one.clone(), one.clone()]) {
                let mut client =
                    if http2 { net::http2(server).await } else { net::http1(server).await };
                asked.push(tokio::spawn(async move { client.ask(request).await }));
            }
            until("all callers", || callers(&node) == 4).await;
            until("both runs", || runs.running() == 2).await;
            gate.open();
            let mut answers = Vec::new();
            for answer in asked {
                answers.push(answer.await.unwrap().body);
            }
            assert_eq!((&answers[0], &answers[2]), (&answers[1], &answers[3]), "{pair:?}");
            assert_ne!(answers[0], answers[2], "{pair:?}");
            assert_eq!(runs.total(), 2);
        }
    }
}

type Lines = Vec<(HeaderName, HeaderValue)>;

const SPECIAL: &[&str] =
    &["authorization", "cookie", "x-api-key", "accept", "x-forwarded-host", "forwarded"];

/// Names of all kinds: credentials, names like those of noise, noise, and any.
fn name() -> impl Strategy<Value = HeaderName> {
    let noise = || select(NOISE).prop_map(|name| name.replace('*', ""));
    let name = prop_oneof![
        2 => select(SPECIAL).prop_map(str::to_owned),
        1 => noise(),
        1 => (noise(), "[a-z-]{1,3}").prop_map(|(name, more)| name + &more),
        1 => (noise(), 0..4_usize)
            .prop_map(|(name, less)| name[..name.len().saturating_sub(less).max(1)].to_owned()),
        1 => "[a-z]{1,2}",
        1 => "[!#$%&'*+.^_`|~0-9a-zA-Z-]{1,20}",
    ];
    name.prop_map(|name| HeaderName::from_bytes(name.as_bytes()).unwrap())
}

fn value() -> impl Strategy<Value = HeaderValue> {
    let byte =
        prop_oneof![3 => b' '..=b'~', 1 => 0x80..=0xff_u8, 1 => Just(b'\t'), 1 => Just(b',')];
    vec(byte, 0..4).prop_map(|bytes| HeaderValue::from_bytes(&bytes).unwrap())
}

/// One thing that is done to the lines of a request.
#[derive(Clone, Debug)]
enum Edit {
    Nothing,
    Add(usize, HeaderName, HeaderValue),
    Remove(usize),
    Rename(usize, HeaderName),
    Change(usize, HeaderValue),
    Swap(usize, usize),
    /// Two lines of one name as one.
    Join(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = || 0..6_usize;
    prop_oneof![
        Just(Edit::Nothing),
        (at(), name(), value()).prop_map(|(at, name, value)| Edit::Add(at, name, value)),
        at().prop_map(Edit::Remove),
        (at(), name()).prop_map(|(at, name)| Edit::Rename(at, name)),
        (at(), value()).prop_map(|(at, value)| Edit::Change(at, value)),
        (at(), at()).prop_map(|(one, other)| Edit::Swap(one, other)),
        at().prop_map(Edit::Join),
    ]
}

fn edited(lines: &Lines, edit: Edit) -> Lines {
    let mut lines = lines.clone();
    let count = lines.len();
    match edit {
        Edit::Add(at, name, value) => lines.insert(at % (count + 1), (name, value)),
        _ if count == 0 => {}
        Edit::Nothing => {}
        Edit::Remove(at) => drop(lines.remove(at % count)),
        Edit::Rename(at, name) => lines[at % count].0 = name,
        Edit::Change(at, value) => lines[at % count].1 = value,
        Edit::Swap(one, other) => lines.swap(one % count, other % count),
        Edit::Join(at) => {
            let (name, value) = lines[at % count].clone();
            if let Some(next) = (at % count + 1..count).find(|next| lines[*next].0 == name) {
                let joined = [value.as_bytes(), b", ", lines.remove(next).1.as_bytes()].concat();
                lines[at % count].1 = HeaderValue::from_bytes(&joined).unwrap();
            }
        }
    }
    lines
}

fn of(lines: &Lines) -> http::Request<Body> {
    let mut request = http::Request::get("https://a.test/p?q").body(Body::empty()).unwrap();
    for (name, value) in lines {
        request.headers_mut().append(name, value.clone());
    }
    request
}

/// The lines outside the published list, by name.
fn counted(lines: &Lines) -> BTreeMap<&str, Vec<&[u8]>> {
    let mut counted: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (name, value) in lines {
        let is_noise = NOISE.iter().any(|noise| match noise.strip_suffix('*') {
            Some(prefix) => name.as_str().starts_with(prefix),
            None => name == noise,
        });
        if !is_noise {
            counted.entry(name.as_str()).or_default().push(value.as_bytes());
        }
    }
    counted
}

fn hold<K: KeyExtractor<http::Request<Body>>>(key: &K, one: &Lines, other: &Lines) {
    let (a, b) = (key.extract(&of(one)), key.extract(&of(other)));
    if let (Ok(a), Ok(b)) = (a, b) {
        assert_eq!(a == b, counted(one) == counted(other), "{one:?} {other:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    /// Who differs in a header that is not published as noise never shares.
    #[test]
    fn k1_any_difference_outside_the_noise_is_another_key(
        lines in vec((name(), value()), 0..6),
        edit in edit(),
    ) {
        let other = edited(&lines, edit);
        hold(&HttpKey::new(), &lines, &other);
        hold(&HttpKey::new().json_body(|_: ReadBody<Body>| Body::empty()), &lines, &other);
        let named = HttpKey::new().sorted_query().authority("fleet").tenant(|_| Some("one"));
        hold(&named.identity_fn(|_| Some("one")), &lines, &other);
    }
}
