//! `examples/axum.rs` and `examples/hyper.rs`.

use http::StatusCode;

use crate::program::Server;

/// Lines in an order that does not hang on who was first.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn axum() {
    let server = Server::start("axum", &[]);
    // Two seconds are enough for three requests to meet.
    let shown = server.next_curl().await;
    let count = |what: &str| shown.lines().filter(|line| line.starts_with(what)).count();
    assert_eq!((count("HTTP/1.1 200"), count("cache-status: ")), (3, 3), "{shown}");
    assert_eq!(count("cache-status: tower-singleflight; fwd=miss; collapsed"), 1, "{shown}");
    let one = |run: u32| count(&format!("all of 2024, by run {run}"));
    assert!([(2, 0), (0, 2)].contains(&(one(1), one(2))), "{shown}");
    assert_eq!(count("all of 1999, by run "), 1, "{shown}");
    assert_eq!(server.get("/health").await, (StatusCode::OK, "well\n".to_owned()));
}

#[tokio::test]
async fn hyper() {
    let server = Server::start("hyper", &[]);
    let shown = server.next_curl().await;
    let [a, same, b] = sorted(&shown)[..] else { panic!("three pages: {shown}") };
    assert!(a == same && a.starts_with("page /a of run "), "{shown}");
    assert!(b.starts_with("page /b of run "), "{shown}");
    for page in [a, b] {
        assert!(page.ends_with(" with the rates of run 1"), "{shown}");
    }
    // Later everything is made anew.
    let later = server.get("/a").await;
    assert_eq!(later, (StatusCode::OK, "page /a of run 3, with the rates of run 2\n".to_owned()));
}
