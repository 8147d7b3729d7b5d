//! Renewals, losses, the clock and the end of a run, in many orders of their threads.
//! A wake-up that is lost shows as a deadlock.

use std::{sync::Arc, time::Duration};

use shuttle::{future::block_on, thread};
use tokio::time::Instant;

use super::{Lease, LeaseEnd, Permit};
use crate::{
    id::{FlightId, FlightRef},
    sync::{advance, in_many_orders},
};

const TERM: Duration = Duration::from_millis(2500);
const SECOND: Duration = Duration::from_secs(1);

fn lease(asked: Instant) -> Arc<Lease> {
    let flight = FlightRef { token: 7, id: FlightId::from_u128(7) };
    Arc::new(Lease::new(flight, asked, TERM))
}

/// Runs it in a thread of its own.
fn with<T: Send + Sync + 'static, R: Send + 'static>(
    what: &Arc<T>,
    step: impl FnOnce(&T) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let what = Arc::clone(what);
    thread::spawn(move || step(&what))
}

/// Of a loss, a time limit and the run's own end one comes first, and it stands.
#[test]
fn one_end_stands() {
    in_many_orders(|| {
        let start = Instant::now();
        let lease = lease(start);
        let lost = with(&lease, |lease| lease.finish(LeaseEnd::Superseded));
        let limit = with(&lease, |lease| lease.finish(LeaseEnd::HardTimeout));
        let renewed = with(&lease, move |lease| lease.renewed(start + SECOND, TERM, 1));
        let driver = with(&lease, |lease| {
            block_on(lease.changed());
            lease.end()
        });
        let concluded = lease.conclude();
        let seen = lease.end();
        let first = [lost.join().unwrap(), limit.join().unwrap()];
        renewed.join().unwrap();
        assert_eq!(first.iter().filter(|first| **first).count(), usize::from(!concluded));
        assert_eq!(seen, lease.end(), "the first end stands");
        match (concluded, first) {
            (true, _) => assert!(lease.end().is_none() && lease.stands()),
            (_, [true, _]) => assert_eq!(lease.end(), Some(LeaseEnd::Superseded)),
            _ => assert_eq!(lease.end(), Some(LeaseEnd::HardTimeout)),
        }
        assert_eq!(lease.stands(), concluded);
        assert_eq!(driver.join().unwrap(), lease.end(), "heard when it is there to be seen");
    });
}

/// Renewals that come in any order move the deadline to that of the last one sent, and
/// never back; nothing is handed on past it.
#[test]
fn a_deadline_never_goes_back() {
    in_many_orders(|| {
        let start = Instant::now();
        let lease = lease(start);
        let renewals = [1, 2].map(|beat| {
            with(&lease, move |lease| lease.renewed(start + SECOND * beat, TERM, beat))
        });
        let clock = thread::spawn(|| advance(SECOND * 3));
        let watcher = with(&lease, move |lease| {
            let mut last = lease.deadline();
            for _ in 0..4 {
                let stands = lease.stands();
                let deadline = lease.deadline();
                assert!(deadline >= last, "the deadline went back");
                // What stood did so under the deadline that is there by now.
                assert!(!stands || start < deadline);
                last = deadline;
            }
        });
        renewals.into_iter().chain([clock, watcher]).for_each(|thread| thread.join().unwrap());
        assert_eq!(lease.deadline(), start + SECOND * 2 + TERM);
        assert!(lease.stands());
        advance(TERM);
        assert!(!lease.stands());
    });
}

/// An attentive driver hears of a renewal, and whoever waits for news does.
#[test]
fn a_renewal_is_heard_of() {
    in_many_orders(|| {
        let start = Instant::now();
        let lease = lease(start);
        lease.set_attentive(true);
        let driver = with(&lease, |lease| {
            block_on(lease.changed());
            assert!(lease.waiters() > 0 || lease.end().is_some());
        });
        let publisher = with(&lease, |lease| {
            block_on(async {
                loop {
                    let news = lease.news();
                    if lease.waiters() > 0 || lease.end().is_some() {
                        return;
                    }
                    news.await;
                }
            });
        });
        let lost = with(&lease, |lease| {
            lease.finish(LeaseEnd::Missing);
        });
        lease.renewed(start, TERM, 3);
        [driver, publisher, lost].into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Who waits for somebody to come hears of it, though nothing else happens.
#[test]
fn waiters_are_heard_of() {
    in_many_orders(|| {
        let lease = lease(Instant::now());
        let publisher = with(&lease, |lease| {
            block_on(async {
                loop {
                    let news = lease.news();
                    if lease.waiters() > 0 {
                        return;
                    }
                    news.await;
                }
            });
        });
        lease.set_waiters(1);
        publisher.join().unwrap();
    });
}

/// What a run has waits while its lease does not stand, and goes on with a renewal,
/// another lease, or none.
#[test]
fn a_run_may_hand_on_again() {
    in_many_orders(|| {
        let start = Instant::now();
        let (one, other) = (lease(start), lease(start));
        let permit = Permit::new(Instant::now());
        permit.set(Some(Arc::clone(&one)));
        advance(TERM + SECOND);
        let run = with(&permit, |permit| {
            block_on(permit.granted());
            permit.beat();
        });
        let renewed = with(&other, move |other| other.renewed(start + SECOND * 2, TERM, 0));
        let lost = with(&one, |one| {
            one.finish(LeaseEnd::Missing);
        });
        // The record was lost, and the owner owns again: that lease is late, too.
        permit.set(Some(Arc::clone(&other)));
        [run, renewed, lost].into_iter().for_each(|thread| thread.join().unwrap());
        assert!(permit.idle_at(SECOND).is_some());
    });
}

/// A lease that is lost for good lets a run go on once it is given up, and not before.
#[test]
fn a_run_without_a_lease_goes_on() {
    in_many_orders(|| {
        let lease = lease(Instant::now());
        let permit = Permit::new(Instant::now());
        permit.set(Some(Arc::clone(&lease)));
        lease.finish(LeaseEnd::Silence);
        let detached = Arc::new(crate::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&detached);
        let run = with(&permit, move |permit| {
            block_on(permit.granted());
            assert!(seen.load(crate::sync::atomic::Ordering::SeqCst), "handed on after a loss");
        });
        let late = with(&lease, |lease| lease.renewed(Instant::now(), TERM, 0));
        detached.store(true, crate::sync::atomic::Ordering::SeqCst);
        permit.set(None);
        [run, late].into_iter().for_each(|thread| thread.join().unwrap());
    });
}
