//! What a process holds of answers that are used again (row C14).

use std::sync::Arc;

use http::{HeaderName, Request};
use tower_singleflight::{
    Config, ConfigBuilder, FlightRole, HttpKey, MemoryStore, NoShare, SingleFlightLayer,
};

use crate::rig::*;

fn reusing() -> ConfigBuilder {
    Config::builder().reuse(ms(10_000))
}

fn get(path: &str) -> Request<Body> {
    Request::get(format!("http://a.test{path}")).body(Body::default()).unwrap()
}

struct Fleet {
    counts: Arc<Counts>,
    store: MemoryStore,
    nodes: [Node; 2],
}

impl Fleet {
    fn of(inner: impl Fn(&Arc<Counts>) -> InnerService, config: ConfigBuilder) -> Self {
        let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
        let (inner, config) = (inner(&counts), config.build().unwrap());
        let nodes = [(); 2].map(|()| Node::new(store.clone(), &inner, config.clone()));
        Self { counts, store, nodes }
    }

    fn new(config: ConfigBuilder) -> Self {
        Self::of(|counts| slow(counts, ms(100)), config)
    }

    /// Callers so far that were given what their process holds.
    fn held(&self) -> [u64; 2] {
        [0, 1].map(|node| self.nodes[node].layer.stats().reused_local)
    }

    /// Both take part in one flight, which must be this run.
    async fn both_run(&self, text: &str) {
        let [a, b] = &self.nodes;
        let (owner, follower) = (a.call("/a"), b.call("/a"));
        assert_eq!((owner.await.text(), follower.await.text()), (text, text));
        until(|| a.in_air() + b.in_air() == 0).await;
    }

    /// Both must give this run's answer, and hold it.
    async fn both_hold(&self, text: &str) {
        for node in &self.nodes {
            let before = node.layer.stats();
            let answer = node.call("/a").await;
            assert_eq!((answer.text(), answer.took), (text, ms(0)));
            assert!(matches!(answer.role, Some(FlightRole::Reused { .. })));
            let after = node.layer.stats();
            assert_eq!(after.reused_local, before.reused_local + 1);
            assert_eq!(after.reused, before.reused + 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c14_who_ran_followed_or_read_an_answer_holds_it() {
    let fleet = Fleet::new(reusing());
    let [a, b] = &fleet.nodes;
    fleet.both_run("run 0").await;
    fleet.both_hold("run 0").await;
    // It grows old here as it does there.
    tokio::time::sleep(ms(2500)).await;
    assert_eq!(a.call("/a").await.headers["age"], "2");
    assert_eq!(a.call("/b").await.text(), "run 1");
    until(|| a.in_air() == 0).await;
    assert_eq!(b.call("/b").await.text(), "run 1");
    assert_eq!(fleet.held(), [2, 1], "the first use is the store's");
    assert_eq!(b.call("/b").await.text(), "run 1");
    assert_eq!(fleet.held(), [2, 2]);
    tokio::time::sleep(ms(7300)).await;
    fleet.both_hold("run 0").await;
    tokio::time::sleep(ms(100)).await;
    assert_eq!(b.call("/a").await.text(), "run 2");
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_by_any_process_is_held_by_none() {
    let fleet = Fleet::new(reusing());
    for (run, forgets) in [(0, 0), (1, 1), (2, 0)] {
        let text = format!("run {run}");
        fleet.both_run(&text).await;
        fleet.both_hold(&text).await;
        fleet.nodes[forgets].layer.forget(&get("/a")).await.unwrap();
    }
    // To stop a key touches nothing that has ended.
    fleet.both_run("run 3").await;
    fleet.nodes[0].layer.stop(&get("/a")).await.unwrap();
    fleet.both_hold("run 3").await;
}

#[tokio::test(start_paused = true)]
async fn what_the_store_has_lost_is_held_by_none() {
    let fleet = Fleet::new(reusing());
    fleet.both_run("run 0").await;
    fleet.both_hold("run 0").await;
    fleet.store.clear();
    fleet.both_run("run 1").await;
    fleet.both_hold("run 1").await;
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_used_again_is_not_held() {
    fn saying(value: &'static str) -> impl Fn(&Arc<Counts>) -> InnerService {
        move |counts| {
            inner(counts, move |_| async move {
                let mut response = answer("a");
                response.headers_mut().insert("cache-control", value.parse().unwrap());
                response
            })
        }
    }
    let large = |counts: &Arc<Counts>| inner(counts, |_| async { answer(vec![b'a'; 5000]) });
    let failing = |counts: &Arc<Counts>| inner(counts, |_| async { status(500) });
    for (fleet, runs) in [
        (Fleet::of(large, reusing().local_results(64 * 1024)), 1),
        (Fleet::new(reusing().local_results(0)), 1),
        (Fleet::of(failing, reusing()), 3),
        (Fleet::of(saying("no-store"), reusing()), 3),
        (Fleet::of(saying("max-age=0"), reusing()), 3),
        (Fleet::new(Config::builder()), 3),
    ] {
        for _ in 0..3 {
            fleet.nodes[0].call("/a").await;
            until(|| fleet.nodes[0].in_air() == 0).await;
        }
        assert_eq!((fleet.held(), fleet.counts.calls()), ([0, 0], runs));
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_share_is_not_given_what_is_held() {
    let fleet = Fleet::new(reusing());
    let [a, _] = &fleet.nodes;
    fleet.both_run("run 0").await;
    fleet.both_hold("run 0").await;
    let mut alone = get("/a");
    alone.extensions_mut().insert(NoShare);
    assert_eq!(a.send(alone).await.text(), "run 1");
    a.layer.switch().turn_off();
    assert_eq!(a.call("/a").await.text(), "run 2");
    a.layer.switch().turn_on();
    // Who leaves gives what it holds, and holds nothing new.
    a.layer.drain(ms(0)).await;
    fleet.both_hold("run 0").await;
    let before = fleet.held();
    assert_eq!(a.call("/b").await.text(), "run 3");
    assert_eq!(a.call("/b").await.text(), "run 4");
    assert_eq!(fleet.held(), before);
}

#[tokio::test(start_paused = true)]
async fn what_varies_is_held_against_each_callers_own_request() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = inner(&counts, |nth| async move {
        let mut response = answer(format!("run {nth}"));
        response.headers_mut().insert("vary", "x-plan".parse().unwrap());
        response
    });
    let key = HttpKey::new().ignore(HeaderName::from_static("x-plan"));
    let layer = SingleFlightLayer::new(key).store(store).config(reusing().build().unwrap());
    let node = Node { service: tower::Layer::layer(&layer, inner), layer };
    for (plan, run, held) in
        [("one", "run 0", 0), ("one", "run 0", 1), ("two", "run 1", 1), ("one", "run 0", 2)]
    {
        let mut request = get("/a");
        request.headers_mut().insert("x-plan", plan.parse().unwrap());
        assert_eq!(node.send(request).await.text(), run);
        assert_eq!(node.layer.stats().reused_local, held, "{plan} {run}");
        until(|| node.in_air() == 0).await;
    }
}
