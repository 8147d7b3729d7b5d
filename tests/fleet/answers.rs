//! What followers get of the owner's answer, and what they never get.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use crate::{
    QUICK,
    lab::{Answer, Lab, answers, one_answer, sum},
    support::redis_server::RedisServer,
};

/// An owner, and so many followers in its process and in another one.
async fn shared(labs: &[Lab; 2], path: &str, local: usize, remote: usize) -> Vec<Answer> {
    let [one, other] = labs;
    let mut callers = one.calls(1, path);
    one.until_one("owner", 0).await;
    callers.extend(one.calls(local, path));
    callers.extend(other.calls(remote, path));
    answers(callers).await
}

/// Each of very many followers gets the whole body.
#[tokio::test]
async fn b2_all_followers_get_the_same_bytes() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &[]);
    // One frame of known length, many without one, and more than goes through a script.
    for (query, bytes) in [("", 64 << 10), ("&chunks=8", 64 << 10), ("&x-big=1", 3 << 20)] {
        let path = format!("/work/b2?ms=1000&bytes={bytes}{query}");
        let start = Instant::now();
        let all = shared(&labs, &path, 100, 100).await;
        assert_eq!(all.len(), 201);
        assert_eq!(one_answer(&all).body.len(), bytes);
        println!("b2: 201 equal bodies of {bytes} bytes {query:?} after {:?}", start.elapsed());
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 3);
    assert_eq!(sum(&labs, "/flights/follower_remote").await, 300);
}

/// An error answer is an answer: followers get its status, headers and body.
#[tokio::test]
async fn b3_error_answers_are_shared_as_they_are() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    for status in [404, 400, 410, 429, 500] {
        let path = format!("/work/b3?ms=200&status={status}&set=x-why%3Aa&set=retry-after%3A7");
        let all = shared(&labs, &path, 2, 10).await;
        let answer = one_answer(&all);
        assert_eq!(answer.status, status);
        assert_eq!([&answer.headers["x-why"], &answer.headers["retry-after"]], ["a", "7"]);
        assert!(answer.run().starts_with("run="), "{answer:?}");
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 5);
    println!("b3: {} remote followers", sum(&labs, "/flights/follower_remote").await);
}

/// A run that fails is run once more; then the followers hear what happened.
#[tokio::test]
async fn b5_followers_are_told_why_there_is_no_answer() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let [one, other] = &labs;
    for fail in ["panic", "error"] {
        let path = format!("/work/b5-{fail}?ms=300&chunks=4&fail={fail}");
        let start = Instant::now();
        let owner = one.call(&path);
        one.until_one("owner", 0).await;
        let mut callers = one.calls(5, &path);
        callers.extend(other.calls(5, &path));
        let (mut told, mut own) = (0, 0);
        for caller in callers {
            match caller.outcome().await {
                Ok(answer) => {
                    assert_eq!(answer.status, 503, "{answer:?}");
                    assert_eq!(
                        answer.headers["cache-status"],
                        "tower-singleflight; detail=owner_failed"
                    );
                    assert!(answer.headers.contains_key("retry-after"));
                    told += 1;
                }
                // It was its own request that was run the second time.
                Err(_) => own += 1,
            }
        }
        assert!(owner.outcome().await.is_err());
        println!("b5: {fail}: {told} followers told, {own} ran, in {:?}", start.elapsed());
        assert_eq!((told, own), (9, 1));
        // Two runs of 300 ms each; a failure costs no one three times the run.
        assert!(start.elapsed() < Duration::from_millis(3 * 300), "{:?}", start.elapsed());
    }
    assert_eq!(sum(&labs, "/inner/calls").await, 4);
}

/// Answers that may not be shared: all who waited run at once, and in parallel.
#[tokio::test]
async fn f5_l3_followers_of_a_private_answer_run_in_parallel() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), &[]);
    let path = "/work/l3?ms=500&set=cache-control%3Ano-store";
    let start = Instant::now();
    let all = shared(&labs, path, 10, 10).await;
    let took = start.elapsed();
    println!("l3: 21 runs of 500 ms in {took:?}");
    different(&all);
    // A run, and then all the others at the same time.
    assert!(took < Duration::from_millis(1300), "{took:?}");
    assert_eq!(sum(&labs, "/inner/calls").await, 21);
    // For a while those who come later do not wait at all.
    let start = Instant::now();
    let later = answers(labs.iter().flat_map(|lab| lab.calls(5, path))).await;
    let took = start.elapsed();
    println!("l3: 10 later ones in {took:?}");
    different(&later);
    assert!(took < Duration::from_millis(900), "{took:?}");
}

/// An answer is there to be used again, and is forgotten: who follows the next flight
/// elsewhere gets that one's answer. Also where the server still has the record.
#[tokio::test]
async fn c9_a_follower_of_the_next_flight_never_gets_the_forgotten_answer() {
    let redis = RedisServer::start();
    let reusing = ["--reuse-ms", "20000"];
    for (settings, again) in [(&reusing[..], "reused"), (&reusing[..0], "owner")] {
        let labs = Lab::fleet::<2>(&redis.url(), settings);
        let [one, other] = &labs;
        // Once in the push, and once to be read.
        for bytes in [64, 50_000] {
            let name = format!("/work/c9-{again}-{bytes}");
            let path = format!("{name}?ms=500&bytes={bytes}");
            let first = one.call(&path);
            one.until_one("owner", 0).await;
            let waits = other.call(&path);
            other.until_one("follower", 1).await;
            let old = one_answer(&answers([first, waits]).await).run();
            if again == "reused" {
                let answer = other.get(&path).await;
                assert_eq!((answer.role(), answer.run()), (again, old.clone()));
                let forget = format!("/forget?path={name}?ms=500%26bytes={bytes}");
                assert!(one.post(&forget).answer().await.status.is_success());
            }
            let owner = one.call(&path);
            one.until_one("owner", 0).await;
            let follower = other.call(&path);
            other.until_one("follower", 1).await;
            let both = answers([owner, follower]).await;
            assert_ne!(one_answer(&both).run(), old);
            assert_eq!([both[0].role(), both[1].role()], ["owner", "follower"]);
        }
        assert_eq!(sum(&labs, "/inner/calls").await, 4);
    }
}

/// A session cookie belongs to one caller.
#[tokio::test]
async fn l1_a_cookie_is_given_to_no_other_caller() {
    let redis = RedisServer::start();
    let labs = Lab::fleet::<2>(&redis.url(), QUICK);
    let path = "/work/l1?ms=300&set=set-cookie%3Asid%3D1";
    let callers = labs.iter().flat_map(|lab| lab.calls(5, path)).collect::<Vec<_>>();
    let all = answers(callers).await;
    assert!(all.iter().all(|answer| answer.headers.contains_key("set-cookie")));
    different(&all);
    assert_eq!(sum(&labs, "/inner/calls").await, 10);
    for role in ["follower_local", "follower_remote", "reused"] {
        assert_eq!(sum(&labs, &format!("/flights/{role}")).await, 0);
    }
}

/// Each has an answer of its own.
fn different(answers: &[Answer]) {
    let runs: HashSet<_> = answers.iter().map(Answer::run).collect();
    assert_eq!(runs.len(), answers.len());
    assert!(answers.iter().all(|answer| answer.status == 200));
}
