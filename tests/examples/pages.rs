//! `examples/hyper.rs`.

use futures_util::future::join_all;
use http::StatusCode;

use crate::program::Server;

#[tokio::test]
async fn hyper() {
    let server = Server::start("hyper", &[]);
    // As the line that is printed says it.
    let curl = server.next_curl();
    assert_eq!(curl.len(), 3);
    let answers = join_all(curl.iter().map(|address| server.get(address))).await;
    let [a, same, b] = answers.try_into().expect("three");
    // Two seconds are enough for three requests to meet.
    assert_eq!(a, same);
    assert_ne!(a, b);
    for (status, page) in [a, b] {
        assert_eq!(status, StatusCode::OK);
        assert!(page.ends_with("with the rates of run 1\n"), "{page}");
    }
    // Later everything is made anew.
    let (_, later) = server.get("/a").await;
    assert_eq!(later, "page /a of run 3, with the rates of run 2\n");
}
