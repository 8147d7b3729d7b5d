//! Giving a flight up.

use crate::{
    case::{CASE, Case, Trigger},
    proxy::{Push, Step},
    row::{Kind::*, Row, TAKEOVER, is, two, upto},
};

const fn next(kind: crate::row::Kind) -> Row {
    Row { takeovers: upto(1), ..two(kind, "bc") }
}

/// The only caller hangs up; others come when the fault is there.
const ABANDON: Case = Case {
    name: "abandon",
    step: Step::Abandon,
    before: &[0],
    trigger: Trigger::Leave,
    rows: &[
        next(CutBefore),
        next(CutAfter),
        next(DelayShort),
        next(DelayLong),
        next(SwallowReply),
        next(Refused),
        next(Late),
        Row { within: TAKEOVER, ..next(MuteUp) },
        next(MuteDown),
        next(Swap),
    ],
    ..CASE
};

const fn over(kind: crate::row::Kind) -> Row {
    Row { takeovers: is(1), ..two(kind, "a? bc") }
}

/// The owner's process leaves in the middle of the run.
const RELEASE: Case = Case {
    name: "release",
    step: Step::Release,
    trigger: Trigger::Drain,
    push: Some((1, Push::End)),
    wait: true,
    rows: &[
        over(CutBefore),
        over(CutAfter),
        over(DelayShort),
        over(DelayLong),
        over(SwallowReply),
        over(Refused),
        over(Late),
        over(SwallowPush),
        // For its own callers the store is away: it runs for them alone.
        Row { runs: is(3), within: TAKEOVER, ..over(MuteUp) },
        Row { runs: is(3), ..over(MuteDown) },
        Row { within: TAKEOVER, ..over(Swap) },
    ],
    ..CASE
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandon() {
    ABANDON.play().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release() {
    RELEASE.play().await;
}
