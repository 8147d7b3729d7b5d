//! Owners that are lost in the middle of a stream.

use std::time::{Duration, Instant};

use crate::{
    QUICK, SLACK,
    lab::{Got, Lab, PATIENCE, Reading, WIRES, Wire, sum},
    support::redis_server::RedisServer,
};

const LEASE: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);
const BYTES: usize = 20_000;

/// An owner, and readers of its stream here and elsewhere.
struct Streaming {
    labs: [Lab; 3],
    /// The client whose request it is, and another one.
    mine: Vec<Reading>,
    /// Two on each of the other labs.
    theirs: Vec<Reading>,
    _redis: RedisServer,
}

impl Streaming {
    /// All have read a quarter of twenty pieces, a tenth of a second apart.
    async fn begun(name: &str, same: bool, settings: &[&str]) -> Self {
        let redis = RedisServer::start();
        let labs = Lab::fleet::<3>(&redis.url(), settings);
        let same = u8::from(same);
        let path = format!("/work/{name}?ms=0&chunks=20&gap=100&bytes={BYTES}&same={same}");
        let mut mine = vec![labs[0].open(Wire::Http1, &path).await];
        mine.push(labs[0].open(Wire::Http2, &path).await);
        let mut theirs = Vec::new();
        for lab in &labs[1..] {
            for wire in WIRES {
                theirs.push(lab.open(wire, &path).await);
            }
        }
        for stream in mine.iter_mut().chain(&mut theirs) {
            stream.until(BYTES / 4).await;
        }
        let [mine, theirs] =
            [mine, theirs].map(|all| all.into_iter().map(|stream| stream.reading()).collect());
        Self { labs, mine, theirs, _redis: redis }
    }

    async fn until_taken_over(&self) {
        let end = Instant::now() + PATIENCE;
        while sum(&self.labs[1..], "/inner/calls").await == 0 {
            assert!(Instant::now() < end, "no takeover");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Two runs in all, of which others see one takeover.
    async fn runs_elsewhere(&self) {
        assert_eq!(sum(&self.labs[1..], "/inner/calls").await, 1);
        assert_eq!(sum(&self.labs[1..], "/flights/takeovers").await, 1);
    }
}

/// The body of a run that was lost: all that came is right, and its end is not clean.
fn is_broken(got: &Got) {
    assert!(got.error.is_some() && got.is_part(), "{got:?}");
    assert!((BYTES / 4..BYTES).contains(&got.body.len()), "{got:?}");
}

async fn gots(readings: Vec<Reading>) -> Vec<Got> {
    let mut gots = Vec::new();
    for reading in readings {
        gots.push(reading.got().await);
    }
    gots
}

/// kill -9 in the middle: where the next run says something else, all who have begun
/// are told, over each version of HTTP in its way.
#[tokio::test]
async fn o2_a_killed_owners_stream_never_ends_cleanly() {
    let mut streaming = Streaming::begun("o2-differs", false, QUICK).await;
    let killed = Instant::now();
    streaming.labs[0].kill9();
    let theirs = gots(streaming.theirs.split_off(0)).await;
    let mine = gots(streaming.mine.split_off(0)).await;
    let took = theirs.iter().map(|got| got.at - killed).max().expect("readers");
    println!("o2: told {took:?} after the kill; {:?}", theirs[0].error);
    println!("o2: over HTTP/2: {:?}", theirs[1].error);
    theirs.iter().chain(&mine).for_each(is_broken);
    assert!(took <= LEASE + SECOND + SLACK, "{took:?}");
    streaming.runs_elsewhere().await;
}

/// Where it says the same, nobody notices.
#[tokio::test]
async fn o2_a_killed_owners_stream_goes_on_where_the_next_one_is_the_same() {
    let mut streaming = Streaming::begun("o2-same", true, QUICK).await;
    streaming.labs[0].kill9();
    streaming.until_taken_over().await;
    let theirs = gots(streaming.theirs.split_off(0)).await;
    for got in &theirs {
        assert!(got.is_whole(BYTES), "{got:?}");
    }
    streaming.runs_elsewhere().await;
}

/// A stopped owner wakes up when another one owns: its own clients go on with that
/// one's answer where it is the same, and are told where it is not.
#[tokio::test]
async fn f2_o2_a_stopped_owner_gives_nothing_of_its_own_any_more() {
    tokio::join!(stopped(false), stopped(true));
}

async fn stopped(same: bool) {
    let mut streaming = Streaming::begun("o2-stopped", same, QUICK).await;
    streaming.labs[0].stop();
    streaming.until_taken_over().await;
    // Some of the next run is out by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    streaming.labs[0].cont();
    let theirs = gots(streaming.theirs.split_off(0)).await;
    let mine = gots(streaming.mine.split_off(0)).await;
    println!("o2: stopped, same {same}: {:?} {:?}", mine[0].error, theirs[0].error);
    for got in theirs.iter().chain(&mine) {
        if same {
            assert!(got.is_whole(BYTES), "{got:?}");
        } else {
            is_broken(got);
        }
    }
    streaming.runs_elsewhere().await;
    let stats = streaming.labs[0].stats().await;
    assert_eq!((&stats["inner"]["calls"], &stats["inner"]["dropped"]), (&1.into(), &1.into()));
    assert_eq!(stats["flights"]["leases_lost"], 1);
}

/// SIGTERM: what the grace does not suffice for goes on elsewhere at once.
#[tokio::test]
async fn q4_o2_a_stream_is_handed_over_when_its_owner_leaves() {
    tokio::join!(leaving(false), leaving(true));
}

async fn leaving(same: bool) {
    const GRACE: Duration = Duration::from_millis(300);
    // A lease so long that nobody could mistake its end for a hand-over.
    let settings = ["--lease-ms", "30000", "--retention-ms", "60000", "--grace-ms", "300"];
    let mut streaming = Streaming::begun("o2-leaving", same, &settings).await;
    let start = Instant::now();
    streaming.labs[0].term();
    streaming.until_taken_over().await;
    let taken = start.elapsed();
    let theirs = gots(streaming.theirs.split_off(0)).await;
    let mine = gots(streaming.mine.split_off(0)).await;
    println!("q4: same {same}: taken over {taken:?} after SIGTERM; {:?}", mine[0].error);
    assert!(taken <= GRACE + Duration::from_millis(300) + SLACK, "{taken:?}");
    for got in &theirs {
        if same {
            assert!(got.is_whole(BYTES), "{got:?}");
        } else {
            is_broken(got);
        }
    }
    for got in &mine {
        // Its process may be gone before the next run is at its end.
        let whole = same && got.is_whole(BYTES);
        assert!(whole || (got.error.is_some() && got.is_part()), "{got:?}");
    }
    streaming.runs_elsewhere().await;
}

/// SIGTERM in a stream that ends inside the grace: nobody notices.
#[tokio::test]
async fn q4_a_stream_that_ends_inside_the_grace_is_whole() {
    let settings = [QUICK, &["--grace-ms", "5000"]].concat();
    let mut streaming = Streaming::begun("o2-grace", false, &settings).await;
    streaming.labs[0].term();
    let all = [streaming.theirs.split_off(0), streaming.mine.split_off(0)];
    for got in gots(all.into_iter().flatten().collect()).await {
        assert!(got.is_whole(BYTES), "{got:?}");
    }
    assert_eq!(sum(&streaming.labs[1..], "/inner/calls").await, 0);
}
