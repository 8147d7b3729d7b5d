//! One process, no store: who shares, who is run, who leaves.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_singleflight::{HttpKey, SingleFlightLayer};

type Body = Full<bytes::Bytes>;

fn get(path: &str) -> Request<Body> {
    Request::get(format!("http://a.test{path}")).body(Body::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_run_answers_all() {
    let calls = Arc::new(AtomicUsize::new(0));
    let service = SingleFlightLayer::new(HttpKey::new()).layer(service_fn({
        let calls = calls.clone();
        move |_: Request<Body>| {
            let run = calls.fetch_add(1, SeqCst);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<_, Infallible>(Response::new(Body::from(format!("run {run}"))))
            }
        }
    }));
    let callers = (0..20).map(|_| service.clone().oneshot(get("/a")));
    let answers = futures_util::future::join_all(callers).await;
    for answer in answers {
        let body = answer.unwrap().into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "run 0");
    }
    assert_eq!(calls.load(SeqCst), 1);
    let mut service = service;
    let again = service.ready().await.unwrap().call(get("/a")).await.unwrap();
    assert_eq!(again.into_body().collect().await.unwrap().to_bytes(), "run 1");
}
