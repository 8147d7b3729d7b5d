//! What is told of a key is what the key is made of (row K1).

use http::{
    HeaderMap, HeaderName, HeaderValue, Request,
    header::{AUTHORIZATION, COOKIE},
};
use proptest::{collection::vec, prelude::*};

use super::{http_key::is_plain, *};

fn request(method: &str, uri: &str, fields: &[(String, Vec<u8>)], body: &str) -> Request<String> {
    let mut request = Request::new(body.to_owned());
    *request.method_mut() = method.parse().unwrap();
    *request.uri_mut() = uri.parse().unwrap();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().append(name, HeaderValue::from_bytes(value).unwrap());
    }
    request
}

fn fields(fields: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
    fields.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect()
}

#[test]
fn every_part_is_told_of() {
    let key = HttpKey::new()
        .sorted_query()
        .tenant(|_| Some("t"))
        .identity(AUTHORIZATION)
        .identity_fn(|_| None::<String>);
    let headers = [
        ("host", "a.test"),
        ("authorization", "secret"),
        ("x-b", "1"),
        ("x-b", "2"),
        ("user-agent", "secret"),
        ("traceparent", "secret"),
    ];
    let explained = key.explain(&request("GET", "/p?b=1&a=2", &fields(&headers), ""));
    assert_eq!(
        explained.to_string(),
        "method: of the request\n\
         authority: host header\n\
         path: of the URI\n\
         query: sorted by name\n\
         tenant: given by a function\n\
         identity: given by a function (there is none)\n\
         authorization: header, says who asks\n\
         x-b: header\n\
         x-b: header\n\
         left out: user-agent, traceparent\n",
    );
    assert_eq!((explained.bypass(), explained.parts().len()), (None, 9));
    let fixed = HttpKey::new().authority("x").original_uri(|extensions| extensions.get());
    let mut nested = request("GET", "/f", &[], "");
    nested.extensions_mut().insert("/c1/f?q".parse::<http::Uri>().unwrap());
    let explained = fixed.explain(&nested);
    let sources: Vec<_> = explained.parts().iter().map(KeyPart::source).collect();
    use PartSource::*;
    assert_eq!(sources, [&Method, &FixedAuthority, &OriginalPath, &OriginalQuery]);
}

#[test]
fn a_bypass_is_explained() {
    let key = HttpKey::new().bypass_if(|request| request.headers().contains_key("x-alone"));
    let tenant = key.clone().tenant(|_| None::<String>);
    let uri = "https://a.test/";
    for (key, request, why) in [
        (&key, request("POST", uri, &[], ""), Bypass::Method),
        (&key, request("GET", uri, &[], "body"), Bypass::Body),
        (&key, request("GET", uri, &fields(&[("x-alone", "1")]), ""), Bypass::Predicate),
        (&key, request("GET", uri, &fields(&[("range", "bytes=0-1")]), ""), Bypass::Range),
        (&key, request("GET", "/", &[], ""), Bypass::NoAuthority),
        (&tenant, request("GET", uri, &[], ""), Bypass::NoTenant),
    ] {
        let explained = key.explain(&request);
        assert_eq!(explained.bypass(), Some(why));
        assert_eq!(explained.to_string(), format!("not shared: {why}\n"));
        assert!(explained.parts().is_empty());
    }
}

#[test]
fn body_keys_are_explained_as_far_as_the_head_goes() {
    let json = fields(&[("content-type", "application/json"), ("x-a", "1")]);
    let uri = "https://a.test/";
    let key = HttpKey::new().only([COOKIE]).json_body(|_: ReadBody<String>| String::new());
    let explained = key.explain(&request("POST", uri, &json, "{}"));
    let names: Vec<_> = explained.parts().iter().map(KeyPart::name).collect();
    assert_eq!(names, ["method", "authority", "path", "query", "content-type", "body"]);
    assert_eq!(explained.parts()[5].source(), &PartSource::JsonBody);
    assert_eq!(explained.left_out(), ["x-a"]);
    for (request, why) in [
        (request("POST", uri, &[], "text"), Some(Bypass::Body)),
        (request("GET", uri, &[], "text"), Some(Bypass::Body)),
        (request("GET", uri, &[], ""), None),
        (request("PUT", uri, &json, "{}"), Some(Bypass::Method)),
    ] {
        assert_eq!(key.explain(&request).bypass(), why);
        // That a plain request has a body is for the service to see.
        let found = key.extract(&request).err();
        assert_eq!(found, why.filter(|_| !is_plain(request.method())));
    }
    let small = key.body_limit(1);
    let large = request("POST", uri, &json, "{}");
    assert_eq!(small.explain(&large).bypass(), Some(Bypass::BodyTooLarge));
    let raw = HttpKey::new().raw_body(|_: ReadBody<String>| String::new());
    let explained = raw.explain(&request("POST", uri, &[], "x"));
    assert_eq!(explained.parts().last().unwrap().source(), &PartSource::RawBody);
}

/// What a request is made of, to be compared part by part.
type Asked = (&'static str, String, Option<String>, Vec<(String, Vec<u8>)>);

fn asked() -> impl Strategy<Value = Asked> {
    let method = prop_oneof![Just("GET"), Just("HEAD")];
    let path = "[ab/%:|=&2F]{0,4}".prop_map(|path| path.replace('%', "%2F"));
    let query = proptest::option::of("[ab=&2F%]{0,5}");
    // `user-agent` is noise; `a` and `b` are not. Repeated, empty, absent.
    let name = prop_oneof![Just("a"), Just("b"), Just("user-agent"), Just("authorization")];
    let value = vec(prop_oneof![Just(b':'), Just(b'='), Just(b'b'), Just(0x80_u8)], 0..3);
    let headers = vec((name.prop_map(str::to_owned), value), 0..4);
    (method, path, query, headers)
}

fn make((method, path, query, headers): &Asked) -> Request<String> {
    let query = query.as_ref().map_or(String::new(), |query| format!("?{query}"));
    request(method, &format!("https://a.test/{path}{query}"), headers, "")
}

/// The headers of a request that are in the default key.
fn counted(request: &Request<String>) -> HeaderMap {
    let mut headers = request.headers().clone();
    headers.remove("user-agent");
    headers
}

proptest! {
    #[test]
    fn k1_equal_keys_mean_equal_parts(one in asked(), other in asked(), like in any::<bool>()) {
        // Half of them differ in little.
        let other = if like { (one.0, one.1.clone(), other.2, other.3) } else { other };
        let (a, b) = (make(&one), make(&other));
        let parts = |request: &Request<String>| {
            let uri = request.uri();
            let query = uri.query().map(str::to_owned);
            (request.method().clone(), uri.path().to_owned(), query, counted(request))
        };
        let raw = HttpKey::new().identity(AUTHORIZATION);
        prop_assert_eq!(raw.extract(&a) == raw.extract(&b), parts(&a) == parts(&b));
        let sorted = raw.sorted_query();
        let sorted_parts = |request: &Request<String>| {
            let (method, path, query, headers) = parts(request);
            (method, path, query.map(|query| super::query::sorted(&query).into_owned()), headers)
        };
        let same = sorted_parts(&a) == sorted_parts(&b);
        prop_assert_eq!(sorted.extract(&a) == sorted.extract(&b), same);
    }

    #[test]
    fn what_is_told_of_a_key_is_true(one in asked(), name in "[a-c]|user-agent", value in "[xy]?") {
        let key = HttpKey::new();
        let before = make(&one);
        let mut after = make(&one);
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        after.headers_mut().append(name.clone(), value.parse().unwrap());
        let told = key.explain(&after);
        let inside = told.parts().iter().any(|part| part.name() == name.as_str());
        prop_assert_eq!(inside, key.extract(&before) != key.extract(&after));
        prop_assert_eq!(inside, !told.left_out().contains(&name));
    }
}
