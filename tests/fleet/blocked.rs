//! Runs that block their runtime, or never end.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    QUICK, SLACK,
    figures::meta_keys,
    lab::{Lab, PATIENCE, answers, one_answer, sum},
    support::redis_server::RedisServer,
};

/// Of `QUICK`.
const LEASE: Duration = Duration::from_secs(1);
const BEAT: Duration = Duration::from_millis(300);

/// Waits until so many leases were granted: a blocked lab cannot be asked.
async fn until_granted(redis: &RedisServer, leases: usize) -> Instant {
    let end = Instant::now() + PATIENCE;
    while meta_keys(redis).len() < leases {
        assert!(Instant::now() < end, "not granted");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Instant::now()
}

/// All threads of the owner's runtime are blocked for more than two leases: it keeps
/// the lease.
#[tokio::test]
async fn e3_a_blocked_runtime_keeps_its_lease() {
    tokio::join!(keeps_its_lease("1"), keeps_its_lease("2"));
}

async fn keeps_its_lease(workers: &str) {
    let redis = RedisServer::start();
    let one = Lab::start(&redis.url(), &[QUICK, &["--workers", workers]].concat());
    let other = Lab::start(&redis.url(), QUICK);
    let path = "/work/e3?ms=2500&fail=block";
    let owner = one.call(path);
    let granted = until_granted(&redis, 1).await;
    let beside = match workers {
        "1" => Vec::new(),
        _ => block_beside(&one).await,
    };
    let follower = other.call(path);
    other.until_one("follower", 1).await;
    let both = answers([owner, follower]).await;
    let took = granted.elapsed();
    assert!(one_answer(&both).run().contains(&format!("pid={} ", one.pid())));
    for mut beside in beside {
        let mut status = [0; 12];
        beside.read_exact(&mut status).await.expect("an answer");
        assert_eq!(&status, b"HTTP/1.1 200");
    }
    let together = one.count("/inner/max_running").await;
    println!("e3: {together} of {workers} threads blocked: one run and one answer in {took:?}");
    assert_eq!(together.to_string(), workers);
    assert_eq!(other.count("/inner/calls").await, 0);
    assert_eq!(one.count("/flights/leases_lost").await, 0);
}

/// Blocks one more thread for as long, by requests that take no part: one that asks the
/// store may wait for the thread that is blocked, and so may one of these.
async fn block_beside(lab: &Lab) -> Vec<TcpStream> {
    let address = lab.uri("").replace("http://", "");
    let mut streams = Vec::new();
    for n in 0..4 {
        let mut stream = TcpStream::connect(&address).await.expect("a connection");
        let request = format!(
            "GET /work/e3-beside-{n}?ms=1200&fail=block HTTP/1.1\r\nhost: lab\r\n\
             cache-control: no-store\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.expect("a request");
        streams.push(stream);
    }
    streams
}

/// The hard timeout lets its lease go on time although nothing else of it moves.
#[tokio::test]
async fn e3_a_blocked_run_loses_its_lease_at_the_hard_timeout() {
    let redis = RedisServer::start();
    let settings = [QUICK, &["--workers", "1", "--hard-timeout-ms", "1000"]].concat();
    let one = Lab::start(&redis.url(), &settings);
    let other = Lab::start(&redis.url(), QUICK);
    let path = format!("/work/e3-hard?ms=3500&fail=block&fail_pid={}", one.pid());
    let start = Instant::now();
    let owner = one.call(&path);
    let granted = until_granted(&redis, 1).await;
    let follower = other.call(&path);
    other.until_one("follower", 1).await;
    other.until_count("/inner/calls", 1).await;
    let (least, most) = (granted.elapsed(), start.elapsed());
    println!("e3: the next one runs {least:?} after the grant, hard timeout {LEASE:?}");
    assert!(most >= LEASE, "{most:?}");
    assert!(least <= LEASE + BEAT + SLACK, "{least:?}");
    let answer = follower.answer().await;
    assert!(answer.run().contains(&format!("pid={} ", other.pid())), "{}", answer.run());
    let mine = owner.answer().await;
    println!("e3: the blocked one's own caller: {} {}", mine.status, mine.role());
    // The time limit, or the next one's answer; never what came after the limit.
    assert!(mine.status == 504 || mine.run() == answer.run(), "{mine:?}");
    assert_eq!(other.count("/inner/calls").await, 1);
}

/// Inner never returns: every caller ends at its limit, and the key is free again.
#[tokio::test]
async fn d1_a_hung_run_ends_at_its_limit() {
    let redis = RedisServer::start();
    let limit = Duration::from_secs(1);
    let labs = Lab::fleet::<2>(&redis.url(), &["--hard-timeout-ms", "1000"]);
    let [one, other] = &labs;
    let path = "/work/d1?fail=hang";
    let start = Instant::now();
    let owner = one.call(path);
    one.until_one("owner", 0).await;
    let mut callers = one.calls(49, path);
    callers.extend(other.calls(50, path));
    callers.push(owner);
    let all = answers(callers).await;
    let took = all.iter().map(|answer| answer.at - start).max().expect("answers");
    let statuses: Vec<_> = all.iter().map(|answer| answer.status.as_u16()).collect();
    let runs = sum(&labs, "/inner/calls").await;
    println!("d1: {} callers of a hung run all end after {took:?}, {runs} runs", all.len());
    assert!(statuses.iter().all(|status| *status == 504), "{statuses:?}");
    assert_eq!(runs, 2, "a failed run is run once more");
    assert!(took <= 2 * limit + SLACK + SLACK, "{took:?}");
    assert_eq!(sum(&labs, "/inner/running").await, 0);
    for lab in &labs {
        lab.until("no flight", <[_]>::is_empty).await;
    }
}

/// A caller alone is told at the limit, and who comes right after is a new run.
#[tokio::test]
async fn d1_a_call_after_the_limit_is_a_new_run() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &["--hard-timeout-ms", "1000"]);
    let [one, other] = &labs;
    let path = format!("/work/d1-next?ms=300&fail=hang&fail_pid={}", one.pid());
    let start = Instant::now();
    let hung = one.get(&path).await;
    let ended = hung.at - start;
    assert_eq!(hung.status, 504);
    tokio::time::sleep_until((start + Duration::from_millis(1100)).into()).await;
    let again = Instant::now();
    let answer = other.get(&path).await;
    let took = answer.at - again;
    println!("d1: told after {ended:?}; the next call took {took:?}");
    assert!(ended >= Duration::from_secs(1) && ended <= Duration::from_secs(1) + SLACK);
    assert_eq!((answer.status.as_u16(), answer.role()), (200, "owner"));
    assert!(took <= Duration::from_millis(300) + SLACK, "{took:?}");
    assert_eq!(one.count("/inner/dropped").await, 1);
    one.until("no flight", <[_]>::is_empty).await;
}
