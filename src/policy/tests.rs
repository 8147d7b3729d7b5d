use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::Empty;

use super::*;
use crate::codec::{Asked, Codec, HttpCodec, Judgement};

fn map(headers: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    map
}

type Body = Empty<bytes::Bytes>;

/// What a codec says of a response to a request whose key has all headers but some.
fn judge(codec: &HttpCodec, response: &Response<Body>, identified: bool, reuse: bool) -> Judgement {
    let outside = ["x-plan", "x-other", "host"];
    let covers = |name: &HeaderName| !outside.contains(&name.as_str());
    let asked = Asked::new(&covers, identified, reuse);
    Codec::<http::Request<Body>, _, std::io::Error>::judge(codec, response, &asked)
}

fn response(status: u16, headers: &[(&str, &str)]) -> Response<Body> {
    let mut response = Response::new(Body::new());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    *response.headers_mut() = map(headers);
    response
}

fn decide(status: u16, headers: &[(&str, &str)]) -> Judgement {
    judge(&HttpCodec::default(), &response(status, headers), false, true)
}

fn shared(reuse: Duration) -> Judgement {
    Judgement::Shared { reuse, varies: Vec::new() }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn private_responses() {
    for (name, value) in [
        ("set-cookie", "sid=1"),
        ("set-cookie2", "sid=1"),
        ("cache-control", "max-age=1, No-Store"),
        ("cache-control", "PRIVATE"),
        ("cache-control", "private=\"x-user, x-other\""),
        ("vary", "accept, *"),
        ("vary", "not a name"),
        ("vary", "accept, Host"),
    ] {
        assert_eq!(decide(200, &[(name, value)]), Judgement::Private, "{name}: {value}");
    }
    let lines = [("cache-control", "max-age=1"), ("cache-control", "no-store")];
    assert_eq!(decide(200, &lines), Judgement::Private);
    for status in [100, 101, 103, 206, 304] {
        assert_eq!(decide(status, &[]), Judgement::Private);
    }
}

#[test]
fn private_is_shared_within_one_identity() {
    let of = |value| {
        judge(&HttpCodec::default(), &response(200, &[("cache-control", value)]), true, true)
    };
    assert_eq!(of("private"), shared(Duration::MAX));
    assert_eq!(of("private, max-age=5"), shared(SECOND * 5));
    assert_eq!(of("private, no-store"), Judgement::Private);
    let cookie = response(200, &[("cache-control", "private"), ("set-cookie", "a=1")]);
    assert_eq!(judge(&HttpCodec::default(), &cookie, true, true), Judgement::Private);
}

#[test]
fn shared_responses() {
    for status in [200, 201, 204, 301, 400, 404, 412, 429, 500, 503] {
        let reuse = if status < 500 { Duration::MAX } else { Duration::ZERO };
        assert_eq!(decide(status, &[]), shared(reuse));
    }
    for (value, reuse) in [
        ("max-age=0", Duration::ZERO),
        ("max-age=00", Duration::ZERO),
        ("max-age", Duration::ZERO),
        ("no-cache", Duration::ZERO),
        ("max-age=10", SECOND * 10),
        ("public, max-age=\"10\"", SECOND * 10),
        ("x-no-store", Duration::MAX),
    ] {
        assert_eq!(decide(200, &[("cache-control", value)]), shared(reuse), "{value}");
    }
    let expires = ("expires", "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(decide(200, &[expires]), shared(Duration::ZERO));
    let both = [expires, ("cache-control", "max-age=5")];
    assert_eq!(decide(200, &both), shared(SECOND * 5));
    assert_eq!(decide(503, &[("cache-control", "max-age=5")]), shared(Duration::ZERO));
    let vary = [("vary", "accept"), ("vary", "cookie"), ("content-type", "text/plain")];
    assert_eq!(decide(200, &vary), shared(Duration::MAX));
}

#[test]
fn freshness_is_not_asked_for_where_nothing_is_reused() {
    let of = |fields: &[_]| judge(&HttpCodec::default(), &response(200, fields), false, false);
    for fields in [&[][..], &[("cache-control", "max-age=5")]] {
        assert_eq!(of(fields), shared(Duration::ZERO));
    }
}

#[test]
fn grpc_responses_are_shared_and_failed_ones_not_reused() {
    let grpc = ("content-type", "application/grpc");
    assert_eq!(decide(200, &[grpc]), shared(Duration::MAX));
    for (status, reusable) in [("0", true), ("5", false), ("14", false), ("x", false)] {
        let reuse = if reusable { Duration::MAX } else { Duration::ZERO };
        assert_eq!(decide(200, &[grpc, ("grpc-status", status)]), shared(reuse), "{status}");
    }
}

#[test]
fn headers_outside_the_key_are_found() {
    let fields = [("vary", "x-plan, accept, X-Other"), ("vary", "X-Plan")];
    let varies = vec![HeaderName::from_static("x-other"), HeaderName::from_static("x-plan")];
    assert_eq!(decide(200, &fields), Judgement::Shared { reuse: Duration::MAX, varies });
}

#[test]
fn what_inner_says_goes_before_the_policy() {
    let said = |share, status, fields: &[_]| {
        let mut response = response(status, fields);
        response.extensions_mut().insert(share);
        judge(&HttpCodec::default(), &response, false, true)
    };
    assert_eq!(said(Share::Never, 200, &[]), Judgement::Private);
    for fields in
        [("set-cookie", "a=1"), ("cache-control", "private"), ("cache-control", "no-store")]
    {
        assert_eq!(said(Share::Always, 200, &[fields]), shared(Duration::MAX), "{fields:?}");
    }
    assert_eq!(said(Share::Always, 200, &[("cache-control", "max-age=1")]), shared(SECOND));
    let long = [("cache-control", "max-age=1000")];
    assert_eq!(said(Share::For(SECOND), 200, &long), shared(SECOND));
    assert_eq!(said(Share::For(SECOND), 200, &[("cache-control", "no-cache")]), shared(SECOND));
    // What does not fit other requests by its form.
    for share in [Share::Always, Share::For(SECOND)] {
        for status in [101, 103, 206, 304] {
            assert_eq!(said(share, status, &[]), Judgement::Private);
        }
        assert_eq!(said(share, 200, &[("vary", "*")]), Judgement::Private);
        for coding in ["gzip, chunked", "gzip", "x-own"] {
            let coded = [("transfer-encoding", coding)];
            assert_eq!(said(share, 200, &coded), Judgement::Private, "{coding}");
        }
        assert!(matches!(
            said(share, 200, &[("transfer-encoding", "Chunked")]),
            Judgement::Shared { .. }
        ));
        assert!(
            matches!(said(share, 200, &[("vary", "x-plan")]), Judgement::Shared { varies, .. } if varies.len() == 1)
        );
        assert_eq!(said(share, 500, &[]), shared(Duration::ZERO));
        assert_eq!(said(share, 200, &[("grpc-status", "5")]), shared(Duration::ZERO));
    }
}

#[test]
fn a_policy_can_be_replaced() {
    let codec = HttpCodec::default().share_policy(|response: ResponseView<'_>| {
        match response.headers().contains_key(AUTHORIZATION) {
            true => Share::Always,
            false if response.status() == 429 => Share::Never,
            false => DefaultSharePolicy.share(response),
        }
    });
    let of = |status, fields: &[_]| judge(&codec, &response(status, fields), false, true);
    assert_eq!(of(429, &[]), Judgement::Private);
    assert_eq!(of(200, &[]), shared(Duration::MAX));
    assert_eq!(of(200, &[("set-cookie", "a=1")]), Judgement::Private);
    let mine = ("authorization", "x");
    assert_eq!(of(200, &[("set-cookie", "a=1"), mine]), shared(Duration::MAX));
    assert_eq!(of(206, &[mine]), Judgement::Private);
    assert!(!format!("{codec:?}").contains("authorization"));
}

#[test]
fn replay_drops_what_belongs_to_one_connection_or_request() {
    let mut given = map(&[
        ("connection", "close, X-Hop"),
        ("link", "<1>"),
        ("x-hop", "1"),
        ("x-first", "1"),
        ("keep-alive", "1"),
        ("proxy-connection", "1"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("link", "<2>"),
        ("x-request-id", "1"),
        ("x-ratelimit-remaining", "1"),
        ("ratelimit-reset", "1"),
        ("ratelimit", "1"),
        ("set-cookie", "sid=1"),
        ("date", "now"),
        ("location", "/x"),
        ("etag", "\"1\""),
        ("empty", ""),
        ("trailer", "grpc-status"),
        ("content-length", "3"),
        ("link", "<3>"),
    ]);
    let odd = HeaderValue::from_bytes(b"\xE9").unwrap();
    given.append("x-odd", odd.clone());
    for n in 0..200 {
        let name = HeaderName::from_bytes(format!("n-{n}").as_bytes()).unwrap();
        given.append(name, HeaderValue::from(n));
    }

    let kept = Replay::default().prepare(&given);
    let names: Vec<_> = kept.keys().map(HeaderName::as_str).take(9).collect();
    let expected = [
        "link",
        "x-first",
        "date",
        "location",
        "etag",
        "empty",
        "trailer",
        "content-length",
        "x-odd",
    ];
    assert_eq!(names, expected);
    assert_eq!(kept.keys_len(), 209);
    assert_eq!(kept.get_all("link").iter().collect::<Vec<_>>(), ["<1>", "<2>", "<3>"]);
    assert_eq!(kept["x-odd"], odd);

    let id = HeaderName::from_static("x-request-id");
    let left = HeaderName::from_static("x-ratelimit-remaining");
    let replay = Replay::default().keeping(&id).keeping(&left).dropping(&http::header::DATE);
    let kept = replay.prepare(&given);
    assert!(kept.contains_key(id) && kept.contains_key(left) && !kept.contains_key("date"));
}
