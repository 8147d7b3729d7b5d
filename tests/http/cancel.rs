//! Callers that leave, or do not look (rows A1, A2, A3), and a handler that asks
//! for itself (C7).

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
};

use axum::{Router, routing::get as route_get};
use futures_util::poll;
use http::Response;
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_singleflight::{Bypass, FlightRole, ResponseBody};

use crate::{
    net,
    support::{
        Full, Gate, Req, Runs, ask, callers, get, layer, ms, nodes, numbered, read, sure, text,
        until,
    },
};

#[tokio::test(start_paused = true)]
async fn a1_the_first_caller_leaves() {
    for remote in [false, true] {
        let runs = Runs::default();
        let inner = sure(&runs, ms(500), |_, _| text(vec![7; 10 * 1024]));
        let [here, there] = nodes().map(|node| node.layer(inner.clone()));
        let (start, first) = (Instant::now(), tokio::spawn(ask(&here, get("/"))));
        sleep(ms(100)).await;
        let second = tokio::spawn(ask(if remote { &there } else { &here }, get("/")));
        let third = tokio::spawn(ask(if remote { &there } else { &here }, get("/")));
        sleep(ms(100)).await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        for follower in [second, third] {
            let answer = follower.await.unwrap();
            assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 10 * 1024));
            assert!(answer.is_shared());
        }
        // A follower elsewhere waits for a beat at most.
        assert!(start.elapsed() <= ms(if remote { 1700 } else { 500 }), "{:?}", start.elapsed());
        assert_eq!((runs.total(), runs.dropped()), (1, 0), "remote: {remote}");
    }
}

#[tokio::test(start_paused = true)]
async fn a2_a_follower_leaves() {
    for remote in [false, true] {
        let runs = Runs::default();
        let [here, there] = nodes().map(|node| node.layer(numbered(&runs, ms(1000))));
        let owner = tokio::spawn(ask(&here, get("/")));
        sleep(ms(50)).await;
        let follower = tokio::spawn(ask(if remote { &there } else { &here }, get("/")));
        sleep(ms(150)).await;
        follower.abort();
        sleep(ms(100)).await;
        let third = ask(&here, get("/")).await;
        assert_eq!((third.text(), owner.await.unwrap().text()), ("run 0", "run 0"));
        assert_eq!((runs.total(), runs.highest(), runs.dropped()), (1, 1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a3_nobody_needs_the_first_caller_to_be_polled() {
    for remote in [false, true] {
        let runs = Runs::default();
        let [here, there] = nodes().map(|node| node.layer(numbered(&runs, ms(100))));
        let mut parked = Box::pin(here.clone().oneshot(get("/")));
        assert!(poll!(parked.as_mut()).is_pending());
        tokio::task::yield_now().await;
        let start = Instant::now();
        let follower = ask(if remote { &there } else { &here }, get("/"));
        let answer = timeout(ms(2000), follower).await.expect("the run waits for its caller");
        assert_eq!((start.elapsed(), answer.text()), (ms(100), "run 0"));
        // Who comes back late has its answer still.
        sleep(ms(1000)).await;
        let late = parked.await.unwrap();
        assert_eq!(read(late).await.unwrap().text(), "run 0");
        assert_eq!(runs.total(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a2_what_a_caller_left_is_dropped_with_it() {
    let runs = Runs::default();
    let service = layer().layer(numbered(&runs, ms(1000)));
    let owner = tokio::spawn(ask(&service, get("/")));
    sleep(ms(100)).await;
    let held = Arc::new(());
    let mut request = get("/");
    request.extensions_mut().insert(held.clone());
    let mut follower = Box::pin(service.oneshot(request));
    assert!(poll!(follower.as_mut()).is_pending());
    assert_eq!(Arc::strong_count(&held), 2);
    drop(follower);
    assert_eq!(Arc::strong_count(&held), 1);
    assert_eq!(owner.await.unwrap().text(), "run 0");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_read_holds_nobody_up() {
    let runs = Runs::default();
    let inner = sure(&runs, ms(100), |run, _| text(vec![run as u8; 1 << 20]));
    let [here, there] = nodes().map(|node| node.layer(inner.clone()));
    let (unread, follower, remote) =
        tokio::join!(here.clone().oneshot(get("/")), ask(&here, get("/")), ask(&there, get("/")));
    assert_eq!((follower.body.len(), remote.body.len(), runs.total()), (1 << 20, 1 << 20, 1));
    // Nor the next flight; and what was not read is still there.
    let next = timeout(ms(200), ask(&there, get("/"))).await.expect("the key is not free");
    assert_eq!(next.body[0], 1);
    assert_eq!(read(unread.unwrap()).await.unwrap().body, vec![0; 1 << 20]);
}

#[tokio::test(start_paused = true)]
async fn a4_when_all_have_left_the_run_is_dropped() {
    let runs = Runs::default();
    let node = layer();
    let service = node.layer(numbered(&runs, ms(10_000)));
    let asked = [(); 3].map(|()| tokio::spawn(ask(&service, get("/"))));
    sleep(ms(200)).await;
    asked.iter().for_each(tokio::task::JoinHandle::abort);
    sleep(ms(10)).await;
    assert_eq!((runs.total(), runs.dropped()), (1, 1));
    assert!(node.flights().is_empty());
}

#[tokio::test]
async fn a1_the_owners_connection_is_lost() {
    let (runs, gate, node) = (Runs::default(), Gate::new(), layer());
    let handler = {
        let (runs, gate) = (runs.clone(), gate.clone());
        move || {
            let (run, gate) = (runs.begin(), gate.clone());
            async move {
                gate.passed().await;
                run.finish();
                "hello"
            }
        }
    };
    let app = Router::new().route("/", route_get(handler)).layer(node.clone());
    let server = net::axum(app).await;
    let mut owner = net::Raw::connect(server).await;
    owner.send("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    until("the owner", || runs.running() == 1).await;
    let mut follower = net::http2(server).await;
    let follower = tokio::spawn(async move { follower.ask(get("/")).await });
    until("the follower", || callers(&node) == 2).await;
    drop(owner);
    until("one is left", || callers(&node) == 1).await;
    gate.open();
    let answer = follower.await.unwrap();
    assert_eq!(answer.text(), "hello");
    assert_eq!((runs.total(), runs.dropped()), (1, 0));
}

type Wrapped = BoxCloneSyncService<Req, Response<ResponseBody<Full>>, Infallible>;

/// A service whose handler asks it for other paths before it answers.
fn asking(runs: &Runs, next: fn(&str, usize) -> Option<&'static str>) -> Wrapped {
    let slot = Arc::new(OnceLock::<Wrapped>::new());
    let inner = {
        let (runs, slot) = (runs.clone(), slot.clone());
        service_fn(move |request: Req| {
            let (run, slot) = (runs.begin(), slot.clone());
            async move {
                let next = next(request.uri().path(), run.number);
                sleep(ms(10)).await;
                let said = match next {
                    Some(path) => {
                        let below = ask(slot.get().unwrap(), get(path)).await;
                        format!("{:?} {}", below.role.unwrap(), below.text())
                    }
                    None => "the end".into(),
                };
                run.finish();
                Ok::<_, Infallible>(text(said))
            }
        })
    };
    let service = Wrapped::new(layer().layer(inner));
    slot.set(service.clone()).unwrap();
    service
}

#[tokio::test(start_paused = true)]
async fn c7_a_handler_may_ask_for_itself() {
    let runs = Runs::default();
    let service = asking(&runs, |_, run| (run == 0).then_some("/"));
    let answers = async { tokio::join!(ask(&service, get("/")), ask(&service, get("/"))) };
    let (owner, follower) = timeout(ms(100), answers).await.expect("it waits for itself");
    let said = format!("{:?} the end", FlightRole::Bypass(Bypass::Recursion));
    assert_eq!((owner.text(), follower.text()), (&*said, &*said));
    assert_eq!(runs.total(), 2);
}

#[tokio::test(start_paused = true)]
async fn c7_also_through_another_key() {
    let runs = Runs::default();
    let service = asking(&runs, |path, run| match (path, run) {
        ("/a", 0) => Some("/b"),
        ("/b", _) => Some("/a"),
        _ => None,
    });
    let answer = timeout(ms(100), ask(&service, get("/a"))).await.expect("it waits for itself");
    let said =
        format!("{:?} {:?} the end", FlightRole::Owner, FlightRole::Bypass(Bypass::Recursion));
    assert_eq!(answer.text(), said);
    assert_eq!(runs.total(), 3);
}
