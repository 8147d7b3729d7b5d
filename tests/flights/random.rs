//! Many flights over several nodes with faults at random: nobody hangs, nobody gets
//! another's answer, and nothing is left behind.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use http::{HeaderValue, Request};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{Instant, sleep, timeout};
use tower::util::BoxCloneSyncService;
use tower_singleflight::{Config, MemoryStore};

use crate::rig::*;

const NODES: usize = 4;
const FLIGHTS: usize = 20_000;
/// The longest run, and the hard timeout above it.
const LONGEST: Duration = Duration::from_secs(8);

/// What inner does is a function of the seed, the key and the run.
async fn work(seed: u64, path: String, nth: usize) -> http::Response<Reply> {
    let mut rng = StdRng::seed_from_u64(seed ^ nth as u64);
    // Most are short, a few outlive several leases.
    let longest = if rng.random_ratio(1, 20) { LONGEST } else { ms(600) };
    sleep(longest.mul_f64(rng.random::<f64>())).await;
    let mut response = answer(format!("{path} "));
    match rng.random_range(0..20) {
        0 => panic!("asked for by the seed"),
        1 => {
            let value = HeaderValue::from_static("no-store");
            response.headers_mut().insert("cache-control", value);
        }
        2 => response = answer(vec![b'x'; 5000]),
        3 => *response.status_mut() = http::StatusCode::BAD_GATEWAY,
        _ => {}
    }
    response
}

#[derive(Default)]
struct Tally {
    answered: AtomicUsize,
    failed: AtomicUsize,
    panicked: AtomicUsize,
    left: AtomicUsize,
}

async fn call(node: Node, path: String, patience: Option<Duration>, tally: Arc<Tally>) {
    // Two runs that fail, two that are lost, and the waits for a takeover between.
    let most = LONGEST * 4 + (LEASE + ms(1000)) * 3;
    let started = Instant::now();
    let call = tokio::spawn(node.call(&path));
    let answer = match patience {
        None => match timeout(most, call).await {
            Ok(answer) => answer,
            Err(_) => panic!("{path} hangs since {:?}", started.elapsed()),
        },
        Some(patience) => match timeout(patience, call).await {
            Ok(answer) => answer,
            Err(_) => {
                tally.left.fetch_add(1, SeqCst);
                return;
            }
        },
    };
    match answer {
        Err(_) => tally.panicked.fetch_add(1, SeqCst),
        Ok(answer) if answer.failure.is_some() => tally.failed.fetch_add(1, SeqCst),
        Ok(answer) => {
            let body = answer.text();
            assert!(body.starts_with(&format!("{path} ")) || body.len() == 5000, "{path}: {body}");
            tally.answered.fetch_add(1, SeqCst)
        }
    };
}

/// Cuts and heals lines, and loses the store's data, until it is dropped.
pub(crate) async fn faults(seed: u64, store: MemoryStore, lines: Vec<Line>) {
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        sleep(ms(rng.random_range(0..1500))).await;
        let line = &lines[rng.random_range(0..lines.len())];
        match rng.random_range(0..10) {
            0..4 => line.cut(),
            4..9 => line.heal(),
            _ => store.clear(),
        }
    }
}

/// Another seed by `SEED=… cargo test --test flights random`.
#[tokio::test(start_paused = true)]
async fn random_faults_leave_nobody_hanging_and_nothing_behind() {
    let seed = std::env::var("SEED").map_or(20_251_129, |seed| seed.parse().expect("a number"));
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner = {
        let counts = Arc::clone(&counts);
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            let nth = counts.calls.fetch_add(1, SeqCst);
            let run = counts.run();
            let path = request.uri().path().to_owned();
            async move {
                let response = work(seed, path, nth).await;
                run.finish();
                Ok::<_, Infallible>(response)
            }
        }))
    };
    let config = Config::builder()
        .max_share_bytes(4000)
        .hard_timeout(LONGEST + ms(1000))
        .retention(LEASE * 2)
        .private_mark(LEASE * 2)
        .build()
        .unwrap();
    let lines: Vec<_> = (0..NODES).map(|_| Line::new(&store)).collect();
    let nodes: Vec<_> =
        lines.iter().map(|line| Node::new(line.clone(), &inner, config.clone())).collect();
    let faults = tokio::spawn(faults(seed, store.clone(), lines.clone()));
    let tally = Arc::<Tally>::default();
    let mut callers = Vec::new();
    for flight in 0..FLIGHTS {
        // A few callers for each flight, some of them somewhat later.
        for _ in 0..rng.random_range(1..5) {
            let node = nodes[rng.random_range(0..NODES)].clone();
            let patience = rng.random_ratio(1, 5).then(|| ms(rng.random_range(0..2000)));
            let later = ms(rng.random_range(0..400));
            let (path, tally) = (format!("/{flight}"), Arc::clone(&tally));
            callers.push(tokio::spawn(async move {
                sleep(later).await;
                call(node, path, patience, tally).await;
            }));
        }
        sleep(ms(10)).await;
    }
    for caller in callers {
        caller.await.expect("no caller hangs or gets another's answer");
    }
    faults.abort();
    lines.iter().for_each(Line::heal);
    until(|| nodes.iter().map(Node::in_air).sum::<usize>() == 0).await;
    until(|| counts.running.load(SeqCst) == 0).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(store.len(), 0, "nothing is left in the store");
    let [answered, failed, panicked, left] =
        [&tally.answered, &tally.failed, &tally.panicked, &tally.left].map(|n| n.load(SeqCst));
    println!(
        "{FLIGHTS} flights, {} runs: {answered} answered, {failed} failed, {panicked} panicked, \
         {left} left",
        counts.calls()
    );
    // The faults must have struck, and must not have struck most.
    let stats: Vec<_> = nodes.iter().map(|node| node.layer.stats()).collect();
    assert!(stats.iter().map(|stats| stats.takeovers).sum::<u64>() > 0, "{stats:?}");
    assert!(stats.iter().map(|stats| stats.leases_lost).sum::<u64>() > 0, "{stats:?}");
    assert!(answered > (failed + panicked) * 4, "{answered} {failed} {panicked}");
}
