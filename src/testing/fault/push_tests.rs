use std::{task::Poll, time::Duration};

use super::{
    Fault, FaultStore, Step,
    tests::{World, followed, timed, world},
};
use crate::{
    MemoryStore, Store,
    store::{Pushed, Session, StoreErrorKind},
    testing::conformance::node::{done, key},
};

/// What is pushed at once, beside that somebody waits.
fn at_once(session: &mut dyn Session) -> Option<Pushed> {
    loop {
        match tokio_test::task::spawn(session.pushed()).poll() {
            Poll::Ready(Pushed::Watched { .. }) => {}
            Poll::Ready(pushed) => return Some(pushed),
            Poll::Pending => return None,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pushes_that_were_cut_off_leave_a_gap() {
    let World { store, mut session, mut other } = world();
    let flight = followed(&mut *session, &mut *other).await;
    store.cut();
    other.finish(done(flight, "answer")).await.unwrap();
    assert!(at_once(&mut *session).is_none());
    store.heal();
    assert!(matches!(at_once(&mut *session), Some(Pushed::Gap)));
    assert!(at_once(&mut *session).is_none());
    // Who never followed hears of nothing.
    let mut stranger = store.session(key());
    store.cut();
    store.heal();
    assert!(at_once(&mut *stranger).is_none());
}

type Deed = fn(&FaultStore<MemoryStore>);

/// Whatever became of the line since, before it was whole again.
#[tokio::test(start_paused = true)]
async fn what_was_cut_off_is_told_of_once_pushes_are_heard() {
    let end = |store: &FaultStore<_>| store.heal();
    let ways: [(Deed, Deed); 5] = [
        (FaultStore::freeze, FaultStore::thaw),
        (FaultStore::freeze, end),
        (FaultStore::lose_pushes, end),
        (|store| store.on(Step::Push, Fault::LoseReply), end),
        (|_| (), |store| store.on(Step::Push, Fault::Delay(Duration::ZERO))),
    ];
    for (n, (then, end)) in ways.into_iter().enumerate() {
        let World { store, mut session, mut other } = world();
        let flight = followed(&mut *session, &mut *other).await;
        store.cut();
        other.finish(done(flight, "answer")).await.unwrap();
        assert!(at_once(&mut *session).is_none(), "{n}");
        then(&store);
        assert!(at_once(&mut *session).is_none(), "{n}");
        end(&store);
        assert!(matches!(at_once(&mut *session), Some(Pushed::Gap)), "{n}");
        assert!(at_once(&mut *session).is_none(), "{n}");
    }
    // What is only frozen lets nothing of a cut go.
    let World { store, mut session, mut other } = world();
    followed(&mut *session, &mut *other).await;
    store.freeze();
    store.cut();
    store.thaw();
    assert!(at_once(&mut *session).is_none());
    store.heal();
    assert!(matches!(at_once(&mut *session), Some(Pushed::Gap)));
}

/// One connection has all pushes of a process: who breaks it breaks it for all.
#[tokio::test(start_paused = true)]
async fn a_push_that_fails_alone_leaves_a_gap_at_once() {
    let World { store, mut session, mut other } = world();
    let at = key();
    let (mut beside, mut its) = (store.session(at), store.get_ref().session(at));
    let failed = Fault::Fail(StoreErrorKind::Disconnected);
    let besides = followed(&mut *beside, &mut *its).await;
    for _ in 0..2 {
        let flight = followed(&mut *session, &mut *other).await;
        assert!(at_once(&mut *session).is_none());
        store.next(Step::Push, 1, failed);
        other.finish(done(flight, "answer")).await.unwrap();
        assert!(matches!(at_once(&mut *session), Some(Pushed::Gap)));
        assert!(at_once(&mut *session).is_none());
        assert!(matches!(at_once(&mut *beside), Some(Pushed::Gap)));
    }
    its.finish(done(besides, "answer")).await.unwrap();
    assert!(matches!(at_once(&mut *beside), Some(Pushed::Ended { .. })));
    let flight = followed(&mut *session, &mut *other).await;
    other.finish(done(flight, "answer")).await.unwrap();
    assert!(matches!(at_once(&mut *session), Some(Pushed::Ended { .. })));
    // So do those that fail by chance.
    let flight = followed(&mut *session, &mut *other).await;
    assert!(at_once(&mut *session).is_none());
    store.at_random(7, 1, [failed]);
    other.finish(done(flight, "answer")).await.unwrap();
    assert!(matches!(at_once(&mut *session), Some(Pushed::Gap)));
    assert!(at_once(&mut *session).is_none());
    // Where nothing is heard, it is told later.
    store.heal();
    let flight = followed(&mut *session, &mut *other).await;
    assert!(at_once(&mut *session).is_none());
    store.next(Step::Push, 1, failed);
    store.lose_pushes();
    other.finish(done(flight, "answer")).await.unwrap();
    assert!(at_once(&mut *session).is_none());
    store.heal();
    assert!(matches!(at_once(&mut *session), Some(Pushed::Gap)));
    assert!(at_once(&mut *session).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_push_meets_its_fault_when_it_is_taken() {
    let World { store, mut session, mut other } = world();
    let flight = followed(&mut *session, &mut *other).await;
    store.cut();
    other.finish(done(flight, "answer")).await.unwrap();
    store.heal();
    assert!(matches!(at_once(&mut *session), Some(Pushed::Gap)));
    assert!(matches!(at_once(&mut *session), Some(Pushed::Ended { .. })));
    let flight = followed(&mut *session, &mut *other).await;
    other.finish(done(flight, "answer")).await.unwrap();
    store.lose_pushes();
    assert!(at_once(&mut *session).is_none());
}

#[tokio::test(start_paused = true)]
async fn lost_pushes_are_lost_without_a_word() {
    let World { store, mut session, mut other } = world();
    let flight = followed(&mut *session, &mut *other).await;
    store.lose_pushes();
    other.finish(done(flight, "answer")).await.unwrap();
    assert!(at_once(&mut *session).is_none());
    store.heal();
    assert!(at_once(&mut *session).is_none());
    assert_eq!(store.calls(Step::Push), 1);
}

#[tokio::test(start_paused = true)]
async fn late_pushes_come_in_order_also_where_a_wait_was_dropped() {
    let World { store, mut session, mut other } = world();
    let flight = followed(&mut *session, &mut *other).await;
    let second = Duration::from_secs(1);
    store.next(Step::Push, 1, Fault::Delay(second));
    other.finish(done(flight, "answer")).await.unwrap();
    let next = followed(&mut *session, &mut *other).await;
    other.finish(done(next, "answer")).await.unwrap();
    assert!(at_once(&mut *session).is_none());
    let (pushed, took) = timed(session.pushed()).await;
    assert!(matches!(pushed, Pushed::Ended { flight: of, .. } if of == flight), "{pushed:?}");
    assert_eq!(took, second);
    let pushed = at_once(&mut *session);
    assert!(matches!(pushed, Some(Pushed::Ended { flight: of, .. }) if of == next), "{pushed:?}");
    // Frozen ones wait.
    let last = followed(&mut *session, &mut *other).await;
    store.freeze();
    other.finish(done(last, "answer")).await.unwrap();
    assert!(at_once(&mut *session).is_none());
    store.thaw();
    assert!(matches!(at_once(&mut *session), Some(Pushed::Ended { .. })));
}
