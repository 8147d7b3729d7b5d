//! One writer and many readers, in many orders of their threads. A wake-up that is
//! lost shows as a deadlock.

use bytes::Bytes;
use http::StatusCode;
use shuttle::{future::block_on, thread};

use super::*;
use crate::sync::{advance, in_many_orders};

const FRAMES: usize = 5;

fn data(text: &str) -> Frame {
    Frame::Data(Bytes::from(text.to_owned()))
}

fn text_of(frame: Frame) -> String {
    match frame {
        Frame::Data(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        Frame::Trailers(_) => panic!("no trailers were sent"),
    }
}

/// The text of so many frames.
fn text(frames: usize) -> String {
    (0..frames).map(|frame| frame.to_string()).collect()
}

fn run(log: &Arc<Log>) -> SharedRun {
    let head = Arc::new(Head { status: StatusCode::OK, headers: HeaderMap::new() });
    SharedRun { head, log: Arc::clone(log), reuse: Reuse::Never, selection: None }
}

/// Reads up to so many frames; what came, and the end.
async fn read(reader: &mut Reader, most: usize) -> (String, Option<Next>) {
    let mut got = String::new();
    for _ in 0..most {
        match reader.next().await {
            Next::Frame(frame) => got += &text_of(frame),
            end => return (got, Some(end)),
        }
    }
    (got, None)
}

/// Readers come late, and leave; each gets all frames from the first on, and the end.
#[test]
fn readers_come_and_leave_while_a_body_comes() {
    in_many_orders(|| {
        let log = Log::new(usize::MAX, None);
        let readers = [usize::MAX, 2, usize::MAX].map(|most| {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                let mut reader = log.reader().expect("a log that holds all");
                match block_on(read(&mut reader, most)) {
                    (got, None) => assert_eq!(got, text(most)),
                    (got, Some(Next::End)) => assert_eq!(got, text(FRAMES)),
                    (got, Some(_)) => panic!("{got} and no end"),
                }
            })
        });
        let ended = {
            let log = Arc::clone(&log);
            thread::spawn(move || block_on(log.ended()))
        };
        for frame in 0..FRAMES {
            log.push(data(&frame.to_string()));
        }
        log.finish(None);
        // Too late, and so is what is pushed after it.
        log.end(End::Broken("twice".into()));
        log.push(data("!"));
        readers.into_iter().chain([ended]).for_each(|thread| thread.join().unwrap());
    });
}

/// A body that fails ends so for all, after what came of it.
#[test]
fn a_body_fails_while_it_is_read() {
    in_many_orders(|| {
        let log = Log::new(usize::MAX, None);
        let readers = [(); 2].map(|()| {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                let mut reader = log.reader().unwrap();
                let (got, end) = block_on(read(&mut reader, usize::MAX));
                assert_eq!(got, text(2));
                assert!(matches!(end, Some(Next::Broken(_))));
            })
        });
        log.push(data("0"));
        log.push(data("1"));
        log.end(End::Broken("so".into()));
        log.finish(None);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// A window moves on over slow readers, late ones and those who leave: nobody gets a
/// hole, and the writer waits for nobody for good.
#[test]
fn a_window_moves_on_over_slow_readers() {
    in_many_orders(|| {
        // Room for two frames, each of which counts as 64 bytes.
        let log = Log::new(128, None);
        let first = log.reader().unwrap();
        let readers = [(Some(first), usize::MAX), (None, usize::MAX), (None, 1)];
        let readers = readers.map(|(reader, most)| {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                let Some(mut reader) = reader.or_else(|| log.reader()) else {
                    assert!(log.is_window(), "its start is held");
                    return;
                };
                match block_on(read(&mut reader, most)) {
                    (got, None) => assert_eq!(got, text(most)),
                    (got, Some(Next::End)) => assert_eq!(got, text(FRAMES)),
                    (got, Some(Next::Behind)) => assert!(text(FRAMES).starts_with(&got)),
                    (got, Some(_)) => panic!("{got} and no end"),
                }
            })
        });
        let overflowed = {
            let log = Arc::clone(&log);
            thread::spawn(move || block_on(log.overflowed()))
        };
        let clock = thread::spawn(|| advance(Duration::from_millis(60)));
        for frame in 0..FRAMES {
            let frame = data(&frame.to_string());
            block_on(log.room(&frame, true));
            log.push(frame);
            assert!(log.held() <= 128);
        }
        log.finish(None);
        let threads = readers.into_iter().chain([overflowed, clock]);
        threads.for_each(|thread| thread.join().unwrap());
    });
}

/// A lone reader of a patient writer is never behind, however the clock goes.
#[test]
fn the_fastest_reader_is_waited_for() {
    in_many_orders(|| {
        let log = Log::new(64, None);
        let mut reader = log.reader().unwrap();
        let reading = thread::spawn(move || {
            let (got, end) = block_on(read(&mut reader, usize::MAX));
            assert_eq!(got, text(FRAMES));
            assert!(matches!(end, Some(Next::End)));
        });
        let clock = thread::spawn(|| advance(Duration::from_secs(60)));
        for frame in 0..FRAMES {
            let frame = data(&frame.to_string());
            block_on(log.room(&frame, true));
            log.push(frame);
        }
        log.finish(None);
        reading.join().unwrap();
        clock.join().unwrap();
    });
}

/// Another run takes over while a body is read: the whole of one text comes of it, or
/// a part and an error.
#[test]
fn a_run_takes_over_while_its_body_is_read() {
    for same in [true, false] {
        let test = if same { || taken_over("0123", true) } else { || taken_over("0xyz", false) };
        in_many_orders(test);
    }
}

fn taken_over(second: &'static str, same: bool) {
    let (one, other) = (Log::new(usize::MAX, None), Log::new(usize::MAX, None));
    let next = run(&other);
    let mut splice = Splice::new(run(&one).head, None, one.reader().unwrap());
    let reading = thread::spawn(move || {
        let mut got = String::new();
        loop {
            match block_on(std::future::poll_fn(|cx| splice.poll_next(cx))) {
                Some(Ok(frame)) => got += &text_of(frame),
                Some(Err(_)) => {
                    assert!(!same && "01".starts_with(&got), "{got} and an error");
                    return;
                }
                // Where nothing of the first was read, the second is as good.
                None => {
                    assert_eq!(got, second);
                    return;
                }
            }
        }
    });
    let writing = thread::spawn(move || {
        // In other frames.
        for frame in [&second[..1], &second[1..3], &second[3..]] {
            other.push(data(frame));
        }
        other.finish(None);
    });
    one.push(data("0"));
    one.push(data("1"));
    one.end(End::Moved(next));
    reading.join().unwrap();
    writing.join().unwrap();
}
