use http::{
    HeaderName, HeaderValue, Request, Uri, Version,
    header::{ACCEPT_LANGUAGE, AUTHORIZATION, HOST, USER_AGENT},
};
use proptest::{collection::vec, prelude::*};

use super::*;

fn get(uri: &str, headers: &[(&str, &str)]) -> Request<()> {
    request("GET", uri, headers)
}

fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request<()> {
    let builder = Request::builder().method(method).uri(uri);
    headers.iter().fold(builder, |builder, (n, v)| builder.header(*n, *v)).body(()).unwrap()
}

fn key(request: &Request<()>) -> Key {
    HttpKey::new().extract(request).unwrap()
}

fn bypass(request: &Request<()>) -> Bypass {
    HttpKey::new().extract(request).unwrap_err()
}

#[test]
fn separators_join_no_parts() {
    let a = "https://a.test/";
    assert_ne!(key(&get(a, &[("a", "x:b=y")])), key(&get(a, &[("a", "x"), ("b", "y")])),);
    assert_ne!(key(&get("https://a.test/?q=1%3D2", &[])), key(&get("https://a.test/?q=1=2", &[])));
    assert_ne!(key(&get("https://a.test/p", &[])), key(&get("https://a.test/p?", &[])));
    for separator in ["\x1e", "\x1f", "\0", "|", ":"] {
        let whole = format!("a{separator}b");
        let parts = Key::builder().part("a").part(separator).part("b").build();
        assert_ne!(Key::from(whole.as_str()), parts);
        assert_ne!(Key::from(whole), Key::builder().part("a").part("b").build());
    }
    let post = |path: &str, body: &str| Key::builder().part("POST").part(path).part(body).build();
    assert_ne!(post("/items/a", "b|c"), post("/items/a|b", "c"));
}

#[test]
fn hosts_are_told_apart_and_their_forms_are_not() {
    let http1 = |host: &str| key(&get("/p", &[("host", host)]));
    assert_ne!(http1("a.test"), http1("b.test"));
    let mut http2 = get("https://a.test/p", &[]);
    *http2.version_mut() = Version::HTTP_2;
    for same in ["a.test", "A.TEST", "a.test:443", "a.test:80"] {
        assert_eq!(http1(same), key(&http2), "{same}");
    }
    let https = key(&get("https://A.test:443/p", &[("host", "a.test")]));
    assert_eq!(https, key(&get("https://a.test/p", &[])));
    assert_ne!(http1("a.test:8443"), key(&http2));
    let of_http2 = |uri: &str| {
        let mut request = get(uri, &[]);
        *request.version_mut() = Version::HTTP_2;
        key(&request)
    };
    assert_eq!(of_http2("http://a.test:80/p"), http1("a.test"));
    assert_ne!(of_http2("http://a.test:443/p"), of_http2("http://a.test/p"));
    assert_ne!(of_http2("https://a.test:80/p"), of_http2("https://a.test/p"));
    assert_ne!(of_http2("http://a.test:443/p"), of_http2("https://a.test:80/p"));
    assert_eq!(http1("[::1]:443"), http1("[::1]"));
    assert_ne!(key(&get("http://u:P@a.test/p", &[])), key(&get("http://u:p@a.test/p", &[])));
}

#[test]
fn an_unclear_authority_is_not_shared() {
    let unclear = [
        get("/p", &[]),
        get("/p", &[("host", "")]),
        get("/p", &[("host", "a.test"), ("host", "a.test")]),
        get("https://a.test/p", &[("host", "b.test")]),
    ];
    for request in unclear {
        assert_eq!(bypass(&request), Bypass::NoAuthority);
        assert!(HttpKey::new().authority("api").extract(&request).is_ok());
    }
    let fixed = HttpKey::new().authority("api");
    assert_eq!(
        fixed.extract(&get("/p", &[("host", "a.test")])),
        fixed.extract(&get("https://b.test/p", &[])),
    );
}

#[test]
fn path_and_query_are_taken_as_they_are() {
    for (one, other) in
        [("?a=1&b=2", "?b=2&a=1"), ("?x=1&x=2", "?x=2&x=1"), ("a%2Fb", "a/b"), ("%7Eu", "~u")]
    {
        let of = |rest| key(&get(&format!("https://a.test/{rest}"), &[]));
        assert_ne!(of(one), of(other), "{one}");
    }
}

#[test]
fn every_header_counts_but_noise() {
    let base = [("accept", "*/*"), ("x-plan", "a")];
    let with = |more: &[(&str, &str)]| key(&get("https://a.test/", &[&base, more].concat()));
    let alone = ["host", "upgrade", "transfer-encoding"];
    for noise in NOISE.iter().filter(|name| !alone.contains(name)) {
        assert_eq!(with(&[(&noise.replace('*', "any"), "1")]), with(&[]), "{noise}");
    }
    for counts in [
        "authorization",
        "cookie",
        "accept-encoding",
        "accept-language",
        "x-unknown",
        "cache-control",
        "proxy-authorization",
        "x-forwarded-user",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-server",
        "forwarded",
    ] {
        assert_ne!(with(&[(counts, "1")]), with(&[]), "{counts}");
        assert_ne!(with(&[(counts, "")]), with(&[]), "{counts}: empty is not absent");
        assert_ne!(with(&[(counts, "1"), (counts, "2")]), with(&[(counts, "1, 2")]), "{counts}");
        assert_ne!(with(&[(counts, "1"), (counts, "2")]), with(&[(counts, "2"), (counts, "1")]));
    }
}

#[test]
fn a_caller_cannot_hide_a_credential_behind_connection() {
    let of = |user| {
        key(&get("https://a.test/", &[("connection", "authorization"), ("authorization", user)]))
    };
    assert_ne!(of("Bearer A"), of("Bearer B"));
}

#[test]
fn header_order_counts_within_a_name_only() {
    let of = |headers: &[(&str, &str)]| key(&get("https://a.test/", headers));
    assert_eq!(
        of(&[("b", "1"), ("a", "1"), ("b", "2")]),
        of(&[("a", "1"), ("b", "1"), ("b", "2")]),
    );
    // More than fit on the stack, in two orders.
    let names: Vec<String> = (0..100).map(|n| format!("x-{n}")).collect();
    let mut many: Vec<_> = names.iter().map(|name| (name.as_str(), "v")).collect();
    let forward = of(&many);
    many.reverse();
    assert_eq!(forward, of(&many));
    many.pop();
    assert_ne!(forward, of(&many));
}

#[test]
fn some_requests_are_not_shared() {
    let a = "https://a.test/";
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "CONNECT", "X"] {
        assert_eq!(bypass(&request(method, a, &[])), Bypass::Method);
    }
    assert_ne!(key(&request("HEAD", a, &[])), key(&request("GET", a, &[])));
    for (name, value, reason) in [
        ("upgrade", "h2c", Bypass::Upgrade),
        ("connection", "keep-alive, Upgrade", Bypass::Upgrade),
        ("range", "bytes=0-9", Bypass::Range),
        ("if-none-match", "\"x\"", Bypass::Conditional),
        ("if-match", "*", Bypass::Conditional),
        ("if-modified-since", "x", Bypass::Conditional),
        ("if-unmodified-since", "x", Bypass::Conditional),
        ("if-range", "x", Bypass::Conditional),
        ("cache-control", "max-age=0 ,No-Store", Bypass::NoStore),
        ("transfer-encoding", "gzip, Chunked", Bypass::Body),
    ] {
        assert_eq!(bypass(&get(a, &[(name, value)])), reason, "{name}");
    }
    let plain = key(&get(a, &[]));
    assert_eq!(key(&get(a, &[("transfer-encoding", "Chunked")])), plain);
    let lines = [("cache-control", "no-cache"), ("cache-control", "no-store")];
    assert_eq!(bypass(&get(a, &lines)), Bypass::NoStore);
    assert!(HttpKey::new().extract(&get(a, &lines[..1])).is_ok());
}

#[test]
fn the_key_can_be_changed() {
    fn a(headers: &[(&str, &str)]) -> Request<()> {
        get("https://a.test/", headers)
    }
    let same = |key: &HttpKey, name: &HeaderName| {
        let name = name.as_str();
        let same = key.extract(&a(&[(name, "1")])) == key.extract(&a(&[(name, "2")]));
        assert_eq!(same, !covers(key, name));
        same
    };
    let less = HttpKey::new().ignore(ACCEPT_LANGUAGE).cover(USER_AGENT);
    assert!(same(&less, &ACCEPT_LANGUAGE) && !same(&less, &USER_AGENT));
    let only = HttpKey::new().only([AUTHORIZATION]).cover(USER_AGENT);
    assert!(same(&only, &ACCEPT_LANGUAGE));
    assert!(!same(&only, &AUTHORIZATION) && !same(&only, &USER_AGENT));
    assert!(covers(&HttpKey::new(), "host") && !covers(&HttpKey::new().authority("x"), "host"));

    let live = HttpKey::new()
        .bypass_if(|request| request.uri().path() == "/live")
        .bypass_if(|request| request.headers().contains_key("x-live"));
    assert_eq!(live.extract(&get("http://a.test/live", &[])), Err(Bypass::Predicate));
    assert_eq!(live.extract(&a(&[("x-live", "1")])), Err(Bypass::Predicate));
    assert!(live.extract(&a(&[])).is_ok());
}

fn covers(key: &HttpKey, name: &str) -> bool {
    let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
    KeyExtractor::<Request<()>>::covers_header(key, &name)
}

#[test]
fn the_original_uri_is_used_when_known() {
    let key = HttpKey::new().original_uri(|extensions| extensions.get::<Uri>());
    let nested = |original: &str| {
        let mut request = get("/f", &[("host", "a.test")]);
        request.extensions_mut().insert(original.parse::<Uri>().unwrap());
        key.extract(&request).unwrap()
    };
    assert_ne!(nested("/c1/f"), nested("/c2/f"));
    assert_eq!(nested("/f"), key.extract(&get("/f", &[("host", "a.test")])).unwrap());
}

#[test]
fn nothing_of_a_key_is_printed() {
    let key = HttpKey::new().bypass_if(|_| false).original_uri(|_| None);
    let request = get("https://a.test/hidden", &[("authorization", "hidden")]);
    let all = format!(
        "{key:?} {:?} {:?} {:?} {:?} {:?}",
        key.extract(&request),
        Key::builder().part("hidden"),
        RequestView::new(&request),
        Digester::new("service", Some(b"hidden")),
        key_fn(|_: &()| Some("hidden")),
    );
    assert!(!all.contains("hidden") && !all.contains("104"), "{all}");
    assert!(all.contains("bypass_if: [..]"), "{all}");
}

#[test]
fn digests_depend_on_namespace_secret_and_key() {
    let digest = |namespace, secret: Option<&[u8]>, key: &str| {
        Digester::new(namespace, secret).digest(&Key::from(key))
    };
    let all = [
        digest("a", None, "b"),
        digest("ab", None, ""),
        digest("", None, "ab"),
        digest("a", Some(b""), "b"),
        digest("a", Some(b"s"), "b"),
        digest("a", None, "\u{e9}"),
        digest("a", None, "e\u{301}"),
        Digester::new("a", None).of_format(2).digest(&Key::from("b")),
    ];
    for (place, one) in all.iter().enumerate() {
        assert!(!all[..place].contains(one), "{place}");
    }
    assert_eq!(all[4], digest("a", Some(b"s"), "b"));
}

#[test]
fn keys_of_any_kind_are_taken() {
    let digester = Digester::new("service", None);
    let every: Vec<u8> = (0..=255).collect();
    let mega = vec![b'x'; 1 << 20];
    for bytes in [&b""[..], b"\r\n", b"*", "🦀".as_bytes(), &every, &mega] {
        let digest = digester.digest(&Key::from(bytes)).to_string();
        assert!(digest.len() == 64 && digest.is_ascii());
    }
}

fn build(parts: &[Vec<u8>]) -> Key {
    parts.iter().fold(Key::builder(), |key, part| key.part(part)).build()
}

fn parts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    // Few kinds of bytes and lengths about one length byte, to find clashes.
    vec(prop_oneof![vec(0_u8..3, 0..4), vec(any::<u8>(), 120..140)], 0..5)
}

proptest! {
    #[test]
    fn equal_keys_have_equal_parts(a in parts(), b in parts()) {
        prop_assert_eq!(build(&a) == build(&b), a == b);
    }

    #[test]
    fn no_other_cut_gives_the_same_key(parts in parts(), at in any::<prop::sample::Index>()) {
        let whole = parts.concat();
        let (left, right) = whole.split_at(at.index(whole.len() + 1));
        let cut = [left.to_vec(), right.to_vec()];
        prop_assert_eq!(build(&parts) == build(&cut), parts == cut);
    }

    #[test]
    fn headers_of_any_bytes_are_told_apart(
        a in vec(("[a-c]", vec(any::<u8>(), 0..3)), 0..4),
        b in vec(("[a-c]", vec(any::<u8>(), 0..3)), 0..4),
    ) {
        let request = |fields: &[(String, Vec<u8>)]| {
            let mut request = get("https://a.test/", &[]);
            for (name, value) in fields {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                if let Ok(value) = HeaderValue::from_bytes(value) {
                    request.headers_mut().append(name, value);
                }
            }
            request
        };
        let (a, b) = (request(&a), request(&b));
        prop_assert_eq!(key(&a) == key(&b), a.headers() == b.headers());
    }
}

#[test]
fn vary_host_is_in_the_key() {
    assert!(covers(&HttpKey::default(), HOST.as_str()));
}
