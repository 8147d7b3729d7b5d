//! What the keeper says once a beat.

use crate::{
    case::{CASE, Case},
    proxy::Step,
    row::{Kind::*, Row, TAKEOVER, is, one, two},
};

const RENEW: Case = Case {
    name: "renew",
    step: Step::Renew,
    wait: true,
    rows: &[
        one(CutBefore),
        one(CutAfter),
        one(DelayShort),
        one(DelayLong),
        one(SwallowReply),
        one(Refused),
        one(Late),
        // Its lease is over before another's begins; it runs another caller's request
        // alone.
        Row { runs: is(3), takeovers: is(1), lost: is(1), within: TAKEOVER, ..one_away(MuteUp) },
        Row { runs: is(3), takeovers: is(1), lost: is(1), within: TAKEOVER, ..one_away(MuteDown) },
        // It owns again.
        one(Swap),
    ],
    ..CASE
};

const fn one_away(kind: crate::row::Kind) -> Row {
    Row { share: "a bc", ..one(kind) }
}

const WATCH: Case = Case {
    name: "watch",
    node: 1,
    step: Step::Watch,
    rows: &[
        one(CutBefore),
        one(CutAfter),
        one(DelayShort),
        one(DelayLong),
        one(SwallowReply),
        one(Refused),
        one(Late),
        // Its look is due when the lease that it knows of is over: the store is away.
        Row { within: TAKEOVER, ..two(MuteUp, "ac b") },
        Row { within: TAKEOVER, ..two(MuteDown, "ac b") },
        one(Swap),
    ],
    ..CASE
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renew() {
    RENEW.play().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch() {
    WATCH.play().await;
}
