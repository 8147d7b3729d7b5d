//! What of a head is replayed (rows L5, M6, M7).

use http::{HeaderMap, HeaderName, HeaderValue, Version};
use tower::{Layer, ServiceBuilder, util::MapResponseLayer};
use tower_singleflight::PER_REQUEST;

use crate::{
    net,
    support::{Gate, Inner, Runs, ask, callers, crowd, get, layer, ms, nodes, sure, text, until},
};

fn answering(runs: &Runs, headers: &HeaderMap) -> Inner {
    let headers = headers.clone();
    sure(runs, ms(100), move |_, _| {
        let mut response = text("hello");
        response.headers_mut().extend(headers.clone());
        response
    })
}

fn fields(list: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(*name, HeaderValue::from_static(value));
    }
    map
}

#[tokio::test(start_paused = true)]
async fn l5_headers_of_one_request_stay_with_it() {
    let kept = [
        ("date", "Tue, 15 Nov 1994 08:12:31 GMT"),
        ("location", "/elsewhere"),
        ("etag", "\"x\""),
        ("link", "</style.css>; rel=preload"),
        ("content-type", "text/plain"),
    ];
    let mut headers = fields(&kept);
    let own = ["x-request-id", "x-ratelimit-remaining", "ratelimit-reset", "request-id"];
    for name in own {
        headers.insert(name, HeaderValue::from_static("7"));
    }
    let runs = Runs::default();
    let [here, there] = nodes().map(|node| node.layer(answering(&runs, &headers)));
    let answers = crowd(&[&here, &there], 3, get("/")).await;
    assert_eq!(runs.total(), 1);
    for answer in &answers {
        for (name, value) in kept {
            assert_eq!(answer.headers[name], value, "{name}");
        }
        for name in own {
            assert_eq!(answer.headers.contains_key(name), answer.is_owner(), "{name}");
        }
    }
    assert_eq!(answers.iter().filter(|answer| answer.is_shared()).count(), 5);
    assert!(PER_REQUEST.contains(&"x-request-id") && PER_REQUEST.contains(&"x-ratelimit-*"));
}

const HOPS: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te", "x-hop"];

fn hops() -> HeaderMap {
    fields(&[
        ("connection", "close, X-Hop"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "trailers"),
        ("x-hop", "1"),
        ("x-stays", "1"),
    ])
}

#[tokio::test(start_paused = true)]
async fn m6_hop_by_hop_headers_are_not_replayed() {
    let runs = Runs::default();
    let [here, there] = nodes().map(|node| node.layer(answering(&runs, &hops())));
    let answers = crowd(&[&here, &there], 3, get("/")).await;
    assert_eq!(runs.total(), 1);
    for answer in answers.iter().filter(|answer| answer.is_shared()) {
        assert_eq!(answer.headers["x-stays"], "1");
        for name in HOPS {
            assert!(!answer.headers.contains_key(name), "{name}");
        }
    }
}

#[tokio::test]
async fn m6_owner_on_http1_and_follower_on_http2() {
    let (runs, gate, node) = (Runs::default(), Gate::new(), layer());
    let inner = {
        let (runs, gate) = (runs.clone(), gate.clone());
        tower::service_fn(move |_: http::Request<hyper::body::Incoming>| {
            let (run, gate) = (runs.begin(), gate.clone());
            async move {
                gate.passed().await;
                run.finish();
                let mut response = text("hello");
                response.headers_mut().extend(hops());
                Ok::<_, std::convert::Infallible>(response)
            }
        })
    };
    let server = net::hyper(node.layer(inner)).await;
    let (mut one, mut two) = (net::http1(server).await, net::http2(server).await);
    let opened = async {
        until("the owner", || callers(&node) == 1).await;
        let follower = two.ask(get("/"));
        let opened = async {
            until("the follower", || callers(&node) == 2).await;
            gate.open();
        };
        tokio::join!(follower, opened).0
    };
    let (owner, follower) = tokio::join!(one.ask(get("/")), opened);
    assert_eq!((owner.text(), follower.text()), ("hello", "hello"));
    assert_eq!((owner.version, follower.version), (Version::HTTP_11, Version::HTTP_2));
    assert_eq!(follower.headers["x-stays"], "1");
    for name in HOPS {
        assert!(!follower.headers.contains_key(name), "{name}");
    }
    assert_eq!(runs.total(), 1);
    // The follower's connection lives on.
    assert_eq!(two.ask(get("/")).await.text(), "hello");
}

#[tokio::test(start_paused = true)]
async fn m7_headers_keep_their_order_and_bytes() {
    let mut headers = fields(&[("link", "<a>"), ("x-empty", ""), ("link", "<b>"), ("link", "<c>")]);
    headers.insert("x-latin", HeaderValue::from_bytes(b"caf\xe9").unwrap());
    for number in 0..200 {
        let name = HeaderName::try_from(format!("x-{number}")).unwrap();
        headers.append(name, HeaderValue::from(number));
    }
    let runs = Runs::default();
    let outer = MapResponseLayer::new(|mut response: http::Response<_>| {
        response.headers_mut().append("x-frame-options", HeaderValue::from_static("DENY"));
        response
    });
    let [here, there] = nodes().map(|node| {
        ServiceBuilder::new().layer(outer.clone()).layer(node).service(answering(&runs, &headers))
    });
    let mut answers = crowd(&[&here], 2, get("/")).await;
    let (first, second) = tokio::join!(ask(&here, get("/2")), ask(&there, get("/2")));
    answers.extend([first, second]);
    assert_eq!(runs.total(), 2);
    let expected: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .chain([("x-frame-options".to_owned(), b"DENY".to_vec())])
        .collect();
    assert_eq!(expected.len(), 206);
    for answer in &answers {
        assert_eq!(answer.fields(), expected, "{:?}", answer.role);
    }
    assert_eq!(answers.iter().filter(|answer| answer.is_shared()).count(), 2);
}
