use std::{task::Poll, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use tokio::time::{Instant, sleep};
use tokio_test::{assert_pending, assert_ready, task};

use super::*;

type Spliced = Option<Result<Frame, Arc<str>>>;

fn poll(reader: &mut task::Spawn<Splice>) -> Poll<Spliced> {
    reader.enter(|cx, reader| reader.get_mut().poll_next(cx))
}

fn data(text: &'static str) -> Frame {
    Frame::Data(Bytes::from_static(text.as_bytes()))
}

fn head() -> Arc<Head> {
    Arc::new(Head { status: StatusCode::OK, headers: HeaderMap::new() })
}

fn run(log: &Arc<Log>) -> SharedRun {
    SharedRun { head: head(), log: Arc::clone(log), reuse: Reuse::Never, selection: None }
}

fn open(most: usize) -> Arc<Log> {
    Log::new(most, None)
}

fn splice(log: &Arc<Log>) -> task::Spawn<Splice> {
    task::spawn(Splice::new(head(), None, log.reader().unwrap()))
}

#[track_caller]
fn text(reader: &mut task::Spawn<Splice>) -> &'static str {
    match assert_ready!(poll(reader)) {
        Some(Ok(Frame::Data(bytes))) => String::from_utf8(bytes.to_vec()).unwrap().leak(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn broken(reader: &mut task::Spawn<Splice>) -> Arc<str> {
    assert_ready!(poll(reader)).expect("an error, not an end").unwrap_err()
}

#[track_caller]
fn over(reader: &mut task::Spawn<Splice>) {
    assert!(assert_ready!(poll(reader)).is_none());
}

#[test]
fn readers_share_the_bytes() {
    let bytes = Bytes::from(vec![7; 64]);
    let log = Log::complete(vec![Frame::Data(bytes.clone())]);
    for _ in 0..3 {
        let mut reader = splice(&log);
        let Some(Ok(Frame::Data(read))) = assert_ready!(poll(&mut reader)) else { panic!() };
        assert_eq!(read.as_ptr(), bytes.as_ptr());
        assert!(reader.is_at_end());
    }
}

#[test]
fn a_reader_wakes_for_each_frame_and_for_the_end() {
    let log = open(100);
    let mut reader = splice(&log);
    for word in ["a", "b", "c"] {
        assert_pending!(poll(&mut reader));
        log.push(data(word));
        assert!(reader.is_woken());
        assert_eq!(text(&mut reader), word);
        assert!(!reader.is_at_end());
    }
    assert_pending!(poll(&mut reader));
    log.finish(None);
    assert!(reader.is_woken());
    assert!(reader.is_at_end());
    over(&mut reader);
}

/// Trailers say of a gRPC body how it ended: whoever sees them sees the end.
#[test]
fn trailers_come_with_the_end() {
    let log = Log::new(100, Some(1));
    log.push(data("a"));
    let mut reader = splice(&log);
    assert_eq!(reader.remaining(), Some(1));
    assert_eq!(text(&mut reader), "a");
    assert_eq!(reader.remaining(), Some(0));
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    log.finish(Some(trailers));
    assert!(!reader.is_at_end());
    assert!(matches!(assert_ready!(poll(&mut reader)), Some(Ok(Frame::Trailers(_)))));
    assert!(reader.is_at_end());
    over(&mut reader);
}

#[test]
fn a_broken_end_is_an_error_to_every_reader() {
    let log = open(100);
    log.push(data("a"));
    log.end(End::Broken("cut".into()));
    log.push(data("late"));
    log.finish(None);
    for _ in 0..2 {
        let mut reader = splice(&log);
        assert_eq!(text(&mut reader), "a");
        assert_eq!(reader.remaining(), None);
        assert_eq!(&*broken(&mut reader), "cut");
        assert_eq!(&*broken(&mut reader), "cut");
    }
}

/// Appends a frame when there is room for it.
async fn append(log: &Log, word: &'static str) {
    let frame = data(word);
    log.room(&frame, true).await;
    log.push(frame);
}

/// A frame counts as 64 bytes at least: three of them are more than is held.
#[tokio::test(start_paused = true)]
async fn o3_a_reader_that_falls_behind_the_window_gets_an_error_and_never_a_gap() {
    let log = open(128);
    let (mut fast, mut slow) = (splice(&log), splice(&log));
    for word in ["a", "b", "c", "d"] {
        append(&log, word).await;
        assert_eq!(text(&mut fast), word);
    }
    assert!(log.held() <= 128);
    assert!(log.reader().is_none(), "nobody begins without the start");
    log.finish(None);
    over(&mut fast);
    assert!(broken(&mut slow).contains("behind"));
}

#[tokio::test(start_paused = true)]
async fn a_run_with_one_reader_waits_for_it() {
    let log = open(128);
    let mut reader = splice(&log);
    for word in ["a", "b"] {
        append(&log, word).await;
    }
    let next = data("c");
    let mut room = task::spawn(log.room(&next, true));
    assert_pending!(room.poll());
    assert_eq!(text(&mut reader), "a");
    assert!(room.is_woken());
    assert_ready!(room.poll());
    drop(room);
    log.push(data("c"));
    assert_eq!((text(&mut reader), text(&mut reader)), ("b", "c"));
    // A second one would be held up by the first.
    assert!(log.reader().is_none() && log.is_window());
}

#[tokio::test(start_paused = true)]
async fn a_run_with_several_readers_waits_for_the_fastest() {
    let log = open(128);
    let (mut fast, mut slow) = (splice(&log), splice(&log));
    for word in ["a", "b"] {
        log.push(data(word));
    }
    for (word, next) in [("a", "c"), ("b", "d"), ("c", "e")] {
        let next = data(next);
        let mut room = task::spawn(log.room(&next, true));
        assert_pending!(room.poll());
        // The slow one has had its time, and nobody has read this.
        sleep(Duration::from_secs(1)).await;
        assert_pending!(room.poll());
        assert_eq!(text(&mut fast), word);
        assert!(room.is_woken());
        assert_ready!(room.poll());
        drop(room);
        log.push(next);
        assert!(log.held() <= 128);
    }
    assert!(broken(&mut slow).contains("behind"));
    // With the fast one gone nobody holds it up, as nobody can go on.
    drop(fast);
    let next = data("f");
    assert_ready!(task::spawn(log.room(&next, true)).poll());
}

/// Who is slow slows a body down to a certain rate, and no further.
#[tokio::test(start_paused = true)]
async fn slow_readers_are_given_some_time() {
    const FRAME: usize = 64 * 1024;
    let log = open(4 * FRAME);
    let (mut fast, mut slow) = (splice(&log), splice(&log));
    let frame = || Frame::Data(vec![0; FRAME].into());
    let started = Instant::now();
    for _ in 0..64 {
        log.room(&frame(), true).await;
        log.push(frame());
        let _ = assert_ready!(poll(&mut fast));
        // Somewhat slower than the other: it needs four milliseconds for a frame.
        sleep(Duration::from_millis(4)).await;
        let _ = assert_ready!(poll(&mut slow));
    }
    assert_eq!(started.elapsed(), Duration::from_millis(4 * 64));
    let started = Instant::now();
    for _ in 0..64 {
        log.room(&frame(), true).await;
        log.push(frame());
        let _ = assert_ready!(poll(&mut fast));
    }
    let rate = 64.0 * FRAME as f64 / started.elapsed().as_secs_f64();
    assert!(rate >= LEAST_RATE, "{rate}");
    assert!(broken(&mut slow).contains("behind"));
}

/// A reader of a stream elsewhere: that does not wait for anybody.
#[tokio::test(start_paused = true)]
async fn an_impatient_writer_waits_for_a_turn_and_no_more() {
    let log = open(128);
    let mut reader = splice(&log);
    let started = Instant::now();
    for word in ["a", "b", "c", "d", "e"] {
        log.room(&data(word), false).await;
        log.push(data(word));
    }
    assert!(started.elapsed() <= Duration::from_millis(5));
    assert!(broken(&mut reader).contains("behind"));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_holds_up_nothing() {
    let log = open(64);
    let reader = splice(&log);
    log.push(data("a"));
    let next = data("b");
    let mut room = task::spawn(log.room(&next, true));
    assert_pending!(room.poll());
    drop(reader);
    assert!(room.is_woken());
    assert_ready!(room.poll());
}

#[test]
fn who_has_read_nothing_goes_over_to_another_run() {
    let (one, other) = (open(100), open(100));
    one.push(data("lost"));
    let mut reader = splice(&other);
    other.end(End::Moved(run(&Log::complete(vec![data("found")]))));
    assert_eq!(text(&mut reader), "found");
    over(&mut reader);
}

#[test]
fn who_has_read_goes_on_where_the_other_run_begins_the_same() {
    // The same bytes, in other frames, after a third run that ended in the middle.
    let (one, two, three) = (open(1000), open(1000), open(1000));
    let mut reader = splice(&one);
    one.push(data("hello"));
    assert_eq!(text(&mut reader), "hello");
    one.push(data(" wor"));
    assert_eq!(text(&mut reader), " wor");
    one.end(End::Moved(run(&two)));
    two.push(data("hel"));
    assert_pending!(poll(&mut reader));
    two.end(End::Moved(run(&three)));
    three.push(data("h"));
    three.push(data("ello world"));
    assert_eq!(text(&mut reader), "ld");
    three.push(data("!"));
    three.finish(None);
    assert_eq!(text(&mut reader), "!");
    over(&mut reader);
}

#[test]
fn no_body_holds_bytes_of_two_runs_that_differ() {
    for (words, ends) in [(vec!["hellO", "x"], false), (vec!["hell"], true), (vec![], true)] {
        let (one, two) = (open(1000), open(1000));
        let mut reader = splice(&one);
        one.push(data("hello"));
        assert_eq!(text(&mut reader), "hello");
        one.end(End::Moved(run(&two)));
        words.into_iter().for_each(|word| two.push(data(word)));
        if ends {
            two.finish(Some(HeaderMap::new()));
        }
        assert!(broken(&mut reader).contains("another"));
    }
}

#[test]
fn a_head_that_speaks_of_another_body_is_another_answer() {
    let mut gzip = HeaderMap::new();
    gzip.insert("content-encoding", HeaderValue::from_static("gzip"));
    gzip.insert("date", HeaderValue::from_static("today"));
    let failed = [("grpc-status".parse().unwrap(), HeaderValue::from_static("5"))];
    for (status, headers, same) in [
        (StatusCode::OK, gzip.clone(), false),
        (StatusCode::OK, failed.into_iter().collect(), false),
        (StatusCode::CREATED, HeaderMap::new(), false),
        (
            StatusCode::OK,
            [("date".parse().unwrap(), HeaderValue::from_static("now"))].into_iter().collect(),
            true,
        ),
    ] {
        let (one, two) = (open(1000), Log::complete(vec![data("b")]));
        let mut reader = splice(&one);
        let head = Arc::new(Head { status, headers });
        one.end(End::Moved(SharedRun { head, log: two, reuse: Reuse::Never, selection: None }));
        match same {
            true => assert_eq!(text(&mut reader), "b"),
            false => assert!(broken(&mut reader).contains("another")),
        }
    }
}

/// What fits a caller's request is known only of the run that it has begun with.
#[test]
fn a_run_for_other_callers_is_another_answer() {
    let of = |digest| Some(Arc::new(Selection::from_parts(Vec::new(), [digest; 32])));
    for (begun, next, goes_on) in
        [(None, of(1), false), (of(1), of(1), true), (of(1), of(2), false), (of(1), None, true)]
    {
        let one = open(1000);
        let mut reader = task::spawn(Splice::new(head(), begun, one.reader().unwrap()));
        let next = SharedRun { selection: next, ..run(&Log::complete(vec![data("b")])) };
        one.end(End::Moved(next));
        match goes_on {
            true => assert_eq!(text(&mut reader), "b"),
            false => assert!(broken(&mut reader).contains("another")),
        }
    }
}

/// What was read of a window can still be compared, though it is no longer held.
#[tokio::test(start_paused = true)]
async fn a_window_goes_on_with_the_same_run() {
    let (one, two) = (open(128), open(1 << 20));
    let mut reader = splice(&one);
    for word in ["a", "b", "c", "d"] {
        append(&one, word).await;
        assert_eq!(text(&mut reader), word);
    }
    one.end(End::Moved(run(&two)));
    two.push(data("abcdef"));
    assert_eq!(text(&mut reader), "ef");
}

/// A server may have told its client the length of the first run's body.
#[test]
fn a_run_of_another_length_does_not_go_on_with_the_body() {
    for (promised, goes_on) in [(Some(6), true), (Some(5), false), (Some(7), false), (None, false)]
    {
        let first = Log::new(1000, Some(6));
        first.push(data("one"));
        let mut reader = splice(&first);
        assert_eq!(text(&mut reader), "one");
        let second = Log::new(1000, promised);
        first.end(End::Moved(run(&second)));
        second.push(data("one tw"));
        match goes_on {
            true => assert_eq!(text(&mut reader), " tw"),
            false => assert!(broken(&mut reader).contains("another"), "{promised:?}"),
        }
    }
}
