//! Answers that depend on headers outside the key (row L7), and who took which part in
//! them (row C8).

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{StreamExt, future::join_all, stream};
use http::{HeaderName, Response, header::USER_AGENT};
use http_body_util::{StreamBody, combinators::UnsyncBoxBody};
use tokio::time::sleep;
use tower::{Layer, util::BoxCloneSyncService};
use tower_singleflight::{Config, HttpKey, MemoryStore, SingleFlightLayer};

use crate::support::{
    ALONE, Gate, Inner, Req, Runs, ask, callers, crowd, get, ms, sure, text, until, with,
};

const PLAN: HeaderName = HeaderName::from_static("x-plan");

/// Nodes whose key does not have `x-plan`.
fn nodes<const N: usize>() -> [SingleFlightLayer<HttpKey>; N] {
    let store = MemoryStore::new();
    std::array::from_fn(|_| {
        let key = HttpKey::new().ignore(PLAN);
        SingleFlightLayer::new(key).store(store.clone()).namespace("tests")
    })
}

fn plan(plan: &'static str) -> Req {
    with(get("/"), "x-plan", plan)
}

/// Answers by plan, and says so by `vary`.
fn inner(runs: &Runs, vary: &'static str) -> Inner {
    sure(runs, ms(100), move |run, request| {
        let plan = request.headers().get(PLAN).map(|plan| plan.to_str().unwrap().to_owned());
        let mut response = text(format!("{} in run {run}", plan.unwrap_or_default()));
        response.headers_mut().insert("vary", vary.parse().unwrap());
        response
    })
}

#[tokio::test(start_paused = true)]
async fn l7_equal_values_share_and_others_run_themselves() {
    let runs = Runs::default();
    let [here, there] = nodes().map(|node| node.layer(inner(&runs, "accept, X-Plan")));
    let services = [(&here, "a"), (&here, "a"), (&here, "b"), (&there, "a"), (&there, "b")];
    let answers = join_all(services.map(|(service, name)| ask(service, plan(name)))).await;
    assert_eq!(runs.total(), 3);
    for (answer, (_, name)) in answers.iter().zip(services) {
        assert!(answer.text().starts_with(name), "{}", answer.text());
        assert_eq!(answer.role == ALONE, name == "b");
        assert_eq!(answer.text() == "a in run 0", name == "a");
    }
    assert!(answers[0].is_owner() && answers[1].is_shared() && answers[3].is_shared());
}

#[tokio::test(start_paused = true)]
async fn l7_a_star_never_shares() {
    let runs = Runs::default();
    let [here, there] = nodes().map(|node| node.layer(inner(&runs, "*")));
    crowd(&[&here, &there], 3, plan("a")).await;
    assert_eq!(runs.total(), 6);
}

#[tokio::test(start_paused = true)]
async fn l7_a_header_that_both_lack_shares() {
    for vary in ["x-plan", "user-agent, x-plan, x-forwarded-for"] {
        let runs = Runs::default();
        let [here, there] = nodes().map(|node| node.layer(inner(&runs, vary)));
        let answers = crowd(&[&here, &there], 3, get("/")).await;
        assert_eq!(runs.total(), 1, "{vary}");
        assert_eq!(answers.iter().filter(|answer| answer.is_shared()).count(), 5);
        // An empty value is another than none, and so are two lines than one.
        let (a, b) =
            tokio::join!(ask(&here, get("/2")), ask(&there, with(get("/2"), "x-plan", "")));
        assert!(a.is_owner() != b.is_owner() && (a.role == ALONE) != (b.role == ALONE));
    }
}

#[tokio::test(start_paused = true)]
async fn l7_every_header_that_vary_names_must_be_equal() {
    let runs = Runs::default();
    let [here, there] = nodes().map(|node| node.layer(inner(&runs, "x-plan, user-agent")));
    let agent = |agent| with(plan("a"), "user-agent", agent);
    let twice = with(agent("one"), "user-agent", "two");
    let asked = [
        ask(&here, agent("one")),
        ask(&here, agent("two")),
        ask(&there, agent("one")),
        ask(&there, twice),
        ask(&there, with(agent("one"), "traceparent", "of one request")),
    ];
    let answers = join_all(asked).await;
    let alone: Vec<_> = answers.iter().map(|answer| answer.role == ALONE).collect();
    assert_eq!(alone, [false, true, false, true, false]);
    assert_eq!((runs.total(), USER_AGENT.as_str()), (3, "user-agent"));
}

/// Used again, it goes to those alone whose values are those that it was made for.
#[tokio::test(start_paused = true)]
async fn l7_what_is_used_again_fits_too() {
    for (vary, fits) in [("x-plan", true), ("x-plan, *", false)] {
        let runs = Runs::default();
        let config = Config::builder().reuse(ms(5000)).build().unwrap();
        let nodes = nodes::<2>().map(|node| node.config(config.clone()));
        let [here, there] = [0, 1].map(|at| nodes[at].layer(inner(&runs, vary)));
        assert!(ask(&here, plan("a")).await.is_owner());
        until("its end", || nodes[0].flights().is_empty()).await;
        sleep(ms(2000)).await;
        for service in [&here, &there] {
            let total = runs.total();
            let asked = [plan("a"), plan("b"), get("/"), with(plan("a"), "x-plan", "a")];
            let answers = join_all(asked.map(|request| ask(service, request))).await;
            for (at, answer) in answers.iter().enumerate() {
                let name = ["a", "b", "", "a"][at];
                assert!(answer.text().starts_with(&format!("{name} in run")), "{}", answer.text());
                let again = fits && at == 0;
                assert_eq!(answer.text() == "a in run 0", again, "{vary} {at}");
                let age = answer.headers.get("age").map(|age| age.to_str().unwrap());
                assert_eq!(age, again.then_some("2"), "{vary} {at}");
            }
            let ran = runs.total() - total;
            assert_eq!(ran, if fits { 3 } else { 4 }, "{vary}");
        }
    }
}

type Held = UnsyncBoxBody<Bytes, Infallible>;

/// An inner whose head is there at once, and whose body waits for the gate; its length
/// is known, so that it is handed out when it is whole.
fn held(runs: &Runs, gate: &Gate) -> Inner<Held> {
    let (runs, gate) = (runs.clone(), gate.clone());
    BoxCloneSyncService::new(tower::service_fn(move |request: Req| {
        let (run, gate) = (runs.begin(), gate.clone());
        let waits = request.headers().get(PLAN).is_some_and(|plan| plan == "a");
        async move {
            let body = stream::once(async move {
                if waits {
                    gate.passed().await;
                }
                run.finish();
                Ok(http_body::Frame::data(Bytes::from_static(b"whole")))
            });
            let mut response = Response::new(UnsyncBoxBody::new(StreamBody::new(body.boxed())));
            response.headers_mut().insert("vary", "x-plan".parse().unwrap());
            response.headers_mut().insert("content-length", 5.into());
            Ok(response)
        }
    }))
}

/// Nothing waits for a body that it may not have.
#[tokio::test(start_paused = true)]
async fn l7_others_are_let_go_when_the_head_is_there() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let [node] = nodes();
    let service = node.layer(held(&runs, &gate));
    let owner = tokio::spawn(ask(&service, plan("a")));
    until("the owner", || callers(&node) == 1 && runs.running() == 1).await;
    // Those who come while it runs, too.
    let answers = crowd(&[&service], 3, plan("b")).await;
    assert!(answers.iter().all(|answer| answer.role == ALONE && answer.text() == "whole"));
    let follower = tokio::spawn(ask(&service, plan("a")));
    until("the follower", || callers(&node) == 2).await;
    gate.open();
    let (owner, follower) = (owner.await.unwrap(), follower.await.unwrap());
    assert!(owner.is_owner() && follower.is_shared());
    assert_eq!((runs.total(), runs.dropped()), (4, 0));
}

/// Every request has one part, and all who look agree on it.
#[tokio::test(start_paused = true)]
async fn c8_roles_add_up() {
    let runs = Runs::default();
    let [node] = nodes();
    let service = node.layer(inner(&runs, "x-plan"));
    let asked = (0..8).map(|n| ask(&service, plan(if n == 3 || n == 6 { "b" } else { "a" })));
    let answers = join_all(asked).await;
    let count = |role| answers.iter().filter(|a| a.role.is_some_and(|r| r.name() == role)).count();
    let roles = ["owner", "follower_local", "bypass", "follower_remote", "reused"];
    assert_eq!(roles.map(count), [1, 5, 2, 0, 0]);
    let stats = node.stats();
    let told = [stats.owner, stats.follower_local, stats.bypass, stats.follower_remote];
    assert_eq!(told, [1, 5, 2, 0]);
    assert_eq!((runs.total(), answers.len()), (3, 8));
    for answer in &answers {
        let collapsed = answer.headers["cache-status"].to_str().unwrap().contains("collapsed");
        assert_eq!(collapsed, answer.is_shared());
    }
}
