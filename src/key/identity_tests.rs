//! Who asks, for whom, and in what order the query says it (rows K1, K6).

use http::{
    HeaderName, Request,
    header::{AUTHORIZATION, COOKIE, USER_AGENT},
};

use super::*;

fn get(uri: &str, headers: &[(&str, &str)]) -> Request<()> {
    let builder = Request::get(uri);
    headers.iter().fold(builder, |builder, (n, v)| builder.header(*n, *v)).body(()).unwrap()
}

fn asks(headers: &[(&str, &str)]) -> Request<()> {
    get("https://a.test/", headers)
}

#[derive(Clone)]
struct User(&'static str);

fn with_user(user: Option<&'static str>) -> Request<()> {
    let mut request = asks(&[]);
    request.extensions_mut().extend(
        user.map(User)
            .map(|user| {
                let mut extensions = http::Extensions::new();
                extensions.insert(user);
                extensions
            })
            .unwrap_or_default(),
    );
    request
}

#[test]
fn an_identity_is_in_the_key_whatever_is_ignored() {
    let all = [
        HttpKey::new().identity(USER_AGENT),
        HttpKey::new().identity(USER_AGENT).ignore(USER_AGENT),
        HttpKey::new().only([COOKIE]).identity(USER_AGENT),
        HttpKey::new().identity(USER_AGENT).only([]),
    ];
    for key in all {
        let of = |headers: &[_]| key.extract(&asks(headers)).unwrap();
        assert_ne!(of(&[("user-agent", "a")]), of(&[("user-agent", "b")]));
        assert_ne!(of(&[("user-agent", "")]), of(&[]));
        let covers = KeyExtractor::<Request<()>>::covers_header(&key, &USER_AGENT);
        assert!(covers);
    }
}

#[test]
fn who_carries_an_identity_is_identified() {
    let key = HttpKey::new().identity(AUTHORIZATION).identity(COOKIE);
    let is = |headers: &[_]| key.is_identified(&asks(headers));
    assert!(is(&[("authorization", "a")]) && is(&[("cookie", "a")]));
    assert!(is(&[("cookie", ""), ("cookie", "a")]));
    assert!(!is(&[]) && !is(&[("authorization", "")]) && !is(&[("x-user", "a")]));
    assert!(!HttpKey::new().is_identified(&asks(&[("authorization", "a")])));
}

#[test]
fn a_function_says_who_asks() {
    let key =
        HttpKey::new().only([]).identity_fn(|request| Some(request.extensions().get::<User>()?.0));
    let users = [None, Some(""), Some("a"), Some("b"), Some("=a")];
    for (place, one) in users.iter().enumerate() {
        let request = with_user(*one);
        assert_eq!(key.is_identified(&request), one.is_some_and(|user| !user.is_empty()));
        for other in &users[..place] {
            assert_ne!(key.extract(&request), key.extract(&with_user(*other)), "{one:?} {other:?}");
        }
        assert_eq!(key.extract(&request), key.extract(&with_user(*one)));
    }
}

#[test]
fn a_tenant_is_in_the_key_and_nobodys_request_runs_alone() {
    let key = HttpKey::new().tenant(|request| Some(request.extensions().get::<User>()?.0));
    let of = |user| key.extract(&with_user(user));
    assert_eq!(of(None), Err(Bypass::NoTenant));
    assert_ne!(of(Some("a")), of(Some("b")));
    assert_ne!(of(Some("a")), of(Some("")));
    assert!(!key.is_identified(&with_user(Some("a"))), "a tenant is not a user");
    // Two functions do not run into each other, nor into headers.
    let two = |a: &'static str, b: &'static str| {
        let key = HttpKey::new().tenant(move |_| Some(a)).tenant(move |_| Some(b));
        key.extract(&asks(&[])).unwrap()
    };
    assert_ne!(two("ab", "c"), two("a", "bc"));
    let tenant = HttpKey::new().tenant(|_| Some("v")).extract(&asks(&[("n", "w")]));
    let identity = HttpKey::new().identity_fn(|_| Some("v")).extract(&asks(&[("n", "w")]));
    let plain = HttpKey::new().extract(&asks(&[("n", "w")]));
    assert!(tenant != identity && tenant != plain && identity != plain);
}

#[test]
fn k6_a_query_is_sorted_only_where_it_was_asked_for() {
    let sorted = HttpKey::new().sorted_query();
    let raw = HttpKey::new();
    let same = |key: &HttpKey, [one, other]: [&str; 2]| {
        let of = |rest| key.extract(&get(&format!("https://a.test/{rest}"), &[])).unwrap();
        of(one) == of(other)
    };
    let order = ["?a=1&b=2", "?b=2&a=1"];
    assert!(same(&sorted, order) && !same(&raw, order));
    for pair in [
        ["?x=1&x=2", "?x=2&x=1"],
        ["?x=1&%78=2", "?%78=2&x=1"],
        ["a%2Fb", "a/b"],
        ["?a=%2F", "?a=/"],
        ["%7Eu", "~u"],
        ["?a=%7E", "?a=~"],
        ["", "?"],
        ["?a", "?a="],
        ["?a=1%3D2", "?a=1=2"],
        ["?a=1%26b=2", "?a=1&b=2"],
        ["?a=1&", "?a=1"],
        ["?a+b=1", "?a%20b=1"],
    ] {
        assert!(!same(&sorted, pair) && !same(&raw, pair), "{pair:?}");
    }
}

#[test]
fn functions_and_names_tell_no_values() {
    let key = HttpKey::new()
        .identity(HeaderName::from_static("x-user"))
        .identity_fn(|_| Some("hidden"))
        .tenant(|_| Some("hidden"))
        .sorted_query();
    let debug = format!("{key:?}");
    assert!(!debug.contains("hidden"), "{debug}");
    for part in
        ["tenant: [..]", "identity: [\"x-user\"]", "identity_fn: [..]", "sorted_query: true"]
    {
        assert!(debug.contains(part), "{part}: {debug}");
    }
    let request = asks(&[("x-user", "hidden"), ("user-agent", "hidden")]);
    let request = request.map(|()| String::new());
    let explained = key.explain(&request);
    assert!(!format!("{explained} {explained:?}").contains("hidden"));
}
