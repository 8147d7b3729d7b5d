//! What streams cost the server, and what they leave there.

use std::{sync::Arc, time::Duration};

use crate::{
    QUICK,
    figures::{Sampler, connections, until_no_key, warm},
    lab::{Lab, WIRES, Wire, sum},
    monitor::Monitor,
    support::redis_server::RedisServer,
};

const SCRIPT: &str = concat!(
    include_str!("../../../src/store/redis/scripts/head.lua"),
    include_str!("../../../src/store/redis/scripts/record.lua"),
    include_str!("../../../src/store/redis/scripts/append.lua"),
);

/// How often something was added to a stream while `during` lasts.
async fn appends<T>(redis: &RedisServer, during: impl Future<Output = T>) -> (usize, T) {
    let monitor = Monitor::start(redis);
    let done = during.await;
    let sent = monitor.end();
    let hash = sha1_smol::Sha1::from(SCRIPT).digest().to_string();
    // As much of it as a line holds.
    let begins = format!("\"EVALSHA\" \"{}", &hash[..20]);
    let count = sent.iter().filter(|sent| sent.command.starts_with(&begins)).count();
    (count, done)
}

/// Two hundred events in groups of four: one step of the store a group, be there one
/// follower elsewhere or forty, and whoever came and went before; none without one.
#[tokio::test]
async fn i15_a_group_is_one_step_whoever_follows() {
    const GROUPS: usize = 50;
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let [one, other] = &labs;
    warm(&redis, &labs).await;
    // All scripts are there.
    let path = "/work/i15-warm?ms=0&chunks=20&gap=20&bytes=2000";
    let both = [one.open(Wire::Http1, path).await, other.open(Wire::Http1, path).await];
    for stream in both {
        assert!(stream.rest().await.is_whole(2000));
    }
    let open = connections(&redis);
    let mut counts = Vec::new();
    for followers in [0, 1, 40] {
        // Far enough apart that each is a group of its own.
        let path = format!("/work/i15-{followers}?ms=0&chunks={GROUPS}&gap=40&bytes=5000");
        let (count, ()) = appends(&redis, async {
            let owner = one.open(Wire::Http1, &path).await;
            let mut all = vec![owner.reading()];
            if followers > 1 {
                // They leave again, and are forgotten.
                for n in 0..followers {
                    drop(other.open(WIRES[n % 2], &path).await);
                }
            }
            for n in 0..followers {
                all.push(other.open(WIRES[n % 2], &path).await.reading());
            }
            for n in 0..10 {
                all.push(one.open(WIRES[n % 2], &path).await.reading());
            }
            for reading in all {
                let got = reading.got().await;
                assert!(got.is_whole(5000), "{got:?}");
            }
        })
        .await;
        counts.push(count);
    }
    println!("i15: with 0, 1 and 40 followers elsewhere {counts:?} steps for {GROUPS} pieces");
    assert_eq!(counts[0], 0);
    for count in &counts[1..] {
        // The first step has what was there before the first follower.
        assert!((GROUPS / 2..=GROUPS + 1).contains(count), "{counts:?}");
    }
    assert_eq!(connections(&redis), open);
    assert_eq!(sum(&labs, "/inner/calls").await, 4 + 1 + 3);
}

/// Streams that end well, badly, by a kill, or by their last client: at no time is there
/// a key without an end, and when retention is over there is none.
#[tokio::test]
async fn e5_streams_leave_nothing() {
    let redis = Arc::new(RedisServer::start());
    let mut labs = Lab::fleet::<3>(&redis.url(), QUICK);
    let sampler = Sampler::start(&redis);
    let mut readings = Vec::new();
    for (name, query) in [
        ("well", "chunks=20&gap=50&bytes=300000"),
        ("badly", "chunks=20&gap=50&bytes=30000&fail=error"),
        ("killed", "chunks=100&gap=50&bytes=30000"),
        ("same", "chunks=30&gap=50&bytes=30000&same=1"),
    ] {
        let path = format!("/work/e5-{name}?ms=0&{query}");
        let owner = usize::from(name == "well");
        readings.push(labs[owner].open(Wire::Http1, &path).await.reading());
        for lab in &labs[1..] {
            readings.push(lab.open(Wire::Http2, &path).await.reading());
        }
    }
    let path = "/work/e5-left?ms=0&chunks=1000&gap=20&bytes=100000";
    let mut left = Vec::new();
    for lab in &labs[1..] {
        let mut stream = lab.open(Wire::Http1, path).await;
        stream.until(1000).await;
        left.push(stream);
    }
    labs[0].kill9();
    drop(left);
    let mut ends = [0, 0];
    for reading in readings {
        ends[usize::from(reading.got().await.error.is_some())] += 1;
    }
    for lab in &labs[1..] {
        lab.until_count("/inner/running", 0).await;
    }
    let took = until_no_key(&redis, Duration::from_secs(4)).await;
    let samples = sampler.end();
    println!(
        "e5: {ends:?} ended well and badly; no key {took:?} later; {} looks at {} keys, the \
         longest for {} ms",
        samples.looks, samples.keys, samples.longest
    );
    assert_eq!(samples.endless, Vec::<String>::new());
    assert!(samples.keys > 0 && samples.longest <= 5000, "{samples:?}");
    // Three that ended well, and two of the run that was the same.
    assert_eq!(ends[0], 3 + 2);
}
