use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::VARY};

use super::{share::PrivateReason, *};
use crate::frame::Head;

fn head(status: u16, headers: &[(&str, &str)]) -> Head {
    Head { status: StatusCode::from_u16(status).unwrap(), headers: map(headers) }
}

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

fn decide(status: u16, headers: &[(&str, &str)]) -> Share {
    share(head(status, headers).status, &head(status, headers).headers, |name| name != "x-plan")
}

#[test]
fn private_responses() {
    use PrivateReason::*;
    for (name, value, reason) in [
        ("set-cookie", "sid=1", SetCookie),
        ("cache-control", "max-age=1, No-Store", NoStore),
        ("cache-control", "PRIVATE", Private),
        ("cache-control", "private=\"x-user, x-other\"", Private),
        ("vary", "accept, *", VaryStar),
        ("vary", "not a name", VaryStar),
        ("vary", "accept, X-Plan", Vary),
    ] {
        assert_eq!(decide(200, &[(name, value)]), Share::Private(reason), "{name}: {value}");
        assert!(!reason.name().is_empty());
    }
    let lines = [("cache-control", "max-age=1"), ("cache-control", "no-store")];
    assert_eq!(decide(200, &lines), Share::Private(NoStore));
    for status in [100, 101, 103, 206, 304] {
        assert_eq!(decide(status, &[]), Share::Private(Status));
    }
}

#[test]
fn shared_responses() {
    for status in [200, 201, 204, 301, 400, 404, 412, 429, 500, 503] {
        assert_eq!(decide(status, &[]), Share::All { reusable: status < 500 });
    }
    for (value, reusable) in [
        ("max-age=0", false),
        ("max-age=00", false),
        ("max-age=-1", false),
        ("max-age", false),
        ("no-cache", false),
        ("max-age=10", true),
        ("public, max-age=\"10\"", true),
        ("x-no-store", true),
    ] {
        let got = decide(200, &[("cache-control", value)]);
        assert_eq!(got, Share::All { reusable }, "{value}");
    }
    let expires = ("expires", "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(decide(200, &[expires]), Share::All { reusable: false });
    let both = [expires, ("cache-control", "max-age=5")];
    assert_eq!(decide(200, &both), Share::All { reusable: true });
    let vary = [("vary", "accept"), ("vary", "cookie"), ("content-type", "text/plain")];
    assert_eq!(decide(200, &vary), Share::All { reusable: true });
}

#[test]
fn grpc_responses_are_shared_and_failed_ones_not_reused() {
    let grpc = ("content-type", "application/grpc");
    assert_eq!(decide(200, &[grpc]), Share::All { reusable: true });
    for (status, reusable) in [("0", true), ("5", false), ("14", false), ("x", false)] {
        let got = decide(200, &[grpc, ("grpc-status", status)]);
        assert_eq!(got, Share::All { reusable }, "{status}");
    }
}

#[test]
fn headers_outside_the_key_are_found() {
    let headers = map(&[("vary", "accept, x-plan"), ("vary", "X-Other")]);
    let Vary::Outside(names) = vary(&headers, |name| name == "accept") else {
        panic!("outside");
    };
    assert_eq!(names, ["x-plan", "x-other"]);
    assert_eq!(vary(&HeaderMap::new(), |_| false), Vary::Inside);
    assert!(!headers.is_empty() && headers.contains_key(VARY));
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
