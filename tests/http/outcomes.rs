//! What followers get (rows B2, B3, C6, C14), and callers of one layer (T4).

use std::collections::HashSet;

use futures_util::future::join_all;
use http::{HeaderValue, StatusCode};
use tower::Layer;
use tower_singleflight::MemoryStore;

use crate::support::{Runs, ask, crowd, get, layer, ms, nodes, numbered, sure, text};

#[tokio::test(start_paused = true)]
async fn b2_every_follower_gets_the_whole_answer() {
    let runs = Runs::default();
    let inner = sure(&runs, ms(200), |_, _| {
        let body: Vec<u8> = (0..64 * 1024).map(|_| rand_byte()).collect();
        let mut response = text(body);
        response.headers_mut().insert("x-a", HeaderValue::from_static("1"));
        response
    });
    let [here, there] = nodes().map(|node| node.layer(inner.clone()));
    let mut answers = crowd(&[&here], 101, get("/")).await;
    assert_eq!(runs.total(), 1);
    let seen: HashSet<_> = answers.iter().map(|a| (a.status, a.fields(), a.body.clone())).collect();
    assert_eq!((seen.len(), answers[0].body.len()), (1, 64 * 1024));

    answers = crowd(&[&here, &there], 101, get("/")).await;
    assert_eq!(runs.total(), 2);
    let seen: HashSet<_> = answers.iter().map(|a| (a.status, a.fields(), a.body.clone())).collect();
    assert_eq!((seen.len(), answers[0].body.len()), (1, 64 * 1024));
    assert_eq!(answers.iter().filter(|answer| answer.is_owner()).count(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.is_shared()).count(), 201);
}

/// A byte that no two runs have in the same place.
fn rand_byte() -> u8 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as u8
}

#[tokio::test(start_paused = true)]
async fn b3_statuses_are_the_owners() {
    for status in [404, 400, 410, 429, 201, 204, 301, 500, 502, 503] {
        let runs = Runs::default();
        let inner = sure(&runs, ms(100), move |_, _| {
            let mut response = text(if status == 204 { "" } else { "why not" });
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response.headers_mut().insert("x-why", HeaderValue::from_static("a"));
            response.headers_mut().insert("retry-after", HeaderValue::from_static("17"));
            response
        });
        let [here, there] = nodes().map(|node| node.layer(inner.clone()));
        let answers = crowd(&[&here, &there], 11, get("/")).await;
        assert_eq!(runs.total(), 1, "{status}");
        let seen: HashSet<_> =
            answers.iter().map(|a| (a.status.as_u16(), a.fields(), a.body.clone())).collect();
        assert_eq!(seen.len(), 1, "{status}");
        assert_eq!(answers[0].status.as_u16(), status);
        assert_eq!(answers[0].headers["x-why"], "a");
        assert_eq!(answers[0].headers["retry-after"], "17");
        assert!(answers.iter().all(|answer| answer.failure.is_none()));
    }
}

#[tokio::test(start_paused = true)]
async fn c14_freshness_is_nothing_to_those_who_waited() {
    for (name, value) in [
        ("cache-control", "max-age=0"),
        ("cache-control", "no-cache, must-revalidate"),
        ("expires", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("expires", "0"),
        ("age", "1000000"),
    ] {
        let runs = Runs::default();
        let inner = sure(&runs, ms(100), move |run, _| {
            let mut response = text(format!("run {run}"));
            response.headers_mut().insert(name, HeaderValue::from_static(value));
            response
        });
        let [here, there] = nodes().map(|node| node.layer(inner.clone()));
        let answers = crowd(&[&here, &there], 10, get("/")).await;
        assert_eq!(runs.total(), 1, "{name}: {value}");
        for answer in answers {
            assert_eq!((answer.text(), &answer.headers[name]), ("run 0", &value.parse().unwrap()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c6_a_thousand_keys_on_one_thread() {
    let runs = Runs::default();
    let inner = sure(&runs, ms(5), |_, request| text(request.uri().path().to_owned()));
    let node = layer();
    let service = node.layer(inner);
    let asked = (0..2000).map(|n| ask(&service, get(&format!("/{}", n / 2))));
    let answers = join_all(asked).await;
    for (number, answer) in answers.iter().enumerate() {
        assert_eq!(answer.text(), format!("/{}", number / 2));
    }
    assert_eq!(runs.total(), 1000);
    drop(answers);
    tokio::time::sleep(ms(10)).await;
    assert!(node.flights().is_empty());
}

#[tokio::test(start_paused = true)]
async fn t4_clones_and_routes_share_one_table() {
    let runs = Runs::default();
    let node = layer();
    let one = node.layer(numbered(&runs, ms(100)));
    let other = node.clone().layer(numbered(&runs, ms(100)));
    let clone = one.clone();
    let answers = crowd(&[&one, &other, &clone], 2, get("/")).await;
    assert_eq!(runs.total(), 1);
    assert!(answers.iter().all(|answer| answer.text() == "run 0"));
    let stats = node.stats();
    assert_eq!((stats.owner, stats.follower_local, stats.bypass), (1, 5, 0));
}

#[tokio::test(start_paused = true)]
async fn t4_two_layers_share_through_a_store_only() {
    let runs = Runs::default();
    let [one, other] = [(); 2].map(|()| layer().namespace("same").layer(numbered(&runs, ms(100))));
    crowd(&[&one, &other], 2, get("/")).await;
    assert_eq!(runs.total(), 2);

    let runs = Runs::default();
    let [one, other] = nodes().map(|node| node.layer(numbered(&runs, ms(100))));
    crowd(&[&one, &other], 2, get("/")).await;
    assert_eq!(runs.total(), 1);

    let (runs, store) = (Runs::default(), MemoryStore::new());
    let [one, other] = ["a", "b"]
        .map(|name| layer().store(store.clone()).namespace(name).layer(numbered(&runs, ms(100))));
    crowd(&[&one, &other], 2, get("/")).await;
    assert_eq!(runs.total(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_setter_gives_a_layer_of_its_own() {
    let runs = Runs::default();
    let first = layer();
    let second = first.clone().namespace("other");
    let one = first.layer(numbered(&runs, ms(100)));
    let other = second.layer(numbered(&runs, ms(100)));
    crowd(&[&one, &other], 2, get("/")).await;
    assert_eq!(runs.total(), 2);
}
