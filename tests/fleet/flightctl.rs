//! `examples/flightctl`, on a fleet that flies.

use std::{
    path::PathBuf,
    process::{Command, Output},
    time::Duration,
};

use serde_json::Value;

use crate::{
    figures::meta_keys,
    lab::{Lab, answers, one_answer},
    support::{eventually, redis_server::RedisServer, rights},
};

/// Runs it, and gives its exit status and what it said.
async fn flightctl(store: &str, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(binary());
    command.args(["--store", store]).args(args).env_remove("REDIS_URL");
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("a task");
    let Output { status, stdout, stderr } = output.expect("flightctl runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("an exit status"), text(stdout), text(stderr))
}

/// What it says as JSON, where it does well.
async fn json(store: &str, args: &[&str]) -> Value {
    let (status, out, error) = flightctl(store, &[args, &["--json"]].concat()).await;
    assert_eq!(status, 0, "{args:?}: {error}");
    serde_json::from_str(&out).unwrap_or_else(|_| panic!("{args:?} gives JSON, not {out}"))
}

fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps");
    let flightctl = profile.join("examples/flightctl");
    assert!(flightctl.is_file(), "build it by `cargo build --example flightctl`");
    flightctl
}

#[tokio::test]
async fn a_fleet_is_looked_into_and_acted_on() {
    let redis = RedisServer::start();
    let (url, labs) = (redis.url(), Lab::fleet::<3>(&redis.url(), &[]));
    let (status, table, progress) = flightctl(&url, &["list"]).await;
    assert_eq!((status, table.lines().count()), (0, 1), "{table}");
    assert!(progress.contains("steps of the scan: 1, found: 0 "), "{progress}");

    let path = "/work/seen?ms=600000";
    let mut calls = vec![labs[0].call(path)];
    labs[0].until_one("owner", 0).await;
    for lab in &labs[1..] {
        calls.extend(lab.calls(2, path));
        lab.until_one("follower", 2).await;
    }
    // One that has ended is none.
    labs[1].get("/work/other?ms=1").await;

    let list = json(&url, &["list"]).await;
    let [seen] = &list.as_array().expect("a list")[..] else { panic!("one flight: {list}") };
    let flights = labs[0].flights().await;
    let key = flights[0]["digest"].as_str().expect("a digest");
    assert_eq!((&seen["key"], &seen["status"]), (&flights[0]["digest"], &"running".into()));
    assert_eq!(seen["token"], flights[0]["token"]);
    assert_eq!(json(&url, &["list", "--all"]).await.as_array().map(Vec::len), Some(2));
    let (_, table, _) = flightctl(&url, &["list"]).await;
    assert!(table.contains(key) && table.contains("running"), "{table}");

    let one = json(&url, &["inspect", key]).await;
    let owner = one["owner"].as_str().expect("an owner");
    assert_eq!(owner.split('@').next(), Some(&*labs[0].pid().to_string()), "{owner}");
    assert_eq!((&one["waiters"], &one["in_air"]), (&2.into(), &true.into()));
    let left = one["lease_left_ms"].as_u64().expect("a lease");
    assert!(0 < left && left <= 3000, "{one}");
    assert!(one["heartbeat_ms"].as_u64().expect("a heartbeat") <= 3000 - left + 1, "{one}");
    let (status, text, _) = flightctl(&url, &["inspect", key]).await;
    assert!(status == 0 && text.contains("waiters            2\n"), "{text}");

    // Its first digits will do, as what is logged has them.
    assert_eq!(json(&url, &["inspect", &key[..16]]).await["key"], *key);
    let record = meta_keys(&redis).into_iter().find(|record| record.contains(key));
    let record = record.expect("its record");
    let twin = record.replace(&key[16..], &"0".repeat(48));
    redis.command(&["COPY", &record, &twin]);
    let (status, _, error) = flightctl(&url, &["stop", &key[..16]]).await;
    assert!(status == 2 && error.contains("begins the keys of 2 flights"), "{error}");
    redis.command(&["DEL", &twin]);

    // Forgotten, the next caller begins a new one, and the old run goes on for its own.
    assert_eq!(json(&url, &["forget", key]).await["done"], "forgotten");
    labs[1]
        .until(
            "the followers run anew",
            |flights| matches!(flights, [one] if one["token"].as_u64() > seen["token"].as_u64()),
        )
        .await;
    let next = json(&url, &["inspect", key]).await;
    assert!(next["flight"] != seen["flight"] && next["status"] == "running", "{next}");
    assert_eq!(labs[0].count("/inner/running").await, 1);

    // Stopped, all of them are told so.
    assert_eq!(json(&url, &["stop", key]).await["done"], "stopped");
    let callers = answers(calls.drain(1..)).await;
    for answer in &callers {
        assert_eq!(answer.status, 503);
    }
    assert_eq!(json(&url, &["list"]).await, Value::Array(Vec::new()));
    assert_eq!(json(&url, &["inspect", key]).await["status"], "stopped");
    let (status, _, error) = flightctl(&url, &["inspect", &key[..16]]).await;
    assert!(status == 3 && error.contains("begins no key of a flight in the air"), "{error}");
    assert_eq!(json(&url, &["inspect", "--all", &key[..16]]).await["key"], *key);
    let (status, _, error) = flightctl(&url, &["stop", key]).await;
    assert_eq!(status, 3, "{error}");
    assert!(error.contains("nothing was in the air of") && error.contains(key), "{error}");

    // And another one may fly.
    let quick = labs[2].calls(2, "/work/seen?ms=600");
    one_answer(&answers(quick).await);
}

#[tokio::test]
async fn what_cannot_be_done_is_said() {
    let redis = RedisServer::start();
    let url = redis.url();
    let key = "0".repeat(64);
    for (args, code, says) in [
        (&["inspect", &*key][..], 3, "there is nothing of 000"),
        (&["forget", &*key], 3, "nothing was in the air, or kept, of 000"),
        (&["inspect", "abc"], 2, "KEY (abc): a key digest has 64 lowercase hexadecimal digits"),
        (&["inspect"], 2, "inspect needs a KEY"),
        (&["land"], 2, "land is no command"),
        (&[], 2, "a command is missing"),
        (&["list", "--limit", "0"], 2, "--limit (0) must be a number above 0"),
        (&["list", "--every"], 2, "--every needs a value"),
        (&["list", "--loud"], 2, "there is no option --loud"),
        (&["list", "--prefix", ""], 2, "--prefix (\"\") must be"),
        (&["list", "--store", "http://127.0.0.1/"], 2, "--store (http://127.0.0.1/): "),
        (&["list", "--store", "redis://127.0.0.1:1/"], 1, "could not connect to 127.0.0.1:1"),
    ] {
        let (status, out, error) = flightctl(&url, args).await;
        assert_eq!((status, &*out), (code, ""), "{args:?}: {error}");
        assert!(error.contains(says), "{args:?}: {error}");
    }
    let (status, help, _) = flightctl(&url, &["--help"]).await;
    assert!(status == 0 && help.contains("inspect KEY"), "{help}");
    // The layer's own rights are enough for one key, and not to look for all.
    redis.set_user("flight", &rights::of_the_guide());
    let url = redis.url_for("flight", rights::PASSWORD, 0);
    assert_eq!(flightctl(&url, &["inspect", &key]).await.0, 3);
    let (status, _, error) = flightctl(&url, &["list"]).await;
    assert!(status == 1 && error.contains("the user lacks the right to SCAN"), "{error}");
    redis.set_user("flight", &["+scan".to_owned()]);
    assert_eq!(flightctl(&url, &["list"]).await.0, 0);
}

/// Beginnings and ends, line by line.
#[tokio::test]
async fn a_fleet_is_watched() {
    let redis = RedisServer::start();
    let lab = Lab::start(&redis.url(), &[]);
    let mut child = Command::new(binary())
        .args(["--store", &redis.url(), "watch", "--json", "--every", "50"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("flightctl runs");
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let seen = tokio::task::spawn_blocking(move || {
        let seen = lines.map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON"));
        seen.take(2).collect::<Vec<Value>>()
    });
    lab.get("/work/watched?ms=600").await;
    let seen = tokio::time::timeout(Duration::from_secs(20), seen).await;
    let _ = child.kill();
    let _ = child.wait();
    let seen = seen.expect("two lines").expect("a task");
    assert_eq!((&seen[0]["status"], &seen[1]["in_air"]), (&"running".into(), &false.into()));
    assert_eq!(seen[0]["key"], seen[1]["key"]);
    eventually("one record", async || meta_keys(&redis).len() == 1).await;
}
