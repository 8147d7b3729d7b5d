//! Answers that end badly, or not at all: none of them ends cleanly for anybody.

use std::time::{Duration, Instant};

use crate::{
    QUICK, SLACK,
    figures::until_no_key,
    lab::{Got, Lab, WIRES, Wire, sum},
    support::redis_server::RedisServer,
};

const BYTES: usize = 20_000;

/// What four clients got, of which two are elsewhere; or why they got no head.
async fn four(labs: &[Lab; 2], path: &str) -> Vec<Result<Got, String>> {
    let [one, other] = labs;
    let mut asked = vec![one.opening(Wire::Http1, path)];
    one.until("somebody owns", |flights| flights.iter().any(|one| one["role"] == "owner")).await;
    asked.push(one.opening(Wire::Http2, path));
    asked.extend(WIRES.map(|wire| other.opening(wire, path)));
    let mut streams = Vec::new();
    for asked in asked {
        streams.push(asked.outcome().await.map(|stream| stream.reading()));
    }
    let mut all = Vec::new();
    for stream in streams {
        all.push(match stream {
            Ok(reading) => Ok(reading.got().await),
            Err(error) => Err(error),
        });
    }
    all
}

/// All have begun, and broken off.
fn all_broken(name: &str, all: &[Result<Got, String>]) {
    for got in all {
        let got = got.as_ref().expect("a head");
        assert!(got.error.is_some() && got.is_part(), "{name}: {got:?}");
    }
}

/// A body that fails in the middle, and one that is shorter than it says.
#[tokio::test]
async fn a_body_that_breaks_off_is_broken_for_all() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    // Delivered as they come, and not.
    for (fail, shape) in [
        ("error", "chunks=20&gap=30&bytes=20000"),
        ("short", "chunks=20&gap=30&bytes=100000"),
        ("error", "bytes=20000"),
        ("short", "bytes=20000"),
    ] {
        let before = sum(&labs, "/inner/calls").await;
        let all = four(&labs, &format!("/work/bad-{fail}?ms=300&{shape}&fail={fail}")).await;
        let name = format!("{fail}, {shape}");
        let calls = sum(&labs, "/inner/calls").await - before;
        println!("bad: {name}: {calls} runs; {all:?}");
        if shape.starts_with("chunks") {
            // There is no other answer for those who have begun.
            all_broken(&name, &all);
            assert_eq!(calls, 1);
            continue;
        }
        assert_eq!(calls, 2);
        for got in all {
            let Ok(got) = got else { continue };
            // Where nobody has begun with it, it is a failure, told by a status.
            let told = got.status == 503 && got.error.is_none();
            assert!(told || (got.error.is_some() && got.is_part()), "{name}: {got:?}");
        }
    }
    until_no_key(&redis, Duration::from_secs(4)).await;
}

/// A body that stops: the idle timeout ends the run, and the one after it.
#[tokio::test]
async fn a_stall_is_an_error_to_all() {
    const IDLE: Duration = Duration::from_secs(1);
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &[QUICK, &["--idle-timeout-ms", "1000"]].concat());
    let path = format!("/work/stall?ms=300&chunks=20&gap=20&bytes={BYTES}&fail=stall");
    let start = Instant::now();
    let all = four(&labs, &path).await;
    let took = start.elapsed();
    all_broken("stall", &all);
    println!("bad: stall: {took:?}; {} runs", sum(&labs, "/inner/calls").await);
    assert!(took <= 2 * (IDLE + Duration::from_millis(600)) + SLACK, "{took:?}");
    assert!(sum(&labs, "/inner/calls").await <= 2);
    for lab in &labs {
        lab.until_count("/inner/running", 0).await;
    }
    until_no_key(&redis, Duration::from_secs(4)).await;
}

/// The same where only the first owner stalls: the next run is another one, and whose
/// run is the same goes on.
#[tokio::test]
async fn a_stall_of_one_owner_is_gone_on_with_where_the_next_one_is_the_same() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &[QUICK, &["--idle-timeout-ms", "1000"]].concat());
    let pid = labs[0].pid();
    let query = format!("ms=300&chunks=20&gap=20&bytes={BYTES}&fail=stall&fail_pid={pid}&same=1");
    let all = four(&labs, &format!("/work/stall-one?{query}")).await;
    println!("bad: one stalls: {all:?}");
    for got in &all[2..] {
        assert!(got.as_ref().is_ok_and(|got| got.is_whole(BYTES)), "{got:?}");
    }
    for got in all[..2].iter().flatten() {
        assert!(got.error.is_some() && got.is_part() || got.is_whole(BYTES), "{got:?}");
    }
}

/// Inner panics before its head: once, and then always.
#[tokio::test]
async fn b1_a_panic_before_the_head_costs_one_more_run() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let body = format!("ms=300&chunks=20&gap=20&bytes={BYTES}&fail=panic");
    let all =
        four(&labs, &format!("/work/panic-once?{body}&fail_runs=1&fail_pid={}", labs[0].pid()))
            .await;
    println!("bad: one panic: {all:?}");
    let whole = |got: &Result<Got, String>| got.as_ref().is_ok_and(|got| got.is_whole(BYTES));
    assert!(all[0].is_err() && all[1..].iter().all(whole), "{all:?}");
    assert_eq!(sum(&labs, "/inner/calls").await, 2);
    let all = four(&labs, &format!("/work/panic?{body}")).await;
    println!("bad: panics: {all:?}");
    for got in &all {
        // The panic itself, or the failure that it is to the others.
        let told = got.as_ref().map_or(true, |got| got.status == 503 && got.error.is_none());
        assert!(told, "{got:?}");
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 4);
    assert_eq!(sum(&labs, "/inner/panicked").await, 3);
}

/// A stream that never ends, larger than what is shared: three clients read on live for
/// as long as they like, and when the last one is gone so is the run.
#[tokio::test]
async fn o6_an_endless_stream_lasts_as_long_as_its_clients() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &[QUICK, &["--max-share-bytes", "65536"]].concat());
    let [one, other] = &labs;
    let path = "/work/o6?ms=0&chunks=1000000&bytes=1024000000&gap=10&type=text/event-stream";
    let mut clients = vec![one.open(Wire::Http1, path).await];
    clients.push(one.open(Wire::Http2, path).await);
    clients.push(other.open(Wire::Http1, path).await);
    // Five times what is shared.
    for client in &mut clients {
        client.until(5 * 65_536).await;
        assert_eq!(client.got().error, None);
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
    // Who comes now has no start to begin with, and is alone.
    let mut late = Vec::new();
    for lab in &labs {
        let mut client = lab.open(Wire::Http2, path).await;
        client.until(2000).await;
        println!("o6: who comes late: {:?}", client.got());
        assert!(client.got().body[..100] != clients[0].got().body[..100]);
        late.push(client);
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 3);
    drop(late);
    // The clients leave one after the other.
    while let Some(client) = clients.pop() {
        drop(client);
        if let Some(client) = clients.last_mut() {
            let before = client.got().body.len();
            client.until(before + 10_000).await;
            assert_eq!(client.got().error, None);
        }
    }
    let left = Instant::now();
    one.until_count("/inner/running", 0).await;
    println!("o6: dropped {:?} after the last client left", left.elapsed());
    // A beat, for who may be elsewhere.
    assert!(left.elapsed() <= Duration::from_millis(2 * 300) + SLACK, "{:?}", left.elapsed());
    other.until_count("/inner/running", 0).await;
    until_no_key(&redis, Duration::from_secs(4)).await;
}

/// The server's memory is full in the middle of a stream: those elsewhere hear of it
/// soon, and the owner's own clients have all of it.
#[tokio::test]
async fn j1_a_full_server_breaks_streams_elsewhere_soon() {
    let redis = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let labs = Lab::fleet::<2>(&redis.url(), &[]);
    let [one, other] = &labs;
    let path = "/work/full?ms=100&bytes=200000&chunks=40&gap=40";
    let mut own = one.open(Wire::Http1, path).await;
    let mut elsewhere = other.open(Wire::Http1, path).await;
    own.until(20_000).await;
    elsewhere.until(20_000).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let full = Instant::now();
    let (own, elsewhere) = (own.reading(), elsewhere.reading());
    let elsewhere = elsewhere.got().await;
    let told = full.elapsed();
    let own = own.got().await;
    println!("j1: told {told:?} after the server was full");
    assert!(own.is_whole(200_000), "{own:?}");
    assert!(elsewhere.error.is_some() && elsewhere.is_part(), "{elsewhere:?}");
    // The stream itself goes on for a second and a half.
    assert!(told < Duration::from_secs(2) + SLACK, "{told:?}");
    assert_eq!(sum(&labs, "/inner/calls").await, 1);
}
