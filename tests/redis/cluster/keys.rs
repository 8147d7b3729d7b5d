//! Keys that users make, through the whole layer, on a cluster.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{RedisStore, SingleFlightLayer, key_fn};

use crate::support::cluster::Cluster;

/// Each is a flight of its own, which two processes share, wherever it lies.
#[tokio::test]
async fn g5_braces_of_users_are_keys_like_others() {
    let cluster = Cluster::start();
    let calls = Arc::new(AtomicUsize::new(0));
    let inner = {
        let calls = Arc::clone(&calls);
        service_fn(move |request: Request<Full<Bytes>>| {
            let call = calls.fetch_add(1, SeqCst);
            async move {
                tokio::time::sleep(Duration::from_millis(150)).await;
                let key = request.headers()["key"].to_str().expect("ASCII").to_owned();
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(format!("{call} {key}")))))
            }
        })
    };
    let mut processes = Vec::new();
    for _ in 0..2 {
        let key = key_fn(|request: &Request<Full<Bytes>>| {
            Some(String::from_utf8(unescaped(request.headers()["key"].as_bytes())).expect("UTF-8"))
        });
        let store = RedisStore::connect(&cluster.url("")).await.unwrap();
        let layer = SingleFlightLayer::new(key).namespace("g5").store(store);
        processes.push(layer.layer(inner.clone()));
    }
    let long = "{".repeat(1024);
    let keys = ["a{b}c", "{}", "}{", "{{x}}", "a{}b{c}", "{", "", &long, "{é}"];
    let mut answers = Vec::new();
    // Two at a time: each process connects to three servers.
    for keys in keys.chunks(2) {
        let asks = keys.iter().flat_map(|key| {
            processes.iter().map(async |service| {
                let request = Request::get("http://a.test/").header("key", escaped(key.as_bytes()));
                let request = request.body(Full::default()).unwrap();
                let answer = service.clone().oneshot(request).await.unwrap();
                answer.into_body().collect().await.unwrap().to_bytes()
            })
        });
        answers.extend(join_all(asks).await);
    }
    for (key, both) in keys.iter().zip(answers.chunks(2)) {
        assert_eq!(both[0], both[1], "one run for {key}");
        assert!(both[0].ends_with(&escaped(key.as_bytes())), "{key} has its own");
    }
    assert_eq!(calls.load(SeqCst), keys.len());
}

fn escaped(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

fn unescaped(digits: &[u8]) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}
