//! What who looks from outside is told.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::{
    Place,
    node::{KEEP, LAPSE, LEASE, Node, STEP, ask, ask_after, done, ended, key, polled_once},
    pieces::append,
};
use crate::{
    id::KeyDigest,
    store::{Badge, EndStatus, Join, Joined, KeyStatus, KeyView, Store},
    trace::TraceParent,
};

/// What a clock of the server and one of the test may be apart.
const APART: Duration = Duration::from_millis(20);

pub(super) async fn view_of_a_running_flight(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    assert_eq!(owner.view().await, None);
    owner.introduce(Badge::new("4711@host\n"));
    let flight = owner.own(&ask()).await;
    let view = owner.view().await.expect("a record");
    assert_eq!((view.key, view.flight, view.status), (key, flight, KeyStatus::Running));
    assert!(view.is_in_air());
    assert_eq!((&*view.owner, view.waiters, view.pieces), ("4711@host?", 0, 0));
    let left = view.lease_left.expect("a lease");
    assert!(left <= LEASE && left > LEASE - STEP && view.age < STEP, "{view:?}");
    assert!(view.heartbeat < Some(STEP), "{view:?}");
    assert_eq!((view.ended, view.mark_left, view.stored_bytes), (None, None, None));

    let mut others = [Node::new(engine, key).await, Node::new(engine, key).await];
    others[0].follow(&ask(), flight).await;
    others[1].follow(&ask(), flight).await;
    owner.appended(&append(flight, 0, &["one", "two"])).await;
    engine.elapse(STEP).await;
    let view = others[1].view().await.expect("a record");
    assert_eq!((view.waiters, view.pieces, &*view.owner), (2, 2, "4711@host?"));
    assert!(view.age + APART >= STEP && view.lease_left < Some(LEASE - STEP + APART), "{view:?}");
    assert!(view.heartbeat.expect("one") + APART >= STEP, "{view:?}");
    // Renewed, it is as it was, but older.
    assert_eq!(owner.renewed(flight).await, 2);
    let view = owner.view().await.expect("a record");
    assert!(view.age + APART >= STEP && view.heartbeat < Some(STEP), "{view:?}");
    assert!(view.lease_left > Some(LEASE - STEP), "{view:?}");

    // Its lease runs out, and nobody comes.
    engine.elapse(LAPSE).await;
    let view = owner.view().await.expect("a record");
    assert_eq!((view.status, view.lease_left), (KeyStatus::Lapsed, Some(Duration::ZERO)));
    assert!(view.is_in_air() && view.heartbeat > Some(LEASE), "{view:?}");
    // Who takes over says who it is, or says nothing.
    let next = others[0].own(&ask_after(flight)).await;
    let view = owner.view().await.expect("a record");
    assert_eq!((view.flight, view.status, &*view.owner), (next, KeyStatus::Running, ""));
    assert!(view.age < STEP, "{view:?}");
}

pub(super) async fn followers_hear_where_the_owner_is_in_its_trace(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let mut badge = Badge::new("4711@host");
    badge.trace = TraceParent::new(1, 2, true);
    owner.introduce(badge.clone());
    let flight = owner.own(&ask()).await;
    let (mut other, wait) = (Node::new(engine, key).await, ask());
    for joined in [other.join(&wait).await, other.watch(&wait, LEASE).await] {
        let Joined::Follow { flight: of, trace, .. } = joined else { panic!("{joined:?}") };
        assert_eq!((of, trace), (flight, badge.trace));
    }
}

pub(super) async fn view_of_what_has_ended(engine: &dyn Place) {
    let view = async |end: EndStatus| {
        let mut node = Node::new(engine, key()).await;
        let flight = node.own(&ask()).await;
        match end {
            EndStatus::Done => node.finished(&done(flight, "answer")).await,
            EndStatus::Abandoned => node.release(flight.id, None).await,
            EndStatus::Forgotten => node.forget().await,
            EndStatus::Stopped => node.stop().await,
            end => node.finished(&ended(flight, end)).await,
        }
        let view = node.view().await.expect("a record");
        assert_eq!((view.flight, view.status), (flight, KeyStatus::Ended(end)));
        assert!(
            !view.is_in_air() && view.lease_left.or(view.heartbeat).is_none() && view.waiters == 0,
            "{view:?}"
        );
        assert!(view.ended < Some(STEP), "{view:?}");
        view
    };
    for end in [
        EndStatus::Failed,
        EndStatus::TimedOut,
        EndStatus::TooLarge,
        EndStatus::Abandoned,
        EndStatus::Forgotten,
        EndStatus::Stopped,
    ] {
        let view = view(end).await;
        assert_eq!((view.stored_bytes, view.mark_left), (None, None));
    }
    let done = view(EndStatus::Done).await;
    assert_eq!((done.stored_bytes, done.mark_left), (Some(6), None));
    let private = view(EndStatus::Private).await;
    assert!(private.mark_left <= Some(KEEP) && private.mark_left > Some(KEEP - STEP));
}

pub(super) async fn look_from_outside_changes_nothing(engine: &dyn Place) {
    let key = key();
    let mut owner = Node::new(engine, key).await;
    let flight = owner.own(&ask()).await;
    let mut follower = Node::new(engine, key).await;
    follower.follow(&ask(), flight).await;
    for _ in 0..3 {
        owner.view().await.expect("a record");
        scanned(&*owner.store).await;
    }
    assert_eq!(owner.renewed(flight).await, 1);
    // Nor does it keep what would be gone.
    engine.elapse(LEASE * 2 + STEP).await;
    assert_eq!(owner.view().await, None);
    assert!(!scanned(&*owner.store).await.contains_key(&key));
}

/// All keys of a store, page by page.
pub(super) async fn scanned(store: &dyn Store) -> HashMap<KeyDigest, KeyView> {
    let (mut scan, mut found) = (store.scan(), HashMap::new());
    while let Some(page) = scan.next().await.expect("a page") {
        assert!(page.keys.len() <= 100, "{}", page.keys.len());
        found.extend(page.keys.into_iter().map(|view| (view.key, view)));
    }
    assert!(scan.next().await.expect("no page").is_none());
    found
}

pub(super) async fn scan_finds_all_keys(engine: &dyn Place) {
    let store = engine.node().await;
    let mut keys = Vec::new();
    for n in 0..150 {
        let key = key();
        let (mut session, ask) = (store.session(key), ask());
        session.introduce(Badge::new("scanned"));
        session.join(Join { lease: LEASE * 8, ..ask }).await.expect("a grant");
        if n % 3 == 0 {
            session.stop().await.expect("stopped");
        }
        keys.push(key);
    }
    let found = scanned(&*store).await;
    for (n, key) in keys.iter().enumerate() {
        let view = &found[key];
        assert_eq!((view.is_in_air(), &*view.owner), (n % 3 != 0, "scanned"), "{view:?}");
    }
    // Dropped before its page is there, a step is done again.
    let (mut scan, mut pages) = (store.scan(), HashSet::new());
    loop {
        let page = match polled_once(scan.next()).await {
            Some(page) => page,
            None => scan.next().await,
        };
        let Some(page) = page.expect("a page") else { break };
        pages.extend(page.keys.into_iter().map(|view| view.key));
    }
    assert!(keys.iter().all(|key| pages.contains(key)));
}
