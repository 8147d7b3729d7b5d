//! `examples/server`.

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::Value;

use crate::program::Server;

#[tokio::test]
async fn server() {
    let server = Server::start("server", &[]);
    let curl = server.next_curl();
    let answers = join_all(curl.iter().map(|address| server.get(address))).await;
    assert_eq!(answers.len(), 2);
    assert!(answers[0].1.contains("This is run 1 of process"), "{answers:?}");
    assert_eq!(answers[0], answers[1]);
    let (status, page) = server.get("/").await;
    assert!(status == StatusCode::OK && page.contains("<html"), "{page}");
    let burst: Value = serde_json::from_str(&server.get("/burst?q=how&n=50").await.1).unwrap();
    assert_eq!((&burst["answers"], &burst["different"]), (&50.into(), &1.into()), "{burst}");
    let stats: Value = serde_json::from_str(&server.get("/stats").await.1).unwrap();
    assert_eq!(stats["runs"], 2, "{stats}");
    if cfg!(feature = "metrics") {
        let (_, metrics) = server.get("/metrics").await;
        let runs = "single_flight_run_seconds_count{layer=\"answers\",outcome=\"done\"} 2";
        assert!(metrics.contains(runs), "{metrics}");
    }
    // As the next such line says it.
    let curl = server.next_curl();
    assert!(curl.len() == 2 && curl[0].contains("/events?"), "{curl:?}");
    let heard = join_all(curl.iter().map(|address| server.get(address))).await;
    assert!(heard[0].1.contains("data: event 10 of run 3 in process"), "{heard:?}");
    assert!(heard[0].1.ends_with("event: end\ndata: that is all\nid: 11\n\n"), "{heard:?}");
    assert_eq!(heard[0], heard[1]);
}
