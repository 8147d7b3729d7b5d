//! What its buttons do to a fleet, and what is told of it.

use http::{Request, StatusCode};
use http_body_util::Full;

use super::{Playground, QUICK};

#[tokio::test]
async fn playground_takes_over_from_the_frozen() {
    let mut all = Playground::start(&QUICK).await;
    let owner = all.burst("answer", 9).await;
    all.until("its lease in Redis is renewed", |all| {
        let record = &all.state["records"][0];
        record["beats"].as_u64() >= Some(1)
            && (1..=1800).contains(&record["left_ms"].as_u64().unwrap_or(0))
            && record["waiters"] == 2
    })
    .await;
    all.done(&format!("/nodes/{owner}/freeze")).await;
    let why = format!("after the lease of node {owner}, which is frozen, ran out.");
    all.until_told(&format!("took over with token 2, {why}")).await;
    all.done(&format!("/nodes/{owner}/thaw")).await;
    // It stepped down, or was held up for so long that its run was at its end.
    all.until_told("token 2 is greater").await;
    let outcome = "All 9 callers have their answer, all the same: 2 runs were begun.";
    all.until_told(outcome).await;
    all.until("its layer has counted that", |all| {
        all.node(&owner)["counts"]["leases_lost"] == 1
            && all.state["rounds"][0]["shared"] == 8
            && all.nodes().iter().any(|node| node["counts"]["takeovers"] == 1)
    })
    .await;
}

#[tokio::test]
async fn playground_goes_on_with_a_stream_of_the_killed() {
    let mut all = Playground::start(&QUICK).await;
    let owner = all.burst("stream", 6).await;
    all.until("its words come to all", |all| {
        let hears = |node: &serde_json::Value| {
            node["callers"][0]["text"].as_str().is_some_and(|text| text.split(' ').count() > 4)
        };
        all.nodes().iter().all(hears)
    })
    .await;
    // In the middle of the flight: it gets what was before.
    all.done("/burst?kind=stream&callers=3").await;
    all.done("/scripts/flush").await;
    all.done(&format!("/nodes/{owner}/kill")).await;
    let why = format!("after the lease of node {owner}, which was killed, ran out.");
    all.until_told(&format!("took over with token 2, {why}")).await;
    let lost = "6 of 9 callers have the whole stream, 3 lost their connections, all the same";
    all.until_told(&format!("{lost}: 2 runs were begun.")).await;
    all.done(&format!("/nodes/{owner}/start")).await;
    all.until("it is back", |all| all.node(&owner)["health"] == "up").await;
    all.burst("stream", 3).await;
    all.until_told("All 3 callers have the whole stream, all the same: one run was enough.").await;
}

#[tokio::test]
async fn playground_cuts_a_node_off_from_redis() {
    let mut all = Playground::start(&QUICK).await;
    let owner = all.burst("answer", 6).await;
    all.done(&format!("/nodes/{owner}/cut")).await;
    let (status, text) = all.post(&format!("/nodes/{owner}/cut")).await;
    assert_eq!((status, text), (StatusCode::CONFLICT, no_state(&owner)));
    all.until_told(&format!("Node {owner} could not renew its lease, and stopped its run")).await;
    let why = format!("after the lease of node {owner}, which is cut off, ran out.");
    all.until_told(&format!("took over with token 2, {why}")).await;
    // Its own callers are not left to wait for Redis.
    all.until_told(&format!("Node {owner} runs without a lease, for its own callers")).await;
    all.until_told("All 6 callers have their answer, 2 different ones: 3 runs were begun.").await;
    all.done(&format!("/nodes/{owner}/heal")).await;
    all.until("it is let in again", |all| all.node(&owner)["cut"] == false).await;
    all.burst("stream", 3).await;
    all.until_told("All 3 callers have the whole stream, all the same: one run was enough.").await;
}

fn no_state(node: &str) -> String {
    format!("node {node} is not in a state for that")
}

#[tokio::test]
async fn playground_needs_no_redis() {
    let mut all = Playground::start(&["--memory", "--run-ms", "600"]).await;
    assert!(all.setting["redis"].is_null());
    all.burst("answer", 9).await;
    all.until_told("All 9 callers have their answer, all the same: one run was enough.").await;
    for path in ["/nodes/A/freeze", "/scripts/flush"] {
        assert_eq!(all.post(path).await.0, StatusCode::CONFLICT, "{path}");
    }
}

#[tokio::test]
async fn playground_is_for_its_own_page_alone() {
    let all = Playground::start(&["--memory"]).await;
    for (name, value) in [("origin", "http://example.org"), ("host", "example.org")] {
        let request = Request::post(format!("http://{}/nodes/A/kill", all.server.address));
        let request = request.header(name, value).body(Full::default()).unwrap();
        let answer = all.server.send(request).await;
        assert_eq!(answer.head.status, StatusCode::FORBIDDEN, "{name}");
    }
    for (path, status) in [
        ("/nodes/A/mend", StatusCode::NOT_FOUND),
        ("/nodes/D/kill", StatusCode::NOT_FOUND),
        ("/burst?kind=answer&callers=0", StatusCode::CONFLICT),
        ("/burst?kind=answer&callers=301", StatusCode::CONFLICT),
        ("/burst?kind=other&callers=1", StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(all.post(path).await.0, status, "{path}");
    }
    for path in ["/", "/page.css", "/page.js", "/lanes.js", "/state"] {
        let (status, text) = all.server.get(path).await;
        assert!(status == StatusCode::OK && !text.contains("https://"), "{path}");
    }
}
