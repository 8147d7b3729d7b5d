use bb8_redis::redis::parse_redis_value;

use super::*;

fn asked() -> Asked {
    Asked::new(&Names::new("ai:flight", 0), true, None).with_role()
}

/// What a server answers that has nothing to complain of, but for one answer.
fn judge(asked: &Asked, place: usize, answer: &str) -> Result<(), StoreError> {
    let mut answers = vec![
        "-NOSCRIPT No matching script. Please use EVAL.\r\n",
        "*0\r\n",
        ":1\r\n",
        ":1\r\n",
        ":1\r\n",
        ":1\r\n",
        ":1\r\n",
        "+OK\r\n",
        "+OK\r\n",
        "+OK\r\n",
        ":1\r\n",
    ];
    answers[place] = answer;
    let answers: Vec<Value> = answers
        .into_iter()
        .map(|answer| parse_redis_value(answer.as_bytes()).expect("an answer"))
        .collect();
    assert_eq!(answers.len(), asked.pipe().len());
    asked.judge(&answers)
}

#[test]
fn what_is_missing_is_named() {
    let asked = asked();
    let denied = "-NOPERM this user has no permissions to run the 'x' command\r\n";
    let key = "-NOPERM No permissions to access a key\r\n";
    let unknown = "-ERR unknown command 'x', with args beginning with: \r\n";
    for (place, answer, kind, name) in [
        (0, denied, StoreErrorKind::Denied, "EVALSHA"),
        (0, unknown, StoreErrorKind::Unsupported, "EVALSHA"),
        (1, denied, StoreErrorKind::Denied, "EVAL (scripting)"),
        (1, unknown, StoreErrorKind::Unsupported, "EVAL (scripting)"),
        (1, key, StoreErrorKind::Denied, "keys ai:flight:meta:{*}"),
        (2, key, StoreErrorKind::Denied, "keys ai:flight:waiters:{*}"),
        (3, key, StoreErrorKind::Denied, "keys ai:flight:result:{*}"),
        (4, key, StoreErrorKind::Denied, "keys ai:flight:result:{*}:*"),
        (5, key, StoreErrorKind::Denied, "keys ai:flight:stream:{*}"),
        (6, key, StoreErrorKind::Denied, "keys ai:flight:owner-seq"),
        (7, denied, StoreErrorKind::Denied, "SUBSCRIBE"),
        (7, key, StoreErrorKind::Denied, "channels ai:flight:push:0:{*}"),
        (8, denied, StoreErrorKind::Denied, "UNSUBSCRIBE"),
        (9, denied, StoreErrorKind::Denied, "ROLE"),
        (1, "*1\r\n$12\r\ncommand XADD\r\n", StoreErrorKind::Denied, "XADD"),
        (1, "*1\r\n$9\r\nchannel c\r\n", StoreErrorKind::Denied, "ai:flight:push:0:{*}"),
        (1, "*1\r\n$12\r\nunknown XADD\r\n", StoreErrorKind::Unsupported, "XADD"),
        (1, "*1\r\n$10\r\nold 6.0.16\r\n", StoreErrorKind::Unsupported, "6.0.16"),
        (1, "*1\r\n$12\r\nreadonly SET\r\n", StoreErrorKind::ReadOnly, "replica"),
        (1, "*1\r\n$4\r\nnone\r\n", StoreErrorKind::Reply, ""),
        (1, "$-1\r\n", StoreErrorKind::Reply, ""),
        (0, "-LOADING later\r\n", StoreErrorKind::Loading, "LOADING"),
        (0, "-NOAUTH Authentication required.\r\n", StoreErrorKind::Denied, "NOAUTH"),
    ] {
        let error = judge(&asked, place, answer).unwrap_err();
        assert_eq!(error.kind(), kind, "{place} {answer}: {error}");
        assert!(error.to_string().contains(name), "{place} {answer}: {error}");
        assert!(!error.to_string().contains(&asked.any), "{error}");
    }
    assert!(judge(&asked, 1, "*0\r\n").is_ok());
}

#[test]
fn all_that_is_missing_is_named() {
    let found = "*3\r\n$12\r\ncommand HSET\r\n$12\r\ncommand ZADD\r\n$9\r\nchannel c\r\n";
    let error = judge(&asked(), 1, found).unwrap_err();
    let text = "the user lacks the right to HSET, ZADD, channels ai:flight:push:0:{*}";
    assert_eq!(error.to_string(), text);
}

/// In a cluster, other commands are needed, and some keys are elsewhere.
#[test]
fn what_a_node_lacks_is_named() {
    let names = Names::new("ai:flight", 0).sharded();
    let territory = Territory::default();
    let answers = |asked: &Asked, place: usize, answer: &str| {
        let mut answers = vec!["-NOSCRIPT No matching script. Please use EVAL.\r\n", "*0\r\n"];
        answers.extend(["-MOVED 1 h:1\r\n"; 5]);
        if asked.pushes {
            answers.extend(["+OK\r\n"; 3]);
        }
        answers.extend(["+OK\r\n", "-CROSSSLOT Keys don't hash to the same slot\r\n"]);
        answers[place] = answer;
        assert_eq!(answers.len(), asked.pipe().len());
        let read = |answer: &str| parse_redis_value(answer.as_bytes()).expect("an answer");
        asked.judge(&answers.into_iter().map(read).collect::<Vec<_>>())
    };
    let asked = Asked::new(&names, true, Some(&territory));
    let quiet = Asked::new(&names, false, Some(&territory));
    for (asked, last) in [(&asked, 11), (&quiet, 8)] {
        for elsewhere in ["-MOVED 1 h:1\r\n", "-CLUSTERDOWN x\r\n", "-TRYAGAIN x\r\n"] {
            assert!(answers(asked, 1, elsewhere).is_ok());
        }
        assert!(answers(asked, last, ":1\r\n").is_ok());
    }
    let denied = "-NOPERM this user has no permissions to run the 'x' command\r\n";
    let unknown = "-ERR unknown command 'x', with args beginning with: \r\n";
    let spublish = "*1\r\n$16\r\nunknown SPUBLISH\r\n";
    for (place, answer, kind, name) in [
        (7, denied, StoreErrorKind::Denied, "SSUBSCRIBE"),
        (7, unknown, StoreErrorKind::Unsupported, "SSUBSCRIBE: a cluster needs Redis 7.0"),
        (8, denied, StoreErrorKind::Denied, "SUNSUBSCRIBE"),
        (9, denied, StoreErrorKind::Denied, "UNSUBSCRIBE"),
        (10, denied, StoreErrorKind::Denied, "ASKING"),
        (1, spublish, StoreErrorKind::Unsupported, "SPUBLISH"),
    ] {
        let error = answers(&asked, place, answer).unwrap_err();
        assert_eq!(error.kind(), kind, "{place} {answer}: {error}");
        assert!(error.to_string().contains(name), "{place} {answer}: {error}");
    }
    // Where nobody listens, nobody need publish.
    assert!(answers(&quiet, 1, spublish).is_ok());
}
