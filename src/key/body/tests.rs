use bytes::Bytes;
use futures_util::FutureExt;
use http::{
    HeaderMap, HeaderValue, Method, Request,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use tower::BoxError;

use super::{read::read, *};
use crate::key::{Bypass, HttpKey, Key, KeyExtractor};

type Boxed = UnsyncBoxBody<Bytes, BoxError>;

fn boxed<B>(body: B) -> Boxed
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    UnsyncBoxBody::new(body.map_err(Into::into))
}

type GiveBack = fn(ReadBody<Boxed>) -> Boxed;

fn json_key() -> HttpKey<BodyKey<GiveBack, Json>> {
    HttpKey::new().json_body(boxed)
}

fn post(headers: &[(&str, &str)], body: impl Into<Bytes>) -> Request<Boxed> {
    let builder = Request::post("https://a.test/v1");
    let builder = headers.iter().fold(builder, |builder, (n, v)| builder.header(*n, *v));
    builder.body(boxed(Full::new(body.into()))).unwrap()
}

fn ask(body: impl Into<Bytes>) -> Request<Boxed> {
    post(&[("content-type", "application/json")], body)
}

/// The key as the layer finds it.
fn key<K: KeyExtractor<Request<Boxed>>>(key: &K, request: Request<Boxed>) -> Result<Key, Bypass> {
    if key.reads(&request) {
        assert_eq!(key.extract(&request), Err(Bypass::Body));
        return key.read(request).now_or_never().expect("all is there").1;
    }
    key.extract(&request)
}

fn json_of(body: &Value) -> Key {
    key(&json_key(), ask(body.to_string())).unwrap()
}

#[test]
fn k10_every_member_counts() {
    let base = json!({
        "model": "llama", "seed": 1, "tools": [], "messages": [{"role": "user", "content": "q"}],
        "stream": false, "response_format": {"type": "text"}, "temperature": 1.0,
    });
    let change = |pointer: &str, value: Value| {
        let mut changed = base.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed
    };
    let with = |name: &str, value: Value| {
        let mut changed = base.clone();
        changed[name] = value;
        changed
    };
    let all = [
        base.clone(),
        change("/model", json!("Llama")),
        change("/seed", json!(2)),
        change("/seed", json!("1")),
        change("/seed", json!(1.0)),
        change("/seed", json!(null)),
        change("/tools", json!([{"name": "t"}])),
        change("/stream", json!(true)),
        change("/response_format/type", json!("json_object")),
        change("/messages/0/content", json!("q ")),
        change("/messages/0/role", json!("system")),
        with("unknown", json!(null)),
        with("Seed", json!(1)),
    ];
    let keys: Vec<_> = all.iter().map(json_of).collect();
    let raw = HttpKey::new().raw_body(boxed);
    let raws: Vec<_> = all.iter().map(|body| key(&raw, ask(body.to_string())).unwrap()).collect();
    for place in 0..all.len() {
        assert!(!keys[..place].contains(&keys[place]), "{}", all[place]);
        assert!(!raws[..place].contains(&raws[place]), "{}", all[place]);
        assert!(!keys.contains(&raws[place]), "a form of one kind is none of the other");
    }
}

#[test]
fn k4_the_order_of_members_counts_in_raw_keys_only() {
    let [one, other] = [r#"{"a":1,"b":[1,2]}"#, "{ \"b\":[1,2],\n\"a\":1}"];
    let [raw, json] = [false, true].map(|json| {
        let same = |a: &'static str, b: &'static str| match json {
            true => key(&json_key(), ask(a)) == key(&json_key(), ask(b)),
            false => {
                let raw = HttpKey::new().raw_body(boxed);
                key(&raw, ask(a)) == key(&raw, ask(b))
            }
        };
        assert!(same(one, one) && !same(one, r#"{"a":1,"b":[2,1]}"#));
        same(one, other)
    });
    assert!(json && !raw);
}

#[test]
fn what_is_no_json_counts_byte_by_byte() {
    for (one, other) in [
        (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":1, "a":2}"#),
        ("{", "{ "),
        ("", " "),
        ("1 1", "1  1"),
    ] {
        let of = |body| key(&json_key(), ask(body)).unwrap();
        assert_eq!(of(one), of(one));
        assert_ne!(of(one), of(other), "{one}");
    }
}

#[test]
fn bytes_are_never_taken_for_a_canonical_form() {
    // Nothing of the head tells these apart but what it says of the body.
    let only = json_key().ignore(CONTENT_TYPE).ignore(CONTENT_ENCODING);
    let of =
        |headers: &[(&str, &str)], body: &'static str| key(&only, post(headers, body)).unwrap();
    let plain = of(&[("content-type", "application/json")], r#"{"a":1}"#);
    let sorted = r#"{"a":1}"#;
    for same in
        ["application/json; charset=UTF-8", "APPLICATION/JSON;charset=\"utf-8\"", "a/b+json ; v=1"]
    {
        assert_eq!(of(&[("content-type", same)], "{ \"a\":1}"), plain, "{same}");
    }
    let identity = [("content-type", "application/json"), ("content-encoding", "identity")];
    assert_eq!(of(&identity, "{ \"a\":1}"), plain);
    for other in [
        &[("content-type", "application/json; charset=utf-16")][..],
        &[("content-type", "application/json"), ("content-encoding", "gzip")],
        &[("content-type", "application/json"), ("content-encoding", "identity, br")],
    ] {
        assert_ne!(of(other, sorted), plain, "{other:?}");
        assert_ne!(of(other, sorted), of(other, "{ \"a\":1}"), "{other:?}");
    }
}

#[test]
fn bytes_do_not_count_without_what_they_are() {
    let only = HttpKey::new().raw_body(boxed).only([]);
    let of = |headers: &[(&str, &str)]| key(&only, post(headers, "x")).unwrap();
    let all = [
        of(&[]),
        of(&[("content-type", "text/plain")]),
        of(&[("content-type", "text/html")]),
        of(&[("content-encoding", "gzip")]),
    ];
    for place in 0..all.len() {
        assert!(!all[..place].contains(&all[place]), "{place}");
    }
    assert_eq!(of(&[]), of(&[("x-other", "1")]));
}

/// Whoever may decode them for the connection that they came by reads another body.
#[test]
fn what_is_coded_for_its_connection_runs_alone() {
    let raw = HttpKey::new().raw_body(boxed);
    let of = |coding| key(&raw, post(&[("transfer-encoding", coding)], "x"));
    assert_eq!(of("chunked"), key(&raw, post(&[], "x")));
    for coding in ["gzip, chunked", "chunked, gzip", "identity", "x-chunked"] {
        assert_eq!(of(coding), Err(Bypass::Body), "{coding}");
    }
    let lines = [("transfer-encoding", "gzip"), ("transfer-encoding", "chunked")];
    assert_eq!(key(&raw, post(&lines, "x")), Err(Bypass::Body));
}

#[test]
fn lists_of_what_is_left_out_do_not_meet() {
    let without = json_key().leave_out("/user").unwrap();
    let of = |key_: &HttpKey<_>, body: &'static str| key(key_, ask(body)).unwrap();
    let [with_user, plain] = [r#"{"q":1,"user":"u"}"#, r#"{"q":1}"#];
    assert_eq!(of(&without, with_user), of(&without, plain));
    assert_ne!(of(&without, plain), of(&json_key(), plain));
}

#[test]
fn other_bodies_are_not_read() {
    let types: [&[(&str, &str)]; 6] = [
        &[],
        &[("content-type", "text/plain")],
        &[("content-type", "application/x-ndjson")],
        &[("content-type", "application/jsonl")],
        &[("content-type", "multipart/form-data; boundary=application/json")],
        &[("content-type", "application/json"), ("content-type", "application/json")],
    ];
    for headers in types {
        assert!(!json_key().reads(&post(headers, "{}")), "{headers:?}");
        assert_eq!(json_key().extract(&post(headers, "{}")), Err(Bypass::Body), "{headers:?}");
        assert!(HttpKey::new().raw_body(boxed).reads(&post(headers, "{}")), "{headers:?}");
    }
    let method = |method, body: &'static str| {
        let mut request = ask(body);
        *request.method_mut() = method;
        request
    };
    for name in [Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS, Method::CONNECT] {
        assert_eq!(key(&json_key(), method(name, "{}")), Err(Bypass::Method));
    }
    // As ever; what of a body comes with it is for the layer to see.
    assert!(!json_key().reads(&method(Method::GET, "{}")));
    let plain = HttpKey::new().extract(&method(Method::GET, ""));
    assert_eq!(key(&json_key(), method(Method::GET, "")), plain);

    let query = Method::from_bytes(b"QUERY").unwrap();
    let more = json_key().body_methods([query.clone(), Method::GET, Method::CONNECT]);
    assert!(key(&more, method(query, "{}")).is_ok());
    assert_eq!(key(&more, method(Method::POST, "{}")), Err(Bypass::Method));
    assert_eq!(key(&more, method(Method::CONNECT, "{}")), Err(Bypass::Method));
    assert_eq!(key(&more, method(Method::GET, "")), plain);
    assert_ne!(key(&more, method(Method::GET, "{}")), plain);
}

#[test]
fn the_head_is_looked_at_before_the_body() {
    for (name, value, why) in [
        ("range", "bytes=0-9", Bypass::Range),
        ("if-match", "*", Bypass::Conditional),
        ("upgrade", "h2c", Bypass::Upgrade),
        ("cache-control", "no-store", Bypass::NoStore),
    ] {
        let mut request = ask("{}");
        request.headers_mut().insert(name, HeaderValue::from_static(value));
        assert_eq!(key(&json_key(), request), Err(why));
    }
    let alone = json_key().bypass_if(|request| request.uri().path() == "/v1");
    assert_eq!(key(&alone, ask("{}")), Err(Bypass::Predicate));
}

#[test]
fn a_body_over_the_limit_has_no_key() {
    let limited = json_key().body_limit(10);
    assert!(key(&limited, ask(vec![b'1'; 10])).is_ok());
    // Known at once.
    assert!(!limited.reads(&ask(vec![b'1'; 11])));
    assert_eq!(key(&limited, ask(vec![b'1'; 11])), Err(Bypass::BodyTooLarge));
    let none = json_key().body_limit(0);
    assert_eq!(key(&none, ask("1")), Err(Bypass::BodyTooLarge));
    assert!(key(&none, ask("")).is_ok());
}

fn with_trailers(trailers: &[(&'static str, &'static str)]) -> Request<Boxed> {
    let trailers: HeaderMap = trailers
        .iter()
        .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
        .collect();
    ask("").map(|_| {
        boxed(Full::new(Bytes::from("{}")).with_trailers(async move { Some(Ok(trailers)) }.boxed()))
    })
}

#[test]
fn trailers_count() {
    let of = |trailers: &[_]| key(&json_key(), with_trailers(trailers)).unwrap();
    let base = of(&[("a", "1"), ("b", "2")]);
    assert_eq!(base, of(&[("b", "2"), ("a", "1")]));
    for other in [
        &[][..],
        &[("a", "1")],
        &[("a", "1"), ("b", "3")],
        &[("a", "1b2")],
        &[("a", ""), ("b", "2")],
    ] {
        assert_ne!(of(other), base, "{other:?}");
    }
    // Too much of them is too much.
    let limited = json_key().body_limit(3);
    assert!(key(&limited, with_trailers(&[("x", "")])).is_ok());
    assert_eq!(key(&limited, with_trailers(&[("x", "1")])), Err(Bypass::BodyTooLarge));
}

#[test]
fn a_head_is_never_taken_for_one_with_a_body() {
    let none = json_key().body_methods([Method::GET]).cover(http::header::CONTENT_TYPE);
    let head = |headers: &[(&str, &str)]| {
        let mut request = post(headers, "");
        *request.method_mut() = Method::GET;
        key(&none, request).unwrap()
    };
    let mut read = ask("{}");
    *read.method_mut() = Method::GET;
    assert_ne!(key(&none, read).unwrap(), head(&[("content-type", "application/json")]));
}

#[test]
fn nothing_of_a_body_is_printed() {
    let mut request = ask(r#"{"hunter2":"hunter2"}"#);
    let (read, whole) = read(request.body_mut(), 100).now_or_never().unwrap();
    let found = key(&json_key(), ask(r#"{"hunter2":"hunter2"}"#));
    let all = format!("{read:?} {found:?} {:?}", json_key());
    assert!(whole.is_ok() && !all.contains("hunter2") && !all.contains("104, 117"), "{all}");
    assert!(all.contains("limit: 1048576"), "{all}");
}

proptest! {
    #[test]
    fn keys_differ_where_bodies_do(a in vec(any::<u8>(), 0..4), b in vec(any::<u8>(), 0..4)) {
        let raw = HttpKey::new().raw_body(boxed);
        prop_assert_eq!(key(&raw, ask(a.clone())) == key(&raw, ask(b.clone())), a == b);
        if key(&json_key(), ask(a.clone())) == key(&json_key(), ask(b.clone())) && a != b {
            let [a, b] = [a, b].map(|text| serde_json::from_slice::<Value>(&text).unwrap());
            prop_assert_eq!(a, b);
        }
    }
}
