//! Owners that are cut off from the server, and nobody else is.

use std::time::{Duration, Instant};

use crate::{
    QUICK, SLACK,
    figures::{meta, meta_keys},
    lab::{Lab, PATIENCE, answers, one_answer, sum},
    proxy::{Link, Proxy},
    support::redis_server::RedisServer,
};

/// The default; `QUICK`'s is a second.
const BEAT: Duration = Duration::from_secs(1);

/// Waits for the next renewal of the only lease.
async fn renewed(redis: &RedisServer) -> Instant {
    let [key] = &meta_keys(redis)[..] else { panic!("one flight") };
    let before = meta(redis, key, "heartbeatAt");
    let end = Instant::now() + PATIENCE;
    while meta(redis, key, "heartbeatAt") == before {
        assert!(Instant::now() < end, "no renewal");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Instant::now()
}

/// Half a lease without the server costs a beat, and no lease.
#[tokio::test]
async fn e1_a_cut_of_half_a_lease_is_no_loss() {
    tokio::join!(short_cut(Link::Cut), short_cut(Link::Silent));
}

async fn short_cut(link: Link) {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    let labs = [Lab::start(&proxy.url(), &[]), Lab::start(&redis.url(), &[])];
    let [one, other] = &labs;
    let path = "/work/e1?ms=7000";
    let mut callers = one.calls(2, path);
    one.until_one("owner", 1).await;
    callers.extend(other.calls(2, path));
    other.until_one("follower", 2).await;
    // Soon after a renewal, so that one beat falls into the cut: had the last one been
    // nearly a beat before, a second and a half would be all of the lease that its owner
    // may count on. A tenth of a second is for the answer to be with the owner.
    let seen = renewed(&redis).await;
    tokio::time::sleep_until((seen + BEAT / 10).into()).await;
    let cut = Instant::now();
    proxy.set(link);
    tokio::time::sleep_until((cut + Duration::from_millis(1500)).into()).await;
    proxy.set(Link::Open);
    let healed = Instant::now();
    let refreshed = renewed(&redis).await - healed;
    one_answer(&answers(callers).await);
    let errors = one.count("/store/errors").await;
    println!("e1: {link:?}: renewed {refreshed:?} after the heal, {errors} store errors");
    assert!(errors > 0, "{link:?}: a beat fell into the cut");
    assert!(refreshed <= BEAT + SLACK, "{refreshed:?}");
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
    for place in ["/flights/takeovers", "/flights/leases_lost", "/inner/dropped"] {
        assert_eq!(sum(&labs, place).await, 0, "{place}");
    }
}

/// Two leases without the server: the owner stops before another begins.
#[tokio::test]
async fn e2_an_owner_that_is_cut_off_stops_in_time() {
    tokio::join!(long_cut(Link::Cut), long_cut(Link::Silent));
}

async fn long_cut(link: Link) {
    const LEASE: Duration = Duration::from_secs(1);
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    let one = Lab::start(&proxy.url(), QUICK);
    let others = Lab::fleet::<2>(&redis.url(), QUICK);
    let path = "/work/e2?ms=3000";
    let mut mine = one.calls(1, path);
    one.until_one("owner", 0).await;
    // One more, whose request can be run when the first one's is lost.
    mine.extend(one.calls(1, path));
    let theirs: Vec<_> = others.iter().flat_map(|lab| lab.calls(5, path)).collect();
    for lab in &others {
        lab.until_one("follower", 5).await;
    }
    let beside = others[0].call("/work/e2-beside?ms=3000");
    others[0].until("it owns another", |flights| flights.len() == 2).await;
    let beside = [beside, others[1].call("/work/e2-beside?ms=3000")];

    let cut = Instant::now();
    proxy.set(link);
    let (mut dropped, mut taken) = (None, None);
    while dropped.is_none() || taken.is_none() {
        assert!(cut.elapsed() < PATIENCE, "dropped {dropped:?}, taken {taken:?}");
        // In this order: what began before the look began before the drop.
        if taken.is_none() && sum(&others, "/inner/calls").await == 2 {
            taken = Some(cut.elapsed());
        }
        if dropped.is_none() && one.count("/inner/dropped").await == 1 {
            dropped = Some(cut.elapsed());
        }
        assert!(dropped.is_some() || taken.is_none(), "two at once");
    }
    tokio::time::sleep_until((cut + 2 * LEASE).into()).await;
    proxy.set(Link::Open);
    let theirs = answers(theirs).await;
    let second = one_answer(&theirs);
    assert!(!second.run().contains(&format!("pid={} ", one.pid())), "{}", second.run());
    assert_eq!(one_answer(&answers(beside).await).status, 200);
    let mine = answers(mine).await;
    let stats = one.stats().await;
    println!("e2: {link:?}: dropped {dropped:?}, taken over {taken:?} after the cut; {stats}");
    // Its own followed nobody: they ran again by themselves.
    assert_eq!(one_answer(&mine).status, 200);
    assert!(dropped <= Some(LEASE + SLACK), "{dropped:?}");
    assert!(taken <= Some(LEASE + BEAT + SLACK), "{taken:?}");
    assert_eq!(sum(&others, "/inner/calls").await, 2);
    assert_eq!(sum(&others, "/inner/dropped").await, 0);
    assert_eq!(stats["flights"]["leases_lost"], 1);
}

/// By its setting it finishes for its own callers; others have the next one's.
#[tokio::test]
async fn e2_or_finishes_for_its_own() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    let one = Lab::start(&proxy.url(), &[QUICK, &["--lease-loss", "finish-locally"]].concat());
    let other = Lab::start(&redis.url(), QUICK);
    let path = "/work/e2-finish?ms=2000";
    let mut mine = one.calls(1, path);
    one.until_one("owner", 0).await;
    mine.extend(one.calls(3, path));
    let theirs = other.calls(3, path);
    other.until_one("follower", 3).await;
    proxy.set(Link::Silent);
    let (mine, theirs) = (answers(mine).await, answers(theirs).await);
    assert!(one_answer(&mine).run().contains(&format!("pid={} ", one.pid())));
    assert!(one_answer(&theirs).run().contains(&format!("pid={} ", other.pid())));
    proxy.set(Link::Open);
    let [calls, lost] = [one.count("/inner/calls").await, one.count("/flights/leases_lost").await];
    assert_eq!([calls, lost, other.count("/inner/calls").await], [1, 1, 1]);
}

/// The answer to `join` is late, and who asked is gone by then: the key is free soon.
#[tokio::test]
async fn i8_a_grant_that_nobody_hears_is_let_go() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    let one = Lab::start(&proxy.url(), &[]);
    let other = Lab::start(&redis.url(), &[]);
    one.get("/work/i8-warm?ms=1").await;
    other.get("/work/i8-warm?ms=1").await;
    let warm = meta_keys(&redis).len();
    for (round, held) in [(0, 100), (1, 400)] {
        let path = format!("/work/i8-{round}?ms=100");
        proxy.hold_replies(Duration::from_millis(held));
        let gone = one.call(&path);
        let end = Instant::now() + PATIENCE;
        while meta_keys(&redis).len() == warm + round {
            assert!(Instant::now() < end, "no grant");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        gone.leave();
        let start = Instant::now();
        let answer = other.get(&path).await;
        println!("i8: held for {held} ms, the next caller is answered after {:?}", start.elapsed());
        assert_eq!(answer.status, 200);
        assert!(answer.run().contains(&format!("pid={} ", other.pid())), "{}", answer.run());
        // A lease and a second would be allowed; only a release that is lost needs them.
        assert!(start.elapsed() <= Duration::from_secs(4), "{:?}", start.elapsed());
    }
    assert_eq!(one.count("/inner/running").await, 0);
    one.until("no flight", <[_]>::is_empty).await;
}
