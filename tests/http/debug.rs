//! `Debug` shows nothing of a request, an answer or a key.

use std::{convert::Infallible, fmt::Debug};

use http::{HeaderValue, Response};
use tower::{Layer, Service, ServiceExt};
use tower_singleflight::{
    Failure, FlightRole, HttpKey, Key, KeyExtractor, MemoryStore, RequestView, ResponseBody,
    SingleFlightLayer, key_fn,
};

use crate::support::{Full, Inner, Req, Runs, get, inner, layer, ms, text, with};

const SECRET: &str = "hunter2";

fn clean(what: &str, value: &dyn Debug) {
    let shown = [format!("{value:?}"), format!("{value:#?}")];
    for shown in shown {
        assert!(!shown.is_empty() && !shown.contains(SECRET), "{what}: {shown}");
        // Nor as a list of bytes.
        let bytes = format!("{:?}", SECRET.as_bytes());
        assert!(!shown.contains(bytes.trim_matches(['[', ']'])), "{what}: {shown}");
    }
}

/// A request with the secret wherever it can be.
fn secret() -> Req {
    let mut request = with(get("/hunter2?q=hunter2"), "authorization", "Bearer hunter2");
    request.headers_mut().insert("hunter2", HeaderValue::from_static("hunter2"));
    request.extensions_mut().insert(SECRET);
    request
}

fn answer() -> Response<Full> {
    let mut response = text(SECRET);
    response.headers_mut().insert("x-secret", HeaderValue::from_static(SECRET));
    response.extensions_mut().insert(SECRET);
    response
}

#[derive(Clone)]
struct Quiet;

impl Debug for Quiet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Quiet")
    }
}

impl Service<Req> for Quiet {
    type Response = Response<Full>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Full>, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Req) -> Self::Future {
        std::future::ready(Ok(answer()))
    }
}

#[tokio::test(start_paused = true)]
async fn debug_tells_no_secrets() {
    let store = MemoryStore::new();
    let node = SingleFlightLayer::new(HttpKey::new().bypass_if(|_| false))
        .store(store.clone())
        .secret(SECRET)
        .namespace(SECRET);
    let service = node.layer(Quiet);
    clean("layer", &node);
    clean("store", &store);
    clean("service", &service);
    assert!(format!("{service:?}").contains("Quiet"));

    let future = service.clone().oneshot(secret());
    clean("future", &service.clone().call(secret()));
    let (owner, follower) = tokio::join!(future, service.clone().oneshot(secret()));
    clean("flights", &node.flights());
    clean("stats", &node.stats());
    for response in [owner.unwrap(), follower.unwrap()] {
        clean("role", response.extensions().get::<FlightRole>().unwrap());
        clean("body", response.body());
        assert_eq!(format!("{:?}", response.body()), "ResponseBody(replay)");
    }
    let mut post = secret();
    *post.method_mut() = http::Method::POST;
    let passed = service.oneshot(post).await.unwrap();
    clean("passed body", passed.body());
}

#[tokio::test(start_paused = true)]
async fn a_body_in_every_state_tells_nothing() {
    let config = tower_singleflight::Config::builder().max_share_bytes(3).build().unwrap();
    let large = layer().config(config).layer(Quiet).oneshot(secret()).await.unwrap();
    assert_eq!(format!("{:?}", large.body()), "ResponseBody(resumed)");

    let runs = Runs::default();
    let failing: Inner<Full, &str> = inner(&runs, ms(10), |_, _| Err("failed"));
    let service = layer().layer(failing);
    let callers = (0..3).map(|_| service.clone().oneshot(secret()));
    let results = futures_util::future::join_all(callers).await;
    let failed: Vec<Response<ResponseBody<Full>>> = results.into_iter().flatten().collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(format!("{:?}", failed[0].body()), "ResponseBody(text)");
    let failure = failed[0].extensions().get::<Failure>().unwrap();
    clean("failure", failure);
    clean("failure's text", &failure.to_string());
}

#[test]
fn keys_tell_nothing() {
    let request = secret();
    let key = HttpKey::new().extract(&request).unwrap();
    clean("key", &key);
    clean("key of parts", &Key::builder().part(SECRET).build());
    clean("key builder", &Key::builder().part(SECRET));
    clean("view", &RequestView::new(&request));
    let captured = SECRET.to_owned();
    let by_fn = key_fn(move |_: &Req| Some(captured.clone()));
    clean("key function", &by_fn);
    clean("layer with it", &SingleFlightLayer::new(by_fn.clone()));
    clean("key of a function", &by_fn.extract(&request).unwrap());
    clean("service", &SingleFlightLayer::new(by_fn).layer(Quiet));
}
