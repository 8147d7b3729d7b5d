//! Processes that leave in order.

use std::time::{Duration, Instant};

use crate::{
    SLACK,
    lab::{Caller, Lab, PATIENCE, one_answer},
    support::redis_server::RedisServer,
};

const GRACE: Duration = Duration::from_secs(1);
/// A lease so long that nobody could mistake its end for a hand-over.
const LONG: &[&str] =
    &["--lease-ms", "30000", "--heartbeat-ms", "10000", "--retention-ms", "60000"];

struct Leaving {
    one: Lab,
    other: Lab,
    owner: Caller,
    follower: Caller,
    _redis: RedisServer,
}

/// An owner that will leave, and a follower elsewhere.
async fn leaving(path: impl Fn(u32) -> String) -> Leaving {
    let redis = RedisServer::start();
    let settings = [LONG, &["--grace-ms", "1000"]].concat();
    let [one, other] = Lab::fleet::<2>(&redis.url(), &settings);
    let path = path(one.pid());
    let owner = one.call(&path);
    one.until_one("owner", 0).await;
    let follower = other.call(&path);
    other.until_one("follower", 1).await;
    Leaving { one, other, owner, follower, _redis: redis }
}

/// Ten seconds for who leaves, and half of one for who goes on.
fn long_run(pid: u32) -> String {
    format!("/work/q4?ms=500&fail=hang&fail_pid={pid}")
}

async fn until_ended(lab: &mut Lab) -> Duration {
    let start = Instant::now();
    while !lab.has_ended() {
        assert!(start.elapsed() < PATIENCE, "the lab does not end");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    start.elapsed()
}

/// SIGTERM in a long run: a follower goes on right after the grace, and not when the
/// lease is over.
#[tokio::test]
async fn q4_what_the_grace_does_not_suffice_for_goes_on_elsewhere() {
    let Leaving { mut one, other, owner, follower, _redis } = leaving(long_run).await;
    let start = Instant::now();
    one.term();
    other.until_count("/inner/calls", 1).await;
    let taken = start.elapsed();
    let answer = follower.answer().await;
    let mine = owner.outcome().await;
    let ended = until_ended(&mut one).await;
    println!("q4: taken over {taken:?} after SIGTERM; the caller left behind: {mine:?}; {ended:?}");
    assert!(taken >= GRACE, "{taken:?}");
    assert!(taken <= GRACE + Duration::from_millis(300), "{taken:?}");
    assert_eq!(answer.status, 200);
    // It is told; or it follows the next run, for as long as its process lasts.
    let told = mine.as_ref().is_ok_and(|mine| mine.status == 503 || mine.body == answer.body);
    assert!(told || mine.is_err(), "{mine:?}");
    assert_eq!(other.count("/flights/takeovers").await, 1);
    assert_eq!(other.count("/inner/calls").await, 1);
}

/// SIGTERM in a short run: it ends inside the grace, and all have its answer.
#[tokio::test]
async fn q4_what_ends_inside_the_grace_is_published() {
    let Leaving { mut one, other, owner, follower, _redis } =
        leaving(|_| "/work/q4-short?ms=500".into()).await;
    let pid = one.pid();
    let start = Instant::now();
    one.term();
    let both = [owner.answer().await, follower.answer().await];
    let ended = until_ended(&mut one).await;
    let took = both[1].at - start;
    println!("q4: answered {took:?} after SIGTERM, ended {ended:?} after the answers");
    // Its server closes connections, and says so.
    assert_eq!(both[0].body, both[1].body);
    assert!(both[1].run().contains(&format!("pid={pid} ")));
    assert!(took <= Duration::from_millis(500) + SLACK, "{took:?}");
    assert_eq!(other.count("/inner/calls").await, 0);
    // Nothing is left to wait for.
    assert!(start.elapsed() <= GRACE + SLACK, "{:?}", start.elapsed());
}

/// `POST /drain` does the same, and the process stays: it serves and owns no more.
#[tokio::test]
async fn q4_a_drained_process_serves_but_owns_no_more() {
    let Leaving { one, other, owner, follower, _redis } = leaving(long_run).await;
    let start = Instant::now();
    let drained = one.post("/drain");
    other.until_count("/inner/calls", 1).await;
    let taken = start.elapsed();
    let drained = drained.answer().await;
    println!("q4: taken over {taken:?} after POST /drain, done after {:?}", drained.at - start);
    assert_eq!(drained.status, 200);
    assert!(taken <= GRACE + Duration::from_millis(300), "{taken:?}");
    let answer = follower.answer().await;
    let mine = owner.answer().await;
    assert!(mine.status == 503 || mine.run() == answer.run(), "{mine:?}");
    // A new call runs here without a lease, and follows who has one.
    let alone = one.get("/work/q4-alone?ms=50").await;
    assert!(alone.run().ends_with("token=0"), "{}", alone.run());
    let path = "/work/q4-after?ms=700";
    let elsewhere = other.call(path);
    other.until_one("owner", 0).await;
    let here = one.call(path);
    one.until_one("follower", 1).await;
    let both = [elsewhere.answer().await, here.answer().await];
    assert!(one_answer(&both).run().contains(&format!("pid={} ", other.pid())));
}
