//! Clusters whose masters are killed, frozen and replaced under load, and whose slots
//! move during flights.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::block_in_place;

use crate::{
    QUICK, SLACK,
    figures::percentile,
    lab::{Answer, Got, Lab, PATIENCE, Wire, answers, one_answer, sum},
    support::cluster::Cluster,
};

const RUN: Duration = Duration::from_millis(50);

/// The token that the handler was given: none on a bypass, or without the store.
fn token(run: &str) -> u64 {
    let token = run.split_once("token=").expect("a token").1;
    token.parse().expect("a number")
}

/// One call of steady load.
struct Called {
    at: Instant,
    took: Duration,
    token: u64,
}

/// Calls now one lab, now the other, with keys of all slots, until told to stop.
async fn load(labs: &[Lab; 2], name: &str, stop: &AtomicBool) -> Vec<Called> {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let mut calls = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let n = calls.len();
        let path = format!("/work/{name}-{n}?ms={}", RUN.as_millis());
        calls.push((Instant::now(), labs[n % 2].call(&path)));
    }
    let mut called = Vec::new();
    for (at, call) in calls {
        let answer = call.answer().await;
        assert_eq!(answer.status, 200);
        let took = answer.at - at;
        called.push(Called { at, took, token: token(&answer.run()) });
    }
    called
}

/// How long after a moment calls were still made without the store, of so many calls.
fn judge(what: &str, called: &[Called], from: Instant, over: Instant) {
    let without: Vec<_> = called.iter().filter(|c| c.at >= from && c.token == 0).collect();
    let last = without.iter().map(|call| call.at).max();
    let back = last.map_or(Duration::ZERO, |last| last.saturating_duration_since(over));
    let mut took: Vec<_> = called.iter().filter(|c| c.at >= from).map(|c| c.took).collect();
    let [p50, p99] = [50, 99].map(|percent| percentile(&mut took, percent));
    let most = took.last().copied().unwrap_or_default();
    println!(
        "{what}: in place after {:?}; {} of {} calls without the store, the last {back:?} after \
         that; p50 {p50:?} p99 {p99:?} max {most:?}",
        over - from,
        without.len(),
        took.len()
    );
    assert!(back < Duration::from_secs(5), "{back:?}");
    // A run, and what one operation may take.
    let limit = RUN + Duration::from_millis(250) + 2 * SLACK;
    assert!(most < limit, "{most:?}");
    let end = called.last().expect("calls").at;
    assert!(last.is_none_or(|last| end - last > Duration::from_millis(500)), "not back");
}

/// Runs load while one thing after the other is done to the cluster, each of which
/// answers when somebody else is in place.
async fn under_load(
    labs: [Lab; 2],
    name: &str,
    faults: usize,
    mut fault: impl FnMut(usize) -> Instant,
) -> [Lab; 2] {
    let labs = Arc::new(labs);
    for n in 0..faults {
        let stop = Arc::new(AtomicBool::new(false));
        let what = format!("{name}-{n}");
        let calling = {
            let (labs, stop, what) = (Arc::clone(&labs), Arc::clone(&stop), what.clone());
            tokio::spawn(async move { load(&labs, &what, &stop).await })
        };
        tokio::time::sleep(Duration::from_millis(500)).await;
        let from = Instant::now();
        let over = block_in_place(|| fault(n));
        // All is as before within five seconds of that.
        let end = over + Duration::from_millis(5500);
        while Instant::now() < end {
            let states = [labs[0].stats().await, labs[1].stats().await];
            if states.iter().all(|stats| stats["store"]["state"] == "ok") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
        stop.store(true, Ordering::Relaxed);
        let called = calling.await.expect("all answered");
        judge(&what, &called, from, over);
    }
    match Arc::try_unwrap(labs) {
        Ok(labs) => labs,
        Err(_) => panic!("the load has ended"),
    }
}

async fn warm(labs: &[Lab; 2]) {
    for (n, lab) in labs.iter().enumerate() {
        for key in 0..12 {
            lab.get(&format!("/work/warm-{n}-{key}?ms=0")).await;
        }
    }
}

/// Waits until somebody who lives is the master of this slot.
fn replaced(cluster: &Cluster, slot: u16, old: usize) -> Instant {
    let end = Instant::now() + PATIENCE;
    while cluster.owner(slot).is_none_or(|owner| owner == old) {
        assert!(Instant::now() < end, "nobody took its place");
        std::thread::sleep(Duration::from_millis(10));
    }
    Instant::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_masters_that_are_killed_cost_no_answer() {
    let mut cluster = Cluster::start();
    let labs = Lab::fleet::<2>(&cluster.url(""), QUICK);
    warm(&labs).await;
    let slots = [100, 8_000, 16_000];
    under_load(labs, "g1-killed", 3, |n| {
        let master = cluster.owner(slots[n]).expect("a master");
        cluster.nodes[master].kill();
        replaced(&cluster, slots[n], master)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_planned_failovers_cost_no_answer() {
    let cluster = Cluster::start();
    let labs = Lab::fleet::<2>(&cluster.url(""), QUICK);
    warm(&labs).await;
    under_load(labs, "g2-failover", 3, |n| {
        cluster.fail_over(3 + n);
        let over = Instant::now();
        cluster.settle();
        over
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g3_a_master_that_freezes_holds_up_nobody() {
    let cluster = Cluster::start();
    let labs = Lab::fleet::<2>(&cluster.url(""), QUICK);
    warm(&labs).await;
    under_load(labs, "g3-frozen", 1, |_| {
        let master = cluster.owner(100).expect("a master");
        cluster.nodes[master].freeze();
        replaced(&cluster, 100, master)
    })
    .await;
}

/// The slot of the one flight that is in the air.
async fn slot_of(cluster: &Cluster, lab: &Lab) -> u16 {
    let flights = lab.flights().await;
    let digest = flights[0]["digest"].as_str().expect("a digest").to_owned();
    block_in_place(|| cluster.slot(&format!("{{{digest}}}")))
}

/// A slot moves under an owner and followers in another process: at once, and slowly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_a_slot_moves_under_a_flight() {
    let cluster = Cluster::start();
    let labs = Lab::fleet::<2>(&cluster.url(""), QUICK);
    warm(&labs).await;
    let [one, two] = &labs;
    for (name, bytes, limbo) in [
        ("small", 100, Duration::ZERO),
        ("large", 100_000, Duration::ZERO),
        ("slow", 100, Duration::from_millis(400)),
        ("slower", 100, Duration::from_millis(2500)),
    ] {
        let before = sum(&labs, "/inner/calls").await;
        let path = format!("/work/moves-{name}?ms=4000&bytes={bytes}");
        let mut callers = one.calls(2, &path);
        one.until_one("owner", 1).await;
        callers.extend(two.calls(2, &path));
        two.until_one("follower", 2).await;
        let slot = slot_of(&cluster, one).await;
        let from = cluster.owner(slot).expect("a master");
        let to = (from + 1) % 3;
        block_in_place(|| {
            cluster.begin_move(slot, from, to);
            std::thread::sleep(limbo);
            cluster.move_keys(slot, from, to);
            cluster.end_move(slot, from, to);
        });
        let answers = answers(callers).await;
        let runs = sum(&labs, "/inner/calls").await - before;
        let late = answers[2..].iter().map(|answer| answer.at).max().expect("followers");
        let late = late.saturating_duration_since(answers[0].at);
        println!("moved, {name}: {runs} runs, the followers elsewhere {late:?} late");
        assert!(answers.iter().all(|answer| answer.status == 200));
        // One that is in limbo for longer than a lease may run twice, and no more.
        if limbo < Duration::from_secs(1) {
            one_answer(&answers);
            assert_eq!(runs, 1);
            assert!(late < Duration::from_millis(300) + SLACK, "{late:?}");
        }
        assert!(runs <= 2, "{runs}");
    }
    println!("moved: {}", one.stats().await["store"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_a_slot_moves_under_a_stream() {
    let cluster = Cluster::start();
    let labs = Lab::fleet::<2>(&cluster.url(""), QUICK);
    warm(&labs).await;
    let [one, two] = &labs;
    for (name, limbo) in [("at-once", 0), ("slow", 400)] {
        let before = sum(&labs, "/inner/calls").await;
        let path = format!("/work/stream-{name}?ms=0&chunks=30&gap=100&bytes=30000");
        let owner = one.open(Wire::Http1, &path).await;
        let followers = [
            two.open(Wire::Http1, &path).await.reading(),
            two.open(Wire::Http2, &path).await.reading(),
        ];
        let owner = owner.reading();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let slot = slot_of(&cluster, one).await;
        let from = cluster.owner(slot).expect("a master");
        let to = (from + 1) % 3;
        block_in_place(|| {
            cluster.begin_move(slot, from, to);
            std::thread::sleep(Duration::from_millis(limbo));
            cluster.move_keys(slot, from, to);
            cluster.end_move(slot, from, to);
        });
        let mut all = vec![owner.got().await];
        for follower in followers {
            all.push(follower.got().await);
        }
        let runs = sum(&labs, "/inner/calls").await - before;
        let lateness = |got: &Got| {
            let ends = all[0].frames.iter();
            ends.map(|(end, at)| got.when(*end).saturating_duration_since(*at)).max()
        };
        let late = all[1..].iter().filter_map(lateness).max().expect("frames");
        println!("moved, stream {name}: {runs} runs, frames elsewhere at most {late:?} late");
        for got in &all {
            assert!(got.is_whole(30_000), "{got:?}");
            assert_eq!(got.body, all[0].body);
        }
        assert_eq!(runs, 1);
        assert!(late < Duration::from_millis(limbo + 500) + SLACK, "{late:?}");
    }
}

/// All is as fast, and shared as well, as on one server; keys lie on all masters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g13_flights_of_one_namespace_are_on_all_masters() {
    const FLIGHTS: usize = 60;
    let cluster = Cluster::start();
    let labs = Lab::fleet::<2>(&cluster.url(""), &[]);
    warm(&labs).await;
    let before = sum(&labs, "/inner/calls").await;
    let mut late = Vec::new();
    for n in 0..FLIGHTS {
        let path = format!("/work/g13-{n}?ms=60");
        let callers = [labs[n % 2].call(&path), labs[(n + 1) % 2].call(&path)];
        let both: Vec<Answer> = answers(callers).await;
        one_answer(&both);
        let apart = both[0].at.max(both[1].at) - both[0].at.min(both[1].at);
        late.push(apart);
    }
    assert_eq!(sum(&labs, "/inner/calls").await - before, FLIGHTS as u64);
    let [p50, p99] = [50, 99].map(|percent| percentile(&mut late, percent));
    let counts: Vec<_> =
        (0..3).map(|n| cluster.nodes[n].lines(&["KEYS", "ai:flight:meta:*"]).len()).collect();
    println!("g13: apart p50 {p50:?} p99 {p99:?}; records on the masters: {counts:?}");
    assert!(counts.iter().all(|count| *count > FLIGHTS / 8), "{counts:?}");
}
