//! Many streams over several nodes with faults at random: no body holds bytes of two
//! runs, a hole or a repeat, none that is short ends cleanly, and nobody hangs.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{sleep, timeout};
use tower::{ServiceExt, util::BoxCloneSyncService};
use tower_singleflight::{Config, MemoryStore};

use crate::{random::faults, rig::*};

const NODES: usize = 4;
const FLIGHTS: u64 = 3000;
const IDLE: Duration = Duration::from_secs(3);

/// The whole text of a run: what it says depends on the run, for two keys of three.
fn text(seed: u64, key: u64, run: usize) -> String {
    let mut rng = StdRng::seed_from_u64(seed ^ key);
    let run = if key.is_multiple_of(3) { 0 } else { run };
    (0..rng.random_range(0..60)).map(|line| format!("{key} {run} {line}\n")).collect()
}

/// Gives a run's text in frames of any size, with pauses; a few fail or stall.
fn body(seed: u64, key: u64, nth: usize, run: Run) -> Reply {
    let mut rng = StdRng::seed_from_u64(seed ^ (nth as u64) << 20);
    let text = Bytes::from(text(seed, key, nth));
    let breaks = rng.random_ratio(1, 10).then(|| rng.random_range(0..=text.len()));
    let stalls = rng.random_ratio(1, 2);
    let state = (rng, text, 0, Some(run));
    let frames = futures_util::stream::unfold(state, move |(mut rng, text, at, run)| async move {
        let longest = if rng.random_ratio(1, 100) { ms(5000) } else { ms(150) };
        if rng.random_ratio(2, 3) {
            sleep(longest.mul_f64(rng.random::<f64>())).await;
        }
        if breaks.is_some_and(|breaks| breaks <= at) {
            if stalls {
                std::future::pending::<()>().await;
            }
            return Some((Err(io::Error::other("by the seed")), (rng, text, at, run)));
        }
        if at == text.len() {
            run.into_iter().for_each(Run::finish);
            return None;
        }
        let end = (at + rng.random_range(1..80)).min(text.len());
        let frame = Ok(Frame::data(text.slice(at..end)));
        Some((frame, (rng, text, end, run)))
    });
    StreamBody::new(frames).boxed_unsync()
}

#[derive(Default)]
struct Tally {
    whole: AtomicUsize,
    broken: AtomicUsize,
    failed: AtomicUsize,
    left: AtomicUsize,
}

/// Reads a body and holds it to what some run says.
async fn read(node: Node, seed: u64, key: u64, patience: Option<Duration>, tally: Arc<Tally>) {
    let request = Request::get(format!("http://a.test/{key}")).body(Body::default()).unwrap();
    let mut got = String::new();
    let reading = async {
        let response = node.service.oneshot(request).await.unwrap();
        if response.status() != 200 {
            return &tally.failed;
        }
        let mut body = response.into_body();
        loop {
            match body.frame().await {
                None => return &tally.whole,
                Some(Err(_)) => return &tally.broken,
                Some(Ok(frame)) => {
                    got += std::str::from_utf8(&frame.into_data().unwrap()).unwrap();
                }
            }
        }
    };
    let most = Duration::from_secs(120);
    let Ok(end) = timeout(patience.unwrap_or(most), reading).await else {
        assert!(patience.is_some(), "{key} hangs");
        tally.left.fetch_add(1, SeqCst);
        return;
    };
    end.fetch_add(1, SeqCst);
    // The run that its first line names; a part of that line may be all there is.
    let run = got.split([' ', '\n']).nth(1).and_then(|run| run.parse().ok()).unwrap_or(0);
    if std::ptr::eq(end, &tally.whole) {
        assert_eq!(got, text(seed, key, run), "{key}: not the whole of one run");
    } else if got.contains('\n') {
        assert!(text(seed, key, run).starts_with(&got), "{key}: not of one run: {got}");
    }
}

/// Another seed by `SEED=… cargo test --test flights random_streams`.
#[tokio::test(start_paused = true)]
async fn random_faults_mix_no_streams() {
    let seed = std::env::var("SEED").map_or(20_261_129, |seed| seed.parse().expect("a number"));
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let inner: InnerService = {
        let counts = Arc::clone(&counts);
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            let nth = counts.calls.fetch_add(1, SeqCst);
            let key = request.uri().path()[1..].parse().unwrap();
            let response = Response::new(body(seed, key, nth, counts.run()));
            async move { Ok(response) }
        }))
    };
    let config = Config::builder()
        .max_share_bytes(2500)
        .idle_timeout(IDLE)
        .retention(LEASE * 2)
        .build()
        .unwrap();
    let lines: Vec<_> = (0..NODES).map(|_| Line::new(&store)).collect();
    let nodes: Vec<_> =
        lines.iter().map(|line| Node::new(line.clone(), &inner, config.clone())).collect();
    let faults = tokio::spawn(faults(seed, store.clone(), lines.clone()));
    let tally = Arc::<Tally>::default();
    let mut readers = Vec::new();
    for key in 0..FLIGHTS {
        for _ in 0..rng.random_range(1..6) {
            let node = nodes[rng.random_range(0..NODES)].clone();
            let patience = rng.random_ratio(1, 4).then(|| ms(rng.random_range(0..3000)));
            let later = ms(rng.random_range(0..1500));
            let tally = Arc::clone(&tally);
            readers.push(tokio::spawn(async move {
                sleep(later).await;
                read(node, seed, key, patience, tally).await;
            }));
        }
        sleep(ms(40)).await;
    }
    for reader in readers {
        reader.await.expect("no reader hangs, and none gets what no run has said");
    }
    faults.abort();
    lines.iter().for_each(Line::heal);
    until(|| nodes.iter().map(Node::in_air).sum::<usize>() == 0).await;
    until(|| counts.running.load(SeqCst) == 0).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(store.len(), 0, "nothing is left in the store");
    let [whole, broken, failed, left] =
        [&tally.whole, &tally.broken, &tally.failed, &tally.left].map(|n| n.load(SeqCst));
    println!(
        "{FLIGHTS} streams, {} runs: {whole} whole, {broken} broken, {failed} failed, {left} left",
        counts.calls()
    );
    // The faults must have struck, and must not have struck most.
    let stats: Vec<_> = nodes.iter().map(|node| node.layer.stats()).collect();
    assert!(stats.iter().map(|stats| stats.takeovers).sum::<u64>() > 0, "{stats:?}");
    assert!(stats.iter().map(|stats| stats.follower_remote).sum::<u64>() > 0, "{stats:?}");
    assert!(broken > 0 && whole > broken * 3, "{whole} {broken}");
}
