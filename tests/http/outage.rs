//! An app's own tests: what a service does when the store goes away in the middle.

use std::time::Duration;

use axum::{Router, body::Body, routing::get};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;
use tower_singleflight::{
    Config, ConfigBuilder, HttpKey, MemoryStore, SingleFlightLayer, StoreDown,
    testing::{Fault, FaultStore, Step},
};

const TAKES: Duration = Duration::from_secs(1);

/// One process of a fleet, and its line to the store.
struct App {
    store: FaultStore<MemoryStore>,
    router: Router,
}

impl App {
    fn new(fleet: &MemoryStore, config: ConfigBuilder) -> Self {
        let report = || async {
            tokio::time::sleep(TAKES).await;
            "ready"
        };
        let store = FaultStore::new(fleet.clone());
        let layer = SingleFlightLayer::new(HttpKey::new())
            .namespace("reports")
            .config(config.build().unwrap())
            .store(store.clone());
        Self { store, router: Router::new().route("/report", get(report)).layer(layer) }
    }

    async fn ask(&self) -> (StatusCode, String) {
        let request = Request::get("http://app.test/report").body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, body) = (response.status(), response.into_body());
        (status, String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap())
    }
}

fn ready() -> (StatusCode, String) {
    (StatusCode::OK, "ready".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_service_stays_up_when_its_store_is_cut_off_in_the_middle() {
    let fleet = MemoryStore::new();
    let [owner, other] = [(); 2].map(|()| App::new(&fleet, Config::builder()));
    // The owner is cut off while it runs, and the follower goes on to the end with it, or
    // takes over: all are answered.
    let outage = async {
        other.store.until_calls(Step::Join, 1).await;
        owner.store.cut();
    };
    let follow = async {
        owner.store.until_calls(Step::Join, 1).await;
        other.ask().await
    };
    let (one, two, three, ()) = tokio::join!(owner.ask(), owner.ask(), follow, outage);
    assert_eq!([one, two, three], [ready(), ready(), ready()]);
    // Alone, it shares for itself; and in the fleet when the store is back.
    assert_eq!(owner.ask().await, ready());
    owner.store.heal();
    let joins = owner.store.calls(Step::Join);
    assert_eq!(owner.ask().await, ready());
    assert!(owner.store.calls(Step::Join) > joins);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_would_rather_not_run_says_so() {
    let app = App::new(&MemoryStore::new(), Config::builder().store_down(StoreDown::Reject));
    app.store.cut();
    assert_eq!(app.ask().await.0, StatusCode::SERVICE_UNAVAILABLE);
    app.store.heal();
    assert_eq!(app.ask().await, ready());
}

/// Whatever goes wrong on the way to the store, now and then, nobody sees it.
#[tokio::test(start_paused = true)]
async fn a_service_on_a_bad_line_answers_all() {
    for seed in 0..20 {
        let fleet = MemoryStore::new();
        let apps = [(); 2].map(|()| App::new(&fleet, Config::builder()));
        for (n, app) in (0..).zip(&apps) {
            let faults = [Fault::Lose, Fault::LoseReply, Fault::Delay(TAKES / 5)];
            app.store.at_random(seed * 2 + n, 3, faults);
        }
        for _ in 0..5 {
            let (one, two) = tokio::join!(apps[0].ask(), apps[1].ask());
            assert_eq!((one, two), (ready(), ready()), "seed {seed}");
        }
    }
}
