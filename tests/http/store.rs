//! A store that counts what it is asked, or that is away: bypasses (M2, M3, M8) ask
//! it nothing, and without it a process still shares (B5).

use futures_util::future::join_all;
use http::Method;
use tower::{Layer, ServiceExt};
use tower_singleflight::{
    Config, FailureKind, MemoryStore, StoreDown,
    testing::{FaultStore, Step},
};

use crate::support::{Full, Inner, Runs, ask, crowd, get, inner, layer, ms, numbered, read, with};

/// One that is away.
pub(crate) fn away() -> FaultStore<MemoryStore> {
    let store = FaultStore::new(MemoryStore::new());
    store.cut();
    store
}

#[tokio::test(start_paused = true)]
async fn m8_a_bypass_asks_the_store_nothing() {
    let (store, runs) = (FaultStore::new(MemoryStore::new()), Runs::default());
    let service = layer().store(store.clone()).layer(numbered(&runs, ms(10)));
    let mut requests = vec![
        with(get("/"), "range", "bytes=0-9"),
        with(get("/"), "if-none-match", "\"x\""),
        with(get("/"), "if-range", "\"x\""),
        with(get("/"), "upgrade", "websocket"),
        with(get("/"), "cache-control", "no-store"),
        get("/").map(|_| Full::from("a body")),
    ];
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "CONNECT", "BREW"] {
        let mut request = get("/");
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        requests.push(request);
    }
    let mut no_host = get("/");
    *no_host.uri_mut() = "/".parse().unwrap();
    requests.push(no_host);
    let count = requests.len();
    join_all(requests.iter().flat_map(|r| [ask(&service, r.clone()), ask(&service, r.clone())]))
        .await;
    assert_eq!((runs.total(), runs.highest()), (count * 2, count * 2));
    assert!(Step::ALL.iter().all(|step| store.calls(*step) == 0));
    // It does count.
    crowd(&[&service], 5, get("/")).await;
    assert_eq!(store.calls(Step::Join), 1);
}

#[tokio::test(start_paused = true)]
async fn b5_failures_are_bounded_without_the_store_too() {
    let runs = Runs::default();
    let failing: Inner<Full, &str> = inner(&runs, ms(100), |_, _| Err("no luck"));
    let service = layer().store(away()).layer(failing);
    let results = join_all((0..20).map(|_| service.clone().oneshot(get("/")))).await;
    assert_eq!(runs.total(), 2);
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 2);
    for response in results.into_iter().flatten() {
        let failure = read(response).await.unwrap().failure.unwrap();
        assert_eq!((failure.kind(), failure.report()), (FailureKind::OwnerFailed, Some("no luck")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_not_missed_or_is_a_503() {
    let runs = Runs::default();
    let node = layer().store(away());
    let open = node.clone().layer(numbered(&runs, ms(100)));
    let answers = crowd(&[&open], 5, get("/")).await;
    assert!(answers.iter().all(|answer| answer.text() == "run 0"));

    let config = Config::builder().store_down(StoreDown::Reject).build().unwrap();
    let shut = node.config(config).layer(numbered(&runs, ms(100)));
    for answer in crowd(&[&shut], 5, get("/")).await {
        assert_eq!(
            (answer.status.as_u16(), &answer.headers["retry-after"]),
            (503, &"1".parse().unwrap())
        );
        assert_eq!(answer.failure.unwrap().kind(), FailureKind::StoreDown);
    }
    assert_eq!(runs.total(), 1);
}
