//! Bodies that are larger than what is kept to be shared, and are not handed out as
//! they come.

use bytes::Bytes;
use tokio::time::Instant;
use tower::Layer;
use tower_singleflight::{Config, Delivery};

use crate::{
    script::{Hint, Script, Step},
    support::{ALONE, Inner, Runs, crowd, get, ms, nodes, sure},
};

const MOST: usize = 64 * 1024;

fn config() -> Config {
    Config::builder().max_share_bytes(MOST).delivery(Delivery::Buffered).build().unwrap()
}

/// Bytes that tell where they are.
fn pattern(run: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 + at + run) as u8).collect()
}

/// Answers with this many bytes in pieces, and trailers.
fn inner(runs: &Runs, length: usize, piece: usize, known: Hint) -> Inner<Script> {
    ending(runs, length, piece, known, Some(Step::Trailers))
}

fn ending(
    runs: &Runs,
    length: usize,
    piece: usize,
    known: Hint,
    last: Option<Step>,
) -> Inner<Script> {
    sure(runs, ms(500), move |run, _| {
        let all = Bytes::from(pattern(run, length));
        let pieces = (0..length).step_by(piece);
        let data = pieces.map(|at| Step::Data(all.slice(at..(at + piece).min(length))));
        let head = (known == Hint::Exact).then_some(length as u64);
        Script::new(data.chain(last.clone())).hint(known).response(head)
    })
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_goes_to_its_own_caller_alone() {
    for (length, piece, known) in [
        (MOST + 1, MOST + 1, Hint::Exact),
        (MOST + 1, MOST + 1, Hint::None),
        (MOST * 3, 1000, Hint::None),
        (MOST * 3, 1000, Hint::Lower),
        (MOST * 3, 1000, Hint::Exact),
        // Small pieces cost more than their bytes.
        (MOST / 2, 1, Hint::None),
    ] {
        let name = format!("{length} bytes in pieces of {piece}, {known:?}");
        let runs = Runs::default();
        let [here, there] =
            nodes().map(|node| node.config(config()).layer(inner(&runs, length, piece, known)));
        let start = Instant::now();
        let answers = crowd(&[&here, &there], 5, get("/")).await;
        assert_eq!(start.elapsed(), ms(1000), "{name}");
        assert_eq!((runs.total(), runs.highest()), (10, 9), "{name}");
        let mut seen: Vec<_> = answers.iter().map(|answer| answer.body.clone()).collect();
        seen.sort();
        let mut expected: Vec<_> = (0..10).map(|run| pattern(run, length)).collect();
        expected.sort();
        assert!(seen == expected, "{name}: bytes are lost or mixed");
        assert!(answers.iter().all(|answer| answer.trailers.is_some()), "{name}");
        assert_eq!(answers.iter().filter(|answer| answer.is_owner()).count(), 1);
        assert_eq!(answers.iter().filter(|answer| answer.role == ALONE).count(), 9);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_at_the_limit_is_shared() {
    for (length, piece, last) in [
        (MOST, MOST, None),
        (MOST, 1024, None),
        // Trailers count too, and each frame for 64 bytes at least.
        (MOST - 64, 1024, Some(Step::Trailers)),
        (MOST / 64, 1, None),
        (0, 1, Some(Step::Trailers)),
    ] {
        let runs = Runs::default();
        let [here, there] = nodes().map(|node| {
            let inner = ending(&runs, length, piece, Hint::None, last.clone());
            node.config(config()).layer(inner)
        });
        let answers = crowd(&[&here, &there], 5, get("/")).await;
        assert_eq!(runs.total(), 1, "{length}");
        assert!(answers.iter().all(|answer| answer.body == pattern(0, length)));
        assert!(answers.iter().all(|answer| answer.trailers.is_some() == last.is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn b4_a_large_answer_is_no_failure() {
    let runs = Runs::default();
    let nodes = nodes::<2>();
    let nodes = nodes.map(|node| node.config(config()));
    let [here, there] = [0, 1].map(|n| nodes[n].layer(inner(&runs, MOST * 2, 1000, Hint::None)));
    let answers = crowd(&[&here, &there], 5, get("/")).await;
    assert!(answers.iter().all(|answer| answer.failure.is_none() && answer.status == 200));
    let stats = nodes.map(|node| node.stats());
    assert_eq!(stats.iter().map(|stats| stats.owner).sum::<u64>(), 1);
    assert_eq!(stats.iter().map(|stats| stats.bypass).sum::<u64>(), 9);
    assert_eq!(stats.iter().map(|stats| stats.failed + stats.takeovers).sum::<u64>(), 0);
}
