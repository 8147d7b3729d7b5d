//! Coming together: who owns, who follows, and who listens.

use crate::{
    case::{CASE, Case, Trigger},
    inner::Shape,
    proxy::{Push, Step},
    row::{Kind::*, Row, between, one, two, upto},
};

/// The first caller's `join`: the others come when the fault is there.
const OWN: Case = Case {
    name: "own",
    step: Step::Join,
    before: &[],
    trigger: Trigger::Call,
    rows: &[
        one(CutBefore),
        one(CutAfter),
        one(DelayShort),
        // It runs alone. A grant that it did not hear of is taken back, and may be
        // followed for as long as that takes.
        Row { takeovers: upto(1), ..two(DelayLong, "a bc") },
        Row { takeovers: upto(1), ..two(SwallowReply, "a bc") },
        two(Refused, "a bc"),
        two(Late, "a bc"),
        two(MuteUp, "a bc"),
        Row { takeovers: upto(1), ..two(MuteDown, "a bc") },
        one(Swap),
    ],
    ..CASE
};

const FOLLOWS: &[Row] = &[
    one(CutBefore),
    one(CutAfter),
    one(DelayShort),
    // For it the store is away: it runs alone.
    two(DelayLong, "ac b"),
    two(SwallowReply, "ac b"),
    two(Refused, "ac b"),
    two(Late, "ac b"),
    two(MuteUp, "ac b"),
    two(MuteDown, "ac b"),
    // The data is lost: who comes first to the new server owns there, and is followed
    // by all.
    Row { runs: between(1, 2), lost: upto(1), ..one(Swap) },
];

const FOLLOW: Case = Case {
    name: "follow",
    node: 1,
    step: Step::Join,
    before: &[0],
    trigger: Trigger::Call,
    rows: FOLLOWS,
    ..CASE
};

/// It follows already, and is told to look: at once, or at a beat.
const SUBSCRIBE: Case = Case {
    name: "subscribe",
    step: Step::Subscribe,
    rows: &[
        one(CutBefore),
        one(CutAfter),
        one(DelayShort),
        one(DelayLong),
        one(SwallowReply),
        one(Refused),
        one(Late),
        // It looks in vain.
        two(MuteUp, "ac b"),
        two(MuteDown, "ac b"),
        Row { runs: between(1, 2), lost: upto(1), ..one(Swap) },
    ],
    ..FOLLOW
};

/// Of a stream that nobody had watched: its owner is told.
const WATCHED: Case = Case {
    name: "watched",
    shape: Shape::Stream,
    push: Some((0, Push::Watched)),
    rows: &[
        one(CutBefore),
        one(CutAfter),
        one(DelayShort),
        two(DelayLong, "ac b"),
        two(SwallowReply, "ac b"),
        two(Refused, "ac b"),
        two(Late, "ac b"),
        two(MuteUp, "ac b"),
        two(MuteDown, "ac b"),
        one(SwallowPush),
    ],
    ..FOLLOW
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn join_of_an_owner() {
    OWN.play().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn join_of_a_follower() {
    FOLLOW.play().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn join_of_a_streams_first_follower() {
    WATCHED.play().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribe() {
    SUBSCRIBE.play().await;
}
