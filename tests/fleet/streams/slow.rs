//! Clients that read slowly, or not at all.

use std::time::{Duration, Instant};

use crate::{
    QUICK,
    figures::percentile,
    lab::{Got, Lab, WIRES, Wire, sum},
    support::redis_server::RedisServer,
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// What is shared at most.
const SHARE: usize = 512 * KIB;
/// What allocators, sockets and the two versions of HTTP hold beside it.
const BESIDE: usize = 6 * MIB;

fn settings() -> Vec<&'static str> {
    [QUICK, &["--max-share-bytes", "524288"]].concat()
}

/// Memory that the process has in use.
fn resident(lab: &Lab) -> usize {
    const PAGE: usize = 4 * KIB;
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", lab.pid())).expect("statm");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * PAGE
}

/// The most memory of each of these labs from now on, until the future is ready.
async fn most<T>(labs: &[Lab; 2], until: impl Future<Output = T>) -> ([usize; 2], T) {
    let mut until = std::pin::pin!(until);
    let mut most = [0; 2];
    loop {
        for (most, lab) in most.iter_mut().zip(labs) {
            *most = resident(lab).max(*most);
        }
        tokio::select! {
            done = &mut until => return (most, done),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
}

/// A flight of the same kind whose readers all keep up, so that what a process needs for
/// the first one counts for nothing.
async fn warm([one, other]: &[Lab; 2]) {
    let path = "/work/warm?ms=0&chunks=200&gap=1&bytes=2097152";
    let owner = one.open(Wire::Http1, path).await.reading();
    let follower = other.open(Wire::Http2, path).await.reading();
    assert!(owner.got().await.is_whole(2 * MIB));
    assert!(follower.got().await.is_whole(2 * MIB));
}

/// Eight seconds of a MiB each, whose owner's client reads a KiB a second: others are on
/// time, and the memory of both processes is bounded. The slow one is told.
#[tokio::test]
async fn o3_j4_a_slow_client_of_the_owner_holds_up_nobody() {
    const BYTES: usize = 8 * MIB;
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &settings());
    let [one, other] = &labs;
    warm(&labs).await;
    let before = [resident(one), resident(other)];
    let path = format!("/work/slow?ms=0&chunks=800&gap=9&bytes={BYTES}");
    let slow = one.open_narrow(Wire::Http1, &path).await;
    let remote = [
        other.open(Wire::Http1, &path).await.reading(),
        other.open(Wire::Http2, &path).await.reading(),
    ];
    // What it reads is what the run gives, as it gives it.
    let local = one.open(Wire::Http1, &path).await.reading();
    let slow = slow.reading_at(KIB);
    let start = Instant::now();
    let (most, gots) = most(&labs, async {
        let [one, other] = remote;
        [local.got().await, one.got().await, other.got().await]
    })
    .await;
    let took = start.elapsed();
    let mut late = Vec::new();
    for remote in &gots[1..] {
        assert!(remote.is_whole(BYTES), "{remote:?}");
        late.extend(remote.frames.iter().map(|&(bytes, at)| {
            at.saturating_duration_since(gots[0].when(bytes).max(remote.asked))
        }));
    }
    assert!(gots[0].is_whole(BYTES), "{:?}", gots[0]);
    let [p50, p99] = [50, 99].map(|percent| percentile(&mut late, percent));
    let more = [0, 1].map(|lab| most[lab].saturating_sub(before[lab]) / KIB);
    println!(
        "o3: 8 MiB in {took:?}; elsewhere later by p50 {p50:?}, p99 {p99:?}, max {:?}",
        late.last()
    );
    println!("o3: owner and follower had {more:?} KiB more than the {before:?} before");
    assert!(p99 <= Duration::from_millis(100), "{p99:?}");
    // A frame each nine milliseconds, or what the timer of a busy machine makes of it;
    // at the slow one's pace it would take two hours.
    assert!(took <= Duration::from_millis(800 * 25), "{took:?}");
    for more in more {
        assert!(more * KIB <= SHARE + BESIDE, "{more} KiB");
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 2);
    slow.leave();
}

/// The one client there is reads a KiB a second: inner waits for it.
#[tokio::test]
async fn t_a_lone_slow_client_sets_the_pace() {
    const BYTES: usize = 64 * MIB;
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &settings());
    let [one, _] = &labs;
    warm(&labs).await;
    for wire in WIRES {
        let before = resident(one);
        let start = one.count("/inner/bytes").await;
        let path = format!("/work/lone-{wire:?}?ms=0&chunks=8192&bytes={BYTES}");
        let slow = one.open_narrow(wire, &path).await.reading_at(KIB);
        let ([most, _], ()) = most(&labs, tokio::time::sleep(Duration::from_secs(2))).await;
        let given = (one.count("/inner/bytes").await - start) as usize;
        let more = most.saturating_sub(before);
        println!("t: {wire:?}: inner gave {} KiB, {} KiB more memory", given / KIB, more / KIB);
        // What sockets hold, on both sides.
        assert!(given <= SHARE + 5 * MIB, "{given}");
        assert!(more <= SHARE + BESIDE, "{more}");
        let left = Instant::now();
        slow.leave();
        one.until_count("/inner/running", 0).await;
        println!("t: {wire:?}: dropped {:?} after its client left", left.elapsed());
    }
    let stats = one.stats().await;
    assert_eq!(stats["inner"]["dropped"], 2, "{stats}");
}

/// Followers elsewhere that stop reading: a thousand pieces later they are told, and
/// who reads on has all of them.
#[tokio::test]
async fn o5_who_stops_reading_is_told_and_skips_nothing() {
    const BYTES: usize = 12 * MIB;
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &settings());
    let [one, other] = &labs;
    let path = format!("/work/o5?ms=0&chunks=1000&gap=1&bytes={BYTES}");
    let owner = one.open(Wire::Http1, &path).await.reading();
    let mut stopped = Vec::new();
    for wire in WIRES {
        stopped.push(other.open_narrow(wire, &path).await);
    }
    let follower = other.open(Wire::Http1, &path).await.reading();
    for stream in &mut stopped {
        stream.until(100 * KIB).await;
    }
    assert!(owner.got().await.is_whole(BYTES));
    assert!(follower.got().await.is_whole(BYTES));
    for stream in stopped {
        let got = stream.rest().await;
        println!("o5: {got:?}");
        assert!(got.error.is_some() && got.is_part() && got.body.len() < BYTES, "{got:?}");
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
}

/// A body that comes as fast as it is taken, far larger than what is shared: the owner's
/// client or whoever is faster has all of it, and who falls behind is told.
#[tokio::test]
async fn j4_a_large_fast_body_is_whole_for_the_fastest() {
    const BYTES: usize = 50 * MIB;
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let [one, other] = &labs;
    let readers = [vec![one], vec![one, one], vec![one, other], vec![one, one, other, other]];
    for (round, readers) in readers.iter().enumerate() {
        let path = format!("/work/j4-{round}?ms=300&chunks=1600&bytes={BYTES}");
        let mut asked = vec![one.opening(Wire::Http1, &path)];
        one.until_one("owner", 0).await;
        let others = readers[1..].iter().enumerate();
        asked.extend(others.map(|(n, lab)| lab.opening(WIRES[n % 2], &path)));
        let start = Instant::now();
        let reading =
            asked.into_iter().map(|asked| async { Ok(asked.outcome().await?.rest().await) });
        let all = futures_util::future::join_all(reading).await;
        let bytes = all.iter().map(|got: &Result<Got, String>| {
            got.as_ref().map(|got| got.body.len()).unwrap_or_default()
        });
        println!("j4: {:?} in {:?}", bytes.collect::<Vec<_>>(), start.elapsed());
        let whole = |got: &Result<Got, String>| got.as_ref().is_ok_and(|got| got.is_whole(BYTES));
        assert!(all.iter().any(whole), "{all:?}");
        for got in all.iter().flatten() {
            assert!(got.is_whole(BYTES) || (got.error.is_some() && got.is_part()), "{got:?}");
        }
    }
    assert_eq!(one.count("/inner/dropped").await, 0);
}
