//! A store that counts what it is asked, or that is away: bypasses (M2, M3, M8) ask
//! it nothing, and without it a process still shares (B5).

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use tower::{Layer, ServiceExt};
use tower_singleflight::{
    Config, FailureKind, FlightRef, KeyDigest, MemoryStore, Store, StoreDown,
    store::{
        Abandoned, Append, Appended, BeatReply, BoxFuture, Finish, Finished, Heartbeat, Join,
        Joined, Pieces, Pushed, Session, StoreError, StoreErrorKind, StoreState,
    },
};

use crate::support::{Full, Inner, Runs, ask, crowd, get, inner, layer, ms, numbered, read, with};

#[derive(Clone, Debug, Default)]
pub(crate) struct Spy {
    store: MemoryStore,
    sessions: Arc<AtomicUsize>,
    away: bool,
}

impl Spy {
    /// One that is away.
    pub(crate) fn away() -> Self {
        Self { away: true, ..Self::default() }
    }
}

impl Store for Spy {
    fn session(&self, key: KeyDigest) -> Box<dyn Session> {
        self.sessions.fetch_add(1, SeqCst);
        if self.away { Box::new(Away) } else { self.store.session(key) }
    }

    fn heartbeat(&self) -> Box<dyn Heartbeat> {
        self.store.heartbeat()
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn state(&self) -> StoreState {
        StoreState::Memory
    }

    fn errors(&self) -> Vec<(StoreErrorKind, u64)> {
        Vec::new()
    }
}

/// Answers nothing.
struct Away;

fn away<'a, T>() -> BoxFuture<'a, Result<T, StoreError>> {
    Box::pin(async { Err(StoreError::new(StoreErrorKind::Open, "away")) })
}

impl Session for Away {
    fn join(&mut self, _: Join) -> BoxFuture<'_, Result<Joined, StoreError>> {
        away()
    }

    fn pushed(&mut self) -> BoxFuture<'_, Pushed> {
        Box::pin(std::future::pending())
    }

    fn fetch(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        away()
    }

    fn append(&mut self, _: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        away()
    }

    fn read(&mut self, _: FlightRef, _: u64) -> BoxFuture<'_, Result<Pieces, StoreError>> {
        away()
    }

    fn listen(
        &mut self,
        _: FlightRef,
        _: Duration,
    ) -> BoxFuture<'_, Result<BeatReply, StoreError>> {
        away()
    }

    fn deafen(&mut self) {}

    fn finish(&mut self, _: Finish) -> BoxFuture<'_, Result<Finished, StoreError>> {
        away()
    }

    fn abandon(&mut self, _: FlightRef) -> BoxFuture<'_, Result<Abandoned, StoreError>> {
        away()
    }

    fn forget(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        away()
    }

    fn stop(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        away()
    }
}

#[tokio::test(start_paused = true)]
async fn m8_a_bypass_asks_the_store_nothing() {
    let (spy, runs) = (Spy::default(), Runs::default());
    let service = layer().store(spy.clone()).layer(numbered(&runs, ms(10)));
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
    assert_eq!(spy.sessions.load(SeqCst), 0);
    // It does count.
    crowd(&[&service], 5, get("/")).await;
    assert_eq!(spy.sessions.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn b5_failures_are_bounded_without_the_store_too() {
    let runs = Runs::default();
    let failing: Inner<Full, &str> = inner(&runs, ms(100), |_, _| Err("no luck"));
    let service = layer().store(Spy::away()).layer(failing);
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
    let node = layer().store(Spy::away());
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
