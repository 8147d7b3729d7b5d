use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use proptest::{collection::vec, prelude::*};
use tower::BoxError;

use super::{GrpcKey, message::is_one_message};
use crate::key::{Bypass, HttpKey, Key, KeyExtractor, ReadBody};

type Boxed = UnsyncBoxBody<Bytes, BoxError>;
type Grpc = GrpcKey<fn(ReadBody<Boxed>) -> Boxed>;

fn boxed<B>(body: B) -> Boxed
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    UnsyncBoxBody::new(body.map_err(Into::into))
}

fn grpc() -> Grpc {
    GrpcKey::new(boxed as fn(ReadBody<Boxed>) -> Boxed).methods(["/a.B/Get", "a.B/List"])
}

fn message(flag: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&[flag][..], &length, content].concat()
}

fn call(path: &str, metadata: &[(&str, &str)], body: impl Into<Bytes>) -> Request<Boxed> {
    let mut request = Request::post(format!("http://a.test{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(boxed(Full::new(body.into())))
        .unwrap();
    for (name, value) in metadata {
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

fn get(metadata: &[(&str, &str)]) -> Request<Boxed> {
    call("/a.B/Get", metadata, message(0, b"question"))
}

/// The key as the layer finds it.
fn find(key: &Grpc, request: Request<Boxed>) -> Result<Key, Bypass> {
    if key.reads(&request) {
        assert_eq!(key.extract(&request), Err(Bypass::Body));
        return key.read(request).now_or_never().expect("all is there").1;
    }
    key.extract(&request)
}

#[test]
fn n4_metadata_counts_but_that_of_one_call() {
    let base = find(&grpc(), get(&[])).unwrap();
    for noise in [
        ("grpc-timeout", "10S"),
        ("grpc-previous-rpc-attempts", "1"),
        ("user-agent", "grpc-go/1.60.1"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("grpc-trace-bin", "AAAA"),
        ("te", "trailers, deflate"),
        ("content-length", "13"),
    ] {
        assert_eq!(find(&grpc(), get(&[noise])).unwrap(), base, "{noise:?}");
    }
    let others = [
        ("authorization", "Bearer A"),
        ("authorization", "Bearer B"),
        ("x-unknown", "1"),
        ("x-unknown-bin", "AAAA"),
        ("grpc-accept-encoding", "gzip"),
        ("grpc-encoding", "gzip"),
        ("grpc-internal", ""),
        ("content-type", "application/grpc+proto"),
    ];
    let keys: Vec<_> = others.iter().map(|other| find(&grpc(), get(&[*other])).unwrap()).collect();
    for place in 0..keys.len() {
        let others = &others[place];
        assert!(keys[place] != base && !keys[..place].contains(&keys[place]), "{others:?}");
    }
    let changed =
        grpc().ignore(http::HeaderName::from_static("x-unknown")).cover(http::header::USER_AGENT);
    assert_eq!(find(&changed, get(&[("x-unknown", "1")])), find(&changed, get(&[])));
    assert_ne!(find(&changed, get(&[("user-agent", "1")])), find(&changed, get(&[])));
}

#[test]
fn methods_messages_and_authorities_count() {
    let of = |path: &str, flag, content: &[u8]| {
        find(&grpc(), call(path, &[], message(flag, content))).unwrap()
    };
    let all = [
        of("/a.B/Get", 0, b"question"),
        of("/a.B/List", 0, b"question"),
        of("/a.B/Get", 1, b"question"),
        of("/a.B/Get", 0, b"Question"),
        of("/a.B/Get", 0, b""),
    ];
    for place in 0..all.len() {
        assert!(!all[..place].contains(&all[place]), "{place}");
    }
    let elsewhere = || {
        let mut request = get(&[]);
        *request.uri_mut() = "http://b.test/a.B/Get".parse().unwrap();
        request
    };
    assert_ne!(find(&grpc(), elsewhere()), find(&grpc(), get(&[])));
    let fixed = grpc().authority("answers");
    assert_eq!(find(&fixed, elsewhere()), find(&fixed, get(&[])));
}

#[test]
fn n8_methods_that_are_not_named_are_not_read() {
    for path in ["/a.B/Chat", "/a.B/get", "/a.B", "/", "/a.B/Get/", "/x/a.B/Get"] {
        let request = call(path, &[], message(0, b"question"));
        assert!(!grpc().reads(&request), "{path}");
        assert_eq!(grpc().extract(&request), Err(Bypass::Method), "{path}");
    }
}

#[test]
fn only_grpc_itself_is_read() {
    for kind in [
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/grpc-web-text",
        "application/grpcx",
        "application/json",
        "",
    ] {
        assert_eq!(find(&grpc(), get(&[("content-type", kind)])), Err(Bypass::Method), "{kind}");
    }
    for kind in ["application/grpc+json", "Application/gRPC", "application/grpc; x=1"] {
        assert!(find(&grpc(), get(&[("content-type", kind)])).is_ok(), "{kind}");
    }
    let mut twice = get(&[]);
    twice.headers_mut().append("content-type", HeaderValue::from_static("application/grpc"));
    assert_eq!(find(&grpc(), twice), Err(Bypass::Method));
    let mut other = get(&[]);
    *other.method_mut() = Method::GET;
    assert_eq!(find(&grpc(), other), Err(Bypass::Method));
}

#[test]
fn what_is_not_one_message_runs_alone() {
    let one = message(0, b"question");
    for body in [
        vec![],
        one[..4].to_vec(),
        one[..9].to_vec(),
        [&one[..], b"x"].concat(),
        [&one[..], &one].concat(),
        message(2, b"question"),
        message(0x80, b"question"),
        [&[0, 255, 255, 255, 255][..], b"question"].concat(),
    ] {
        assert_eq!(find(&grpc(), call("/a.B/Get", &[], body)), Err(Bypass::Body));
    }
}

#[test]
fn large_messages_and_predicates() {
    let limited = grpc().message_limit(8);
    assert!(find(&limited, get(&[])).is_ok());
    let large = call("/a.B/Get", &[], message(0, b"question?"));
    assert_eq!(find(&limited, large), Err(Bypass::BodyTooLarge));
    let alone = grpc().bypass_if(|call| call.headers().contains_key("x-alone"));
    assert_eq!(find(&alone, get(&[("x-alone", "1")])), Err(Bypass::Predicate));
    assert!(find(&alone, get(&[])).is_ok());
    let mut nowhere = get(&[]);
    *nowhere.uri_mut() = "/a.B/Get".parse().unwrap();
    assert_eq!(find(&grpc(), nowhere), Err(Bypass::NoAuthority));
}

#[test]
fn request_trailers_count() {
    let of = |value| {
        let trailers =
            HeaderMap::from_iter([("x-t".parse().unwrap(), HeaderValue::from_static(value))]);
        let body = Full::new(Bytes::from(message(0, b"question")));
        let body = body.with_trailers(async move { Some(Ok(trailers)) }.boxed());
        find(&grpc(), get(&[]).map(|_| boxed(body))).unwrap()
    };
    assert_eq!(of("1"), of("1"));
    assert_ne!(of("1"), of("2"));
}

#[test]
fn a_call_is_never_taken_for_a_plain_request() {
    let http = HttpKey::new().raw_body(boxed);
    let plain = http.read(get(&[])).now_or_never().unwrap().1;
    assert_ne!(find(&grpc(), get(&[])), plain);
}

#[test]
fn debug_shows_methods_and_no_call() {
    let shown =
        format!("{:?} {:?}", grpc().bypass_if(|_| false), find(&grpc(), get(&[("x", "hidden")])));
    assert!(shown.contains("\"/a.B/List\"") && !shown.contains("hidden"), "{shown}");
}

proptest! {
    #[test]
    fn framing_is_exact(content in vec(any::<u8>(), 0..40), cut in any::<prop::sample::Index>()) {
        let whole = message(1, &content);
        prop_assert!(is_one_message(&whole));
        prop_assert!(!is_one_message(&whole[..cut.index(whole.len())]));
    }

    #[test]
    fn no_bytes_panic(body in vec(any::<u8>(), 0..12)) {
        let _ = is_one_message(&body);
    }
}

#[cfg(feature = "grpc-descriptors")]
mod descriptors {
    use prost::Message;
    use prost_types::{
        FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
    };

    use super::*;
    use crate::key::DescriptorErrorKind;

    fn method(name: &str, client: bool, server: bool) -> MethodDescriptorProto {
        MethodDescriptorProto {
            name: Some(name.into()),
            client_streaming: Some(client),
            server_streaming: Some(server),
            ..Default::default()
        }
    }

    fn set() -> Vec<u8> {
        let file = |package: Option<&str>, service: &str| FileDescriptorProto {
            package: package.map(Into::into),
            service: vec![ServiceDescriptorProto {
                name: Some(service.into()),
                method: vec![
                    method("Get", false, false),
                    method("List", false, true),
                    method("Collect", true, false),
                    method("Chat", true, true),
                ],
                ..Default::default()
            }],
            ..Default::default()
        };
        let set = FileDescriptorSet { file: vec![file(Some("a.b"), "C"), file(None, "D")] };
        set.encode_to_vec()
    }

    #[test]
    fn methods_are_looked_up() {
        let all = ["/a.b.C/Get", "a.b.C/List", "/D/Get"];
        let key =
            GrpcKey::new(boxed as fn(ReadBody<Boxed>) -> Boxed).methods_in(&set(), all).unwrap();
        for path in ["/a.b.C/Get", "/a.b.C/List", "/D/Get"] {
            assert!(find(&key, call(path, &[], message(0, b""))).is_ok(), "{path}");
        }
        for (path, kind) in [
            ("/a.b.C/Collect", DescriptorErrorKind::ClientStreaming),
            ("/a.b.C/Chat", DescriptorErrorKind::ClientStreaming),
            ("/a.b.C/get", DescriptorErrorKind::Unknown),
            ("/a.C/Get", DescriptorErrorKind::Unknown),
            ("/C/Get", DescriptorErrorKind::Unknown),
            ("/a.b.C", DescriptorErrorKind::Unknown),
            ("", DescriptorErrorKind::Unknown),
        ] {
            let error = grpc().methods_in(&set(), [path]).unwrap_err();
            assert_eq!((error.kind(), error.method()), (kind, path));
            assert!(
                error.to_string().contains(path) && std::error::Error::source(&error).is_none()
            );
        }
    }

    #[test]
    fn what_is_no_set_is_refused() {
        let error = grpc().methods_in(b"\xff\xff", ["/a.b.C/Get"]).unwrap_err();
        assert_eq!(error.kind(), DescriptorErrorKind::Unreadable);
        assert!(std::error::Error::source(&error).is_some() && !error.to_string().is_empty());
    }

    proptest! {
        #[test]
        fn no_set_panics(set in vec(any::<u8>(), 0..60)) {
            let _ = grpc().methods_in(&set, ["/a.b.C/Get"]);
        }
    }
}
