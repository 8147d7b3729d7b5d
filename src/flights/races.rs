//! Callers that come and go while a flight is driven, in many orders of their threads.
//! A wake-up that is lost shows as a deadlock.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use shuttle::{
    future::{block_on, yield_now},
    thread,
};

use super::*;
use crate::{
    frame::{Frame, Head},
    log::{Log, Reuse, SharedRun},
    store::BoxFuture,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        in_many_orders,
    },
};

/// Of a run that ends with its last caller only.
const ENDLESS: usize = usize::MAX;

/// Instead of a run's number: this caller drove the flight on.
const ADOPTED: usize = usize::MAX - 1;

const KEY: KeyDigest = KeyDigest::from_bytes([7; 32]);

/// A request that says whether its caller is there.
struct Request(AtomicBool);

impl Deposit for Request {
    fn start(self: Arc<Self>, _: Brief) -> Option<BoxFuture<'static, RunEnd>> {
        None
    }

    fn is_repeatable(&self) -> bool {
        true
    }

    fn restore(&self) -> bool {
        self.0.load(SeqCst)
    }
}

/// One process: its table, and what runs in it.
#[derive(Default)]
struct Process {
    table: Table,
    running: AtomicUsize,
    runs: AtomicUsize,
    /// Runs up to this one were answered.
    answered: AtomicUsize,
}

struct Table(Arc<Flights>);

impl Default for Table {
    fn default() -> Self {
        Self(Arc::new(Flights::new(Limits::default())))
    }
}

/// An answer that says which run's it is.
fn answer(run: usize) -> SharedRun {
    let head = Arc::new(Head { status: StatusCode::OK, headers: HeaderMap::new() });
    let log = Log::complete(vec![Frame::Data(Bytes::from(run.to_string()))]);
    SharedRun { head, log, reuse: Reuse::Never, selection: None }
}

impl Process {
    /// As a driver: runs what was left, until nobody is there or it has answered.
    async fn drive(&self, flight: Arc<Flight>, work: usize) {
        flight.predecessor_settled(Duration::from_secs(3)).await;
        loop {
            let Some((at, request)) = flight.next_deposit() else {
                // Whoever came took part in a run, or left with its request.
                if flight.close_if_vacant() {
                    break;
                }
                if !flight.close_if_spent() {
                    continue;
                }
                flight.decide(Verdict::Alone { together: true });
                break;
            };
            assert_eq!(self.running.fetch_add(1, SeqCst), 0, "two runs at once");
            let nth = self.runs.fetch_add(1, SeqCst) + 1;
            let done = tokio::select! {
                biased;
                () = flight.vacated() => false,
                () = worked(work) => true,
            };
            if done {
                flight.decide(Verdict::Replay { run: answer(nth), origin: Origin::Here });
                self.answered.fetch_max(nth, SeqCst);
                // The store is told of it here.
                yield_now().await;
            }
            self.running.fetch_sub(1, SeqCst);
            if done || flight.close_if_vacant() {
                break;
            }
            flight.give_back(at, request);
        }
        flight.settle();
    }

    /// Enters as a caller; the driver, where it is to be one.
    fn enter(self: &Arc<Self>, work: usize) -> (Share, Option<thread::JoinHandle<()>>) {
        let (share, first) =
            self.table.0.enter(KEY, Arc::new(Request(AtomicBool::new(true)))).unwrap();
        let driver = first.map(|flight| {
            let this = Arc::clone(self);
            thread::spawn(move || block_on(this.drive(flight, work)))
        });
        (share, driver)
    }

    fn is_over(&self) {
        assert!(self.table.0.list().is_empty(), "a flight was left");
        assert_eq!(self.running.load(SeqCst), 0);
    }
}

/// A run that takes so many steps.
async fn worked(steps: usize) {
    if steps == ENDLESS {
        std::future::pending::<()>().await;
    }
    for _ in 0..steps {
        yield_now().await;
    }
}

/// Waits for the verdict as a caller does; drives the flight on where it must. The run
/// whose answer it is.
async fn heard(share: &Share) -> usize {
    let flight = share.flight();
    loop {
        let stirred = flight.stirred();
        match flight.verdict() {
            Some(Verdict::Replay { run, .. }) => match run.log.frames().remove(0) {
                Frame::Data(bytes) => return std::str::from_utf8(&bytes).unwrap().parse().unwrap(),
                Frame::Trailers(_) => panic!("no trailers were sent"),
            },
            Some(_) => return usize::MAX,
            None => {}
        }
        if flight.adopt() {
            flight.decide(Verdict::Alone { together: true });
            flight.settle();
            return ADOPTED;
        }
        stirred.await;
    }
}

fn all(threads: Vec<thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The last caller leaves while others come: no two runs at once, nobody is let into a
/// flight that is given up, and who stays is answered.
#[test]
fn a_last_caller_leaves_while_a_new_one_joins() {
    in_many_orders(|| {
        let process = Arc::<Process>::default();
        let callers = [false, true, false].map(|stays| {
            let process = Arc::clone(&process);
            thread::spawn(move || {
                let answered = process.answered.load(SeqCst);
                let (share, driver) = process.enter(6);
                if stays {
                    assert!(block_on(heard(&share)) > answered, "an answer of the past");
                }
                assert!(!share.flight().is_vacant());
                drop(share);
                driver.into_iter().for_each(|driver| driver.join().unwrap());
            })
        });
        all(callers.into());
        process.is_over();
        assert!(process.runs.load(SeqCst) <= 6);
    });
}

/// All callers come and leave: the run ends with the last of them, and is there as long
/// as one is.
#[test]
fn a_run_ends_with_its_last_caller() {
    in_many_orders(|| {
        let process = Arc::<Process>::default();
        let callers = [(); 3].map(|()| {
            let process = Arc::clone(&process);
            thread::spawn(move || {
                let (share, driver) = process.enter(ENDLESS);
                let flight = Arc::clone(share.flight());
                assert!(!flight.is_closed(), "let into what was given up");
                drop(share);
                driver.into_iter().for_each(|driver| driver.join().unwrap());
            })
        });
        all(callers.into());
        process.is_over();
    });
}

/// An answer comes while callers come: each hears it, or is in the next flight, which
/// begins after the one before has told the store.
#[test]
fn an_answer_comes_while_callers_come() {
    in_many_orders(|| {
        let process = Arc::<Process>::default();
        let callers = [0, 1, 2].map(|work| {
            let process = Arc::clone(&process);
            thread::spawn(move || {
                let answered = process.answered.load(SeqCst);
                let (share, driver) = process.enter(work);
                assert!(block_on(heard(&share)) > answered, "an answer of the past");
                drop(share);
                driver.into_iter().for_each(|driver| driver.join().unwrap());
            })
        });
        all(callers.into());
        process.is_over();
    });
}

/// A driver vanishes while callers wait, come and leave: one of those who wait drives
/// on, and no other.
#[test]
fn a_driver_vanishes() {
    in_many_orders(|| {
        let table = Table::default().0;
        let (share, flight) = table.enter(KEY, Arc::new(Request(AtomicBool::new(true)))).unwrap();
        let flight = flight.unwrap();
        let (other, none) = table.enter(KEY, Arc::new(Request(AtomicBool::new(true)))).unwrap();
        assert!(none.is_none());
        let waiters = [share, other].map(|share| thread::spawn(move || block_on(heard(&share))));
        let leaver = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let request = Arc::new(Request(AtomicBool::new(true)));
                let (share, first) = table.enter(KEY, request).unwrap();
                // A driver that starts no run.
                first.into_iter().for_each(|flight| flight.orphan());
                drop(share);
            })
        };
        flight.orphan();
        let heard = waiters.map(|waiter| waiter.join().unwrap());
        assert_eq!(heard.iter().filter(|heard| **heard == ADOPTED).count(), 1);
        all(vec![leaver]);
        assert!(table.list().is_empty(), "a flight was left");
    });
}

/// An answer is handed out, held back and handed out again while callers look.
#[test]
fn an_answer_is_handed_out_while_callers_look() {
    in_many_orders(|| {
        let table = Table::default().0;
        let (first, flight) = table.enter(KEY, Arc::new(Request(AtomicBool::new(true)))).unwrap();
        let flight = flight.unwrap();
        let enter = |_| table.enter(KEY, Arc::new(Request(AtomicBool::new(true)))).unwrap().0;
        let shares = [(); 2].map(enter).into_iter().chain([first]);
        let callers = shares.map(|share| {
            thread::spawn(move || {
                let flight = share.flight();
                block_on(async {
                    loop {
                        let stirred = flight.stirred();
                        if flight.live().is_some() {
                            return;
                        }
                        assert!(flight.verdict().is_none(), "held back for good");
                        stirred.await;
                    }
                });
            })
        });
        let callers = callers.collect();
        flight.go_live(&answer(1), Origin::Here);
        flight.hold_back(true);
        assert!(flight.live().is_none());
        flight.hold_back(false);
        all(callers);
        flight.decide(Verdict::Replay { run: answer(1), origin: Origin::Here });
        flight.settle();
        assert!(table.list().is_empty());
    });
}
