//! Keys below nested routers (case K2).

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Body,
    extract::{OriginalUri, Request},
    middleware::{Next, from_fn},
    routing::get,
};
use tower::ServiceExt;
use tower_singleflight::{HttpKey, Key, KeyExtractor};

type Seen = Arc<Mutex<Vec<Key>>>;

async fn keys(key: HttpKey, paths: [&str; 3]) -> Vec<Key> {
    let seen = Seen::default();
    let mount = || {
        let (key, seen) = (key.clone(), seen.clone());
        Router::new().route("/f", get(|| async {})).layer(from_fn(
            move |request: Request, next: Next| {
                seen.lock().unwrap().push(key.extract(&request).unwrap());
                next.run(request)
            },
        ))
    };
    let app = Router::new()
        .nest("/c1", mount())
        .nest("/c2", mount())
        .nest("/deep", Router::new().nest("/c1", mount()));
    for path in paths {
        let request = Request::get(path).header("host", "a.test").body(Body::empty()).unwrap();
        assert!(app.clone().oneshot(request).await.unwrap().status().is_success());
    }
    let seen = seen.lock().unwrap();
    seen.clone()
}

fn original() -> HttpKey {
    HttpKey::new().original_uri(|extensions| extensions.get::<OriginalUri>().map(|uri| &uri.0))
}

#[tokio::test]
async fn two_mounts_never_collide() {
    let keys = keys(original(), ["/c1/f", "/c2/f", "/deep/c1/f"]).await;
    assert_ne!(keys[0], keys[1]);
    assert_ne!(keys[0], keys[2]);
    assert_ne!(keys[1], keys[2]);
}

#[tokio::test]
async fn one_mount_still_shares() {
    let keys = keys(original(), ["/c1/f", "/c1/f", "/c1/f?"]).await;
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0], keys[2]);
}

// What the docs warn of; if this ever fails, the warning can go.
#[tokio::test]
async fn without_the_original_uri_mounts_collide() {
    let keys = keys(HttpKey::new(), ["/c1/f", "/c2/f", "/c1/f"]).await;
    assert_eq!(keys[0], keys[1]);
}
