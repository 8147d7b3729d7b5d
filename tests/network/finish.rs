//! The end of a run, and the word of it.

use crate::{
    TRANSFER,
    case::{CASE, Case, Trigger},
    inner::Shape,
    proxy::{Push, Step},
    row::{Kind, Kind::*, Row, TAKEOVER, TRANSFERS, between, is, one, two, upto},
};

/// Its own callers have their answer at once, whatever becomes of the word of it.
const fn rows(late: Row, refused: Row) -> [Row; 11] {
    [
        one(CutBefore),
        one(CutAfter),
        one(DelayShort),
        one(DelayLong),
        one(SwallowReply),
        refused,
        one(SwallowPush),
        late,
        unheard(MuteUp),
        one(MuteDown),
        // The owner owns again, to tell it.
        one(Swap),
    ]
}

/// The store takes the owner for lost, and refuses what it hears later.
const fn unheard(kind: Kind) -> Row {
    Row { takeovers: is(1), fenced: upto(1), within: TAKEOVER, ..two(kind, "a bc") }
}

const SMALL: Case = Case {
    name: "finish",
    step: Step::Finish,
    trigger: Trigger::Stage(2),
    push: Some((1, Push::End)),
    rows: &rows(one(Late), one(Refused)),
    ..CASE
};

/// What is large may take its time, and is sent again after it: the lease is kept.
const TRANSFER_LATE: Row = Row { within: TRANSFERS, ..one(Late) };

const STAGED: Case = Case {
    name: "finish-staged",
    step: Step::FinishStaged,
    shape: Shape::Large,
    limit: TRANSFER,
    rows: &rows(TRANSFER_LATE, one(Refused)),
    ..SMALL
};

/// The record, which is with the server before its end is told.
const STAGE: Case = Case {
    name: "stage",
    step: Step::Stage,
    // The end is told in the same write: who wants the record finds that there is none. The
    // next run ends at once, and who comes after that runs once more.
    rows: &rows(
        TRANSFER_LATE,
        Row { runs: between(2, 3), takeovers: upto(2), ..two(Refused, "a b c") },
    ),
    ..STAGED
};

const SEALED: Case = Case {
    name: "finish-sealed",
    step: Step::FinishSealed,
    shape: Shape::Stream,
    rows: &[
        one(CutBefore),
        one(CutAfter),
        one(DelayShort),
        one(DelayLong),
        one(SwallowReply),
        one(Refused),
        one(SwallowPush),
        one(Late),
        // They have all of it but the end.
        Row { takeovers: is(1), fenced: upto(1), within: TAKEOVER, ..two(MuteUp, "a bc!") },
        one(MuteDown),
        one(Swap),
    ],
    ..SMALL
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finish_of_a_small_answer() {
    SMALL.play().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finish_of_a_large_answer() {
    STAGED.play().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_of_a_large_answer() {
    STAGE.play().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finish_of_a_stream() {
    SEALED.play().await;
}
