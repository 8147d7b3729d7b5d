//! An answer that goes out as it comes.

use crate::{
    case::{CASE, Case, Trigger},
    inner::Shape,
    proxy::{Push, Step},
    row::{Kind::*, Row, TAKEOVER, is, one, two},
};

/// All have begun with the answer when its next piece is sent.
const APPEND: Case = Case {
    name: "append",
    step: Step::Append,
    shape: Shape::Stream,
    trigger: Trigger::Stage(1),
    push: Some((1, Push::Piece)),
    rows: &[
        one(CutBefore),
        one(CutAfter),
        one(DelayShort),
        one(DelayLong),
        one(SwallowReply),
        one(Refused),
        one(Late),
        one(SwallowPush),
        // The run goes on for its own callers; what others have of it breaks off, since
        // the next run says something else.
        Row { takeovers: is(1), lost: is(1), within: TAKEOVER, ..two(MuteUp, "a bc!") },
        Row { takeovers: is(1), lost: is(1), within: TAKEOVER, ..two(MuteDown, "a bc!") },
        one(Swap),
    ],
    ..CASE
};

/// The next run says the same: nobody notices.
const SAME: Case = Case {
    name: "append-same",
    shape: Shape::Same,
    rows: &[
        one(CutAfter),
        Row { takeovers: is(1), lost: is(1), within: TAKEOVER, ..two(MuteUp, "abc") },
        Row { takeovers: is(1), lost: is(1), within: TAKEOVER, ..two(MuteDown, "abc") },
        one(Swap),
    ],
    ..APPEND
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn append() {
    APPEND.play().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn append_where_all_runs_say_the_same() {
    SAME.play().await;
}
