//! Clients that hang up in the middle of a stream.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    QUICK, SLACK,
    lab::{Lab, WIRES, Wire, sum},
    support::redis_server::RedisServer,
};

const MIB: usize = 1 << 20;
/// For as many rounds as fit.
const TIME: Duration = Duration::from_secs(12);
const ROUNDS: usize = 200;

/// The owner's client hangs up at any byte of a large body: each of five others, here
/// and elsewhere, has the whole of it.
#[tokio::test]
async fn m9_a_client_that_hangs_up_at_any_byte_harms_nobody() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let start = Instant::now();
    let mut rounds = 0;
    let mut broken = Vec::new();
    while rounds < ROUNDS && start.elapsed() < TIME {
        let together = (0..4).map(|n| round(&labs, rounds + n));
        for errors in futures_util::future::join_all(together).await {
            broken.extend(errors);
        }
        rounds += 4;
    }
    let calls = sum(&labs, "/inner/calls").await;
    println!(
        "m9: {rounds} rounds in {:?}, {calls} runs; {} broke off",
        start.elapsed(),
        broken.len()
    );
    assert_eq!(broken, Vec::<String>::new());
    assert_eq!(calls, rounds as u64);
    assert_eq!(sum(&labs, "/inner/finished").await, rounds as u64);
}

/// One body; why readers of it broke off, if any did.
async fn round([one, other]: &[Lab; 2], round: usize) -> Vec<String> {
    let mut rng = StdRng::seed_from_u64(round as u64);
    let bytes = MIB + rng.random_range(0..4 * MIB);
    let leaves = rng.random_range(0..bytes);
    // Some come before there is anything, others in the middle.
    let early = round % 4 < 2;
    let (ms, gap) = if early { (150, rng.random_range(0..2)) } else { (0, 1) };
    // Pieces are larger or smaller than what the store is given at once.
    let chunks = if early { bytes / rng.random_range(5_000..100_000) } else { 400 };
    let path = format!("/work/m9-{round}?ms={ms}&bytes={bytes}&chunks={chunks}&gap={gap}");
    let owner = one.opening(WIRES[round % 2], &path);
    let (mut asked, mut opened) = (None, None);
    if early {
        // Or the other one of those that are in the air together.
        one.until("it owns", |flights| flights.iter().any(|one| one["role"] == "owner")).await;
        asked = Some(owner);
    } else {
        opened = Some(owner.opened().await);
    }
    let followers = [one, one, other, other, other].into_iter().enumerate();
    let followers: Vec<_> =
        followers.map(|(n, lab)| lab.opening(WIRES[(n + round) % 2], &path)).collect();
    let mut open = Vec::new();
    for follower in followers {
        open.push(follower.opened().await.reading());
    }
    if let Some(owner) = asked {
        opened = Some(owner.opened().await);
    }
    let mut stream = opened.expect("an answer");
    stream.until(leaves).await;
    drop(stream);
    let mut broken = Vec::new();
    for reading in open {
        let got = reading.got().await;
        if let Some(error) = &got.error {
            assert!(got.is_part(), "round {round}: {got:?}");
            broken.push(error.clone());
        } else {
            assert!(got.is_whole(bytes), "round {round}: {got:?} of {bytes}");
        }
    }
    broken
}

/// The last readers leave, here and elsewhere: the run is dropped within a beat, or goes
/// on to its end, by its setting; where only the owner's client leaves it goes on.
#[tokio::test]
async fn a4_a_stream_lasts_as_long_as_anybody_reads() {
    tokio::join!(left("abort"), left("finish"));
}

async fn left(abandon: &str) {
    const BEAT: Duration = Duration::from_millis(300);
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &[QUICK, &["--abandon", abandon]].concat());
    let [one, other] = &labs;
    let path = "/work/a4?ms=0&chunks=40&gap=50&bytes=40000";
    let mut both = [one.open(Wire::Http1, path).await, other.open(Wire::Http2, path).await];
    for stream in &mut both {
        stream.until(5000).await;
    }
    drop(both);
    let start = Instant::now();
    one.until_count("/inner/running", 0).await;
    let took = start.elapsed();
    let stats = one.stats().await;
    println!("a4: {abandon}: over {took:?} after both left; {}", stats["inner"]);
    if abandon == "abort" {
        assert!(took <= BEAT + SLACK, "{took:?}");
        assert_eq!(stats["inner"]["dropped"], 1);
    } else {
        assert_eq!(stats["inner"]["finished"], 1);
    }
    one.until("no flight", <[_]>::is_empty).await;
    let path = "/work/a4-one?ms=0&chunks=40&gap=50&bytes=40000";
    let mut owner = one.open(Wire::Http2, path).await;
    let reader = other.open(Wire::Http1, path).await.reading();
    owner.until(5000).await;
    drop(owner);
    let got = reader.got().await;
    assert!(got.is_whole(40_000), "{abandon}: {got:?}");
    assert_eq!(sum(&labs, "/inner/calls").await, 2);
}
