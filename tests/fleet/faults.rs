//! The server loses scripts and connections, processes are killed, keys run out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    QUICK, SLACK,
    figures::{CONNECTIONS, Sampler, connections, until_no_key, warm},
    lab::{Caller, Lab, answers, one_answer, sum},
    proxy::Proxy,
    support::redis_server::RedisServer,
};

/// Whatever happens, each key in the server has an end, and soon none is left.
#[tokio::test]
async fn e5_every_key_runs_out() {
    let redis = Arc::new(RedisServer::start());
    let settings = [QUICK, &["--pass-ms", "2500", "--reuse-ms", "500"]].concat();
    let mut labs = Lab::fleet::<3>(&redis.url(), &settings);
    let sampler = Sampler::start(&redis);
    // Shared, large, streamed, private, failing and passing the limit of sharing.
    const KINDS: [&str; 6] = [
        "",
        "&bytes=65536",
        "&bytes=40000&chunks=10&gap=5",
        "&set=cache-control%3Ano-store",
        "&fail=error&chunks=4",
        "&fail=panic",
    ];
    let mut waiting = Vec::new();
    for round in 0..15 {
        for (kind, query) in KINDS.iter().enumerate() {
            let path = format!("/work/e5-{round}-{kind}?ms={}{query}", 100 + 40 * round);
            let mut callers: Vec<Caller> =
                labs.iter().flat_map(|lab| lab.streams(2, &path)).collect();
            // Some leave while others wait, and sometimes all.
            if round % 3 == 0 {
                callers.drain(..if kind == 1 { 6 } else { 3 }).for_each(Caller::leave);
            }
            waiting.extend(callers);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        if round == 7 {
            // In the middle of it, with flights of all kinds in the air.
            labs[0].kill9();
        }
    }
    let (mut answered, mut cut) = (0, 0);
    for caller in waiting {
        match caller.outcome().await {
            Ok(_) => answered += 1,
            Err(_) => cut += 1,
        }
    }
    // Retention is 2 s, the private mark 2.5 s: a second of slack.
    let gone = until_no_key(&redis, Duration::from_millis(3500)).await;
    let samples = sampler.end();
    println!(
        "e5: {answered} answered, {cut} cut off; no key {gone:?} after the last answer; {samples:?}"
    );
    assert!(samples.endless.is_empty(), "{:?}", samples.endless);
    assert!(samples.keys > samples.looks, "there were keys to see");
    // Marks of waiters last longest: what is left of the lease, and two leases.
    assert!(samples.longest <= 3000, "{}", samples.longest);
    assert!(sum(&labs[1..], "/flights/takeovers").await > 0);
}

/// Scripts are lost at any moment, and nobody notices.
#[tokio::test]
async fn g6_scripts_may_be_flushed_at_any_moment() {
    let redis = Arc::new(RedisServer::start());
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let over = Arc::new(AtomicBool::new(false));
    let flusher = {
        let (over, redis) = (Arc::clone(&over), Arc::clone(&redis));
        std::thread::spawn(move || {
            let mut flushed = 0;
            while !over.load(Ordering::Relaxed) {
                redis.command(&["SCRIPT", "FLUSH"]);
                flushed += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            flushed
        })
    };
    const KEYS: usize = 60;
    let mut keys = Vec::new();
    for key in 0..KEYS {
        // Some last longer than a beat, so that renewals are hit too.
        let path = format!("/work/g6-{key}?ms={}&bytes=5000", 300 + 20 * key);
        keys.push(labs.iter().flat_map(|lab| lab.calls(2, &path)).collect::<Vec<_>>());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for callers in keys {
        assert_eq!(one_answer(&answers(callers).await).status, 200);
    }
    over.store(true, Ordering::Relaxed);
    let flushed = flusher.join().expect("the flusher");
    let errors = sum(&labs, "/store/errors").await;
    println!("g6: {flushed} flushes during {KEYS} flights, {errors} store errors");
    assert!(flushed > KEYS);
    assert_eq!(sum(&labs, "/inner/calls").await, KEYS as u64);
    for place in ["/flights/takeovers", "/flights/leases_lost", "/flights/failed", "/store/errors"]
    {
        assert_eq!(sum(&labs, place).await, 0, "{place}");
    }
}

/// A result finds no room in the server: its own callers have it, and those elsewhere hear
/// so at once and run.
#[tokio::test]
async fn f6_a_result_that_finds_no_room_is_made_again_at_once() {
    const RUN: Duration = Duration::from_millis(700);
    let redis = RedisServer::start();
    // No beat of theirs falls into it.
    let labs = Lab::fleet::<2>(&redis.url(), &["--lease-ms", "10000", "--heartbeat-ms", "4000"]);
    let [one, other] = &labs;
    let path = format!("/work/f6?ms={}&bytes=20000", RUN.as_millis());
    let mut mine = one.calls(1, &path);
    one.until_one("owner", 0).await;
    mine.extend(one.calls(2, &path));
    let theirs = other.calls(5, &path);
    other.until_one("follower", 5).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(one.count("/inner/running").await, 1, "it is full before the end");
    let (mine, theirs) = (answers(mine).await, answers(theirs).await);
    let (first, second) = (one_answer(&mine), one_answer(&theirs));
    let pids = [one, other].map(|lab| format!("pid={} ", lab.pid()));
    assert!(first.run().contains(&pids[0]) && second.run().contains(&pids[1]), "{}", second.run());
    assert_eq!([first.status, second.status], [200, 200]);
    let late = second.at.saturating_duration_since(first.at);
    let store = one.stats().await["store"].clone();
    println!("f6: the answer elsewhere is {late:?} later, of a run of {RUN:?}; {store}");
    assert!(late <= RUN + 2 * SLACK, "{late:?}");
    assert_eq!(sum(&labs, "/inner/calls").await, 2);
    assert_eq!(store["by_kind"]["out_of_memory"], 1, "it was refused: {store}");
    assert_eq!(sum(&labs, "/flights/leases_lost").await, 0);
}

/// Callers that leave while they join, and connections that break: afterwards all
/// is as before.
#[tokio::test]
async fn i3_broken_connections_are_made_anew() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let one = &labs[0];
    warm(&redis, &labs).await;
    for batch in 0..10 {
        let paths = (0..100).map(|key| format!("/work/i3-{batch}-{key}?ms=5000"));
        let callers: Vec<_> = paths.flat_map(|path| one.streams(1, &path)).collect();
        tokio::time::sleep(Duration::from_millis(1)).await;
        callers.into_iter().for_each(Caller::leave);
    }
    one.until("no flight", <[_]>::is_empty).await;
    for kind in ["normal", "pubsub"] {
        redis.command(&["CLIENT", "KILL", "TYPE", kind]);
    }
    let start = Instant::now();
    let done = labs[0].count("/inner/calls").await + labs[1].count("/inner/calls").await;
    let mut keys = Vec::new();
    for key in 0..50 {
        let path = format!("/work/i3-after-{key}?ms=1000");
        keys.push(labs.iter().flat_map(|lab| lab.calls(1, &path)).collect::<Vec<_>>());
    }
    for callers in keys {
        one_answer(&answers(callers).await);
    }
    let took = start.elapsed();
    let after = connections(&redis);
    println!("i3: 100 requests after CLIENT KILL in {took:?}; then {after} connections");
    assert_eq!(sum(&labs, "/inner/calls").await - done, 50);
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(after <= CONNECTIONS * labs.len(), "{after}");
}

/// Answers of the server that come too late are never taken for another key's.
#[tokio::test]
async fn i2_a_late_reply_is_nobody_elses() {
    const KEYS: usize = 300;
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    let one = Lab::start(&redis.url(), QUICK);
    let other = Lab::start(&proxy.url(), QUICK);
    let mut rounds = Vec::new();
    for key in 0..KEYS {
        // One operation may take 250 ms. Records of this size are read by a command.
        if key % 60 == 0 {
            proxy.hold_replies(Duration::from_millis(300));
        }
        let path = format!("/work/i2-{key}?ms=150&bytes=20000");
        rounds.push([one.call(&path), other.call(&path)]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let [mut shared, mut own] = [0, 0];
    for round in rounds {
        let both = answers(round).await;
        if both[0].run() == both[1].run() {
            one_answer(&both);
            shared += 1;
        } else {
            // Its store was away: it ran alone, and nobody else has its answer.
            assert!(both[0].run().contains(&format!("pid={} ", one.pid())), "{}", both[0].run());
            assert!(both[1].run().contains(&format!("pid={} ", other.pid())), "{}", both[1].run());
            own += 1;
        }
        assert_eq!([both[0].status, both[1].status], [200, 200]);
    }
    let errors = other.count("/store/errors").await;
    println!("i2: {shared} keys shared, {own} run by both, {errors} store errors");
    assert!(errors > 0, "replies were late");
    assert!(shared > KEYS / 2, "{shared}");
    for lab in [&one, &other] {
        assert_eq!(lab.count("/flights/bad_records").await, 0);
        assert_eq!(lab.count("/flights/failed").await, 0);
    }
}
