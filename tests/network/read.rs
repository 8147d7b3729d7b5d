//! Reading what is too large for a push, or was there before.

use crate::{
    TRANSFER,
    case::{CASE, Case, Trigger},
    inner::Shape,
    proxy::Step,
    row::{Kind::*, Row, TRANSFERS, one, two, upto},
};

/// A follower reads the record of a flight that has ended.
const FETCH: Case = Case {
    name: "fetch",
    node: 1,
    step: Step::Fetch,
    shape: Shape::Large,
    trigger: Trigger::Stage(2),
    limit: TRANSFER,
    rows: &[
        one(CutBefore),
        one(CutAfter),
        one(DelayShort),
        Row { within: TRANSFERS, ..one(DelayLong) },
        Row { within: TRANSFERS, ..one(SwallowReply) },
        one(Refused),
        Row { within: TRANSFERS, ..one(Late) },
        Row { within: TRANSFERS, ..two(MuteUp, "ac b") },
        Row { within: TRANSFERS, ..two(MuteDown, "ac b") },
        // The record is lost for who has not read it.
        Row { takeovers: upto(1), ..two(Swap, "a b c") },
    ],
    ..CASE
};

/// Who comes late to a stream reads what is there of it.
const READ: Case = Case {
    name: "read",
    step: Step::Read,
    shape: Shape::Stream,
    before: &[0, 2],
    trigger: Trigger::Call,
    rows: &[
        one(CutBefore),
        one(CutAfter),
        one(DelayShort),
        Row { within: TRANSFERS, ..one(DelayLong) },
        Row { within: TRANSFERS, ..one(SwallowReply) },
        one(Refused),
        Row { within: TRANSFERS, ..one(Late) },
        Row { within: TRANSFERS, ..two(MuteUp, "ac b") },
        Row { within: TRANSFERS, ..two(MuteDown, "ac b") },
        one(Swap),
    ],
    ..FETCH
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fetch() {
    FETCH.play().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read() {
    READ.play().await;
}
