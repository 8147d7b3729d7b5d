//! `examples/server`.

use http::StatusCode;
use serde_json::Value;

use crate::program::{Server, pasted};

#[tokio::test]
async fn server() {
    let server = Server::start("server", &[]);
    // As the first of the lines that it prints, and the README, have it.
    let (line, readme) = (server.curl_line(), readme());
    let here = format!("http://{}", server.address);
    assert_eq!(readme[0], format!("$ {line}").replace(&here, "http://127.0.0.1:3000"));
    let shown = pasted(line).await;
    let shown: Vec<_> = shown.lines().map(of_any_process).collect();
    assert_eq!(shown, readme[1..].iter().map(|line| of_any_process(line)).collect::<Vec<_>>());
    let (status, page) = server.get("/").await;
    assert!(status == StatusCode::OK && page.contains("<html"), "{page}");
    // The next such line, while a crowd asks something else.
    let line = server.curl_line();
    let (burst, shown) = tokio::join!(server.get("/burst?q=how&n=50"), pasted(line));
    let burst: Value = serde_json::from_str(&burst.1).unwrap();
    assert_eq!((&burst["answers"], &burst["different"]), (&50.into(), &1.into()), "{burst}");
    let count = |what: &str| shown.lines().filter(|line| line.contains(what)).count();
    for event in 1..=10 {
        assert_eq!(count(&format!("data: event {event} of run ")), 2, "{shown}");
    }
    assert_eq!((count("event: end"), count("data: ")), (2, 22), "{shown}");
    // What it has counted, as the next lines have it.
    let stats: Value = serde_json::from_str(&server.next_curl().await).unwrap();
    assert_eq!(stats["runs"], 3, "{stats}");
    let metrics = server.next_curl().await;
    if cfg!(feature = "metrics") {
        // That the last one has ended may not be counted yet.
        let ended = |runs: u32| {
            let of = "single_flight_run_seconds_count{layer=\"answers\",outcome=\"done\"}";
            metrics.contains(&format!("{of} {runs}\n"))
        };
        assert!(ended(2) || ended(3), "{metrics}");
    } else {
        assert!(metrics.ends_with("cargo run --example server --features metrics\n"), "{metrics}");
        assert_eq!(server.get("/metrics").await.0, StatusCode::NOT_IMPLEMENTED);
    }
}

/// What the README shows of it: the line, and what comes of it.
fn readme() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let readme = std::fs::read_to_string(path).expect("the README");
    let lines = readme.lines().skip_while(|line| *line != "```console").skip(1);
    lines.take_while(|line| *line != "```").map(str::to_owned).collect()
}

/// Without the number of the process that it is of.
fn of_any_process(line: &str) -> &str {
    line.trim_end_matches('.').trim_end_matches(|c: char| c.is_ascii_digit())
}
