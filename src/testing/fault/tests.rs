use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Fault, FaultStore, Step};
use crate::{
    MemoryStore, Store,
    store::{Beat, BeatReply, Joined, Session, StoreError, StoreErrorKind, StoreState},
    testing::conformance::node::{KEEP, LEASE, ask, done, key},
};

const LIMIT: Duration = Duration::from_millis(250);

pub(super) struct World {
    pub(super) store: FaultStore<MemoryStore>,
    /// Another process, whose line is whole.
    pub(super) other: Box<dyn Session>,
    pub(super) session: Box<dyn Session>,
}

pub(super) fn world() -> World {
    let memory = MemoryStore::new();
    let (key, store) = (key(), FaultStore::new(memory.clone()));
    World { other: memory.session(key), session: store.session(key), store }
}

fn kind<T>(answer: Result<T, StoreError>) -> Option<StoreErrorKind> {
    answer.err().map(|error| error.kind())
}

fn owns(joined: &Result<Joined, StoreError>) -> bool {
    matches!(joined, Ok(Joined::Own { .. }))
}

/// What it took by the clock.
pub(super) async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    (future.await, began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_wrong_by_itself() {
    let World { store, mut session, .. } = world();
    assert!(owns(&session.join(ask()).await));
    assert_eq!((store.state(), store.errors()), (StoreState::Memory, vec![]));
    assert_eq!((store.calls(Step::Join), store.calls(Step::Fetch)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cut_line_fails_at_once_until_it_is_healed() {
    let World { store, mut session, mut other } = world();
    store.cut();
    let mut keeper = store.heartbeat();
    let disconnected = Some(StoreErrorKind::Disconnected);
    let (joined, took) = timed(session.join(ask())).await;
    assert_eq!((kind(joined), took), (disconnected, Duration::ZERO));
    assert_eq!(kind(session.stop().await), disconnected);
    assert_eq!(kind(store.inspect(key()).await), disconnected);
    assert_eq!(kind(store.scan().next().await), disconnected);
    let leave = Beat::Leave { key: key(), waiter: ask().waiter };
    let replies = keeper.beat(&[leave.clone(), leave]).await;
    assert!(replies.iter().all(Result::is_err) && replies.len() == 2);
    assert_eq!(store.state(), StoreState::Degraded);
    assert_eq!(store.errors(), [(StoreErrorKind::Disconnected, 6)]);
    // It never came to the store.
    assert!(owns(&other.join(ask()).await));
    store.heal();
    assert!(matches!(session.join(ask()).await, Ok(Joined::Follow { .. })));
    assert_eq!(store.state(), StoreState::Memory);
}

#[tokio::test(start_paused = true)]
async fn planned_faults_come_first_and_in_order() {
    let World { store, mut session, .. } = world();
    store.next(Step::Fetch, 2, Fault::Fail(StoreErrorKind::Busy));
    store.next(Step::Fetch, 1, Fault::Fail(StoreErrorKind::Loading));
    store.on(Step::Fetch, Fault::Fail(StoreErrorKind::ReadOnly));
    let mut kinds = Vec::new();
    for _ in 0..5 {
        kinds.extend(kind(session.fetch().await));
    }
    use StoreErrorKind::{Busy, Loading, ReadOnly};
    assert_eq!(kinds, [Busy, Busy, Loading, ReadOnly, ReadOnly]);
    assert!(session.stop().await.is_ok(), "no other step");
    store.heal();
    assert!(session.fetch().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_of_a_step_that_is_done() {
    let World { store, mut session, mut other } = world();
    store.next(Step::Join, 1, Fault::LoseReply);
    let mine = ask();
    assert_eq!(kind(session.join(mine.clone()).await), Some(StoreErrorKind::Disconnected));
    assert!(matches!(other.join(ask()).await, Ok(Joined::Follow { .. })));
    assert!(owns(&session.join(mine).await), "asked again it owns");
}

#[tokio::test(start_paused = true)]
async fn a_lost_step_takes_its_limit_and_is_not_done() {
    let World { store, mut session, mut other } = world();
    let limit = Duration::from_secs(7);
    let store = store.limit(limit);
    store.next(Step::Join, 1, Fault::Lose);
    let (joined, took) = timed(session.join(ask())).await;
    assert_eq!((kind(joined), took), (Some(StoreErrorKind::TimedOut), limit));
    assert!(owns(&other.join(ask()).await));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_step_comes_late_or_not_at_all() {
    let World { store, mut session, .. } = world();
    store.delay(LIMIT);
    let (fetched, took) = timed(session.fetch()).await;
    assert_eq!((kind(fetched), took), (None, LIMIT));
    store.delay(LIMIT + Duration::from_millis(1));
    let (fetched, took) = timed(session.fetch()).await;
    assert_eq!((kind(fetched), took), (Some(StoreErrorKind::TimedOut), LIMIT));
    let store = store.limit(Duration::MAX);
    store.delay(Duration::from_secs(3600));
    assert!(session.fetch().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_frozen_step_goes_on_when_it_thaws() {
    let World { store, mut session, mut other } = world();
    store.freeze();
    assert_eq!(store.state(), StoreState::Degraded);
    let (joined, took) = timed(session.join(ask())).await;
    assert_eq!((kind(joined), took), (Some(StoreErrorKind::TimedOut), LIMIT));
    let thaw = async {
        store.until_calls(Step::Join, 2).await;
        assert!(other.fetch().await.is_ok(), "other lines are whole");
        store.thaw();
    };
    let ((joined, took), ()) = tokio::join!(timed(session.join(ask())), thaw);
    assert!(owns(&joined) && took.is_zero(), "{took:?}");
    // One step alone, however long it takes.
    let store = store.limit(Duration::MAX);
    store.next(Step::Fetch, 1, Fault::Freeze);
    let thaw = async {
        tokio::time::advance(Duration::from_secs(3600)).await;
        store.thaw();
    };
    let (fetched, ()) = tokio::join!(session.fetch(), thaw);
    assert!(fetched.is_ok() && session.stop().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_operation_of_a_beat_fails_alone() {
    let World { store, mut session, .. } = world();
    let (mine, at) = (ask(), key());
    let mut keeper = store.heartbeat();
    let mut owner = store.session(at);
    let Ok(Joined::Own { token }) = owner.join(mine.clone()).await else { panic!("no lease") };
    let flight = crate::FlightRef { token, id: mine.flight };
    let renew = Beat::Renew { key: at, flight, lease: LEASE };
    let leave = Beat::Leave { key: at, waiter: mine.waiter };
    for fault in [Fault::Lose, Fault::LoseReply] {
        store.next(Step::Leave, 1, fault);
        let replies = keeper.beat(&[renew.clone(), leave.clone(), renew.clone()]).await;
        assert!(
            matches!(
                replies[..],
                [Ok(BeatReply::Renewed { .. }), Err(_), Ok(BeatReply::Renewed { .. })]
            ),
            "{replies:?}"
        );
    }
    assert_eq!((store.calls(Step::Beat), store.calls(Step::Renew)), (2, 4));
    assert!(session.fetch().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_operation_that_is_held_holds_its_beat() {
    let World { store, .. } = world();
    let leave = || Beat::Leave { key: key(), waiter: ask().waiter };
    let mut keeper = store.heartbeat();
    let late = LIMIT / 2;
    for (fault, takes) in [(Fault::Lose, LIMIT), (Fault::Delay(late), late), (Fault::Freeze, LIMIT)]
    {
        store.next(Step::Leave, 1, fault);
        let (replies, took) = timed(keeper.beat(&[leave(), leave()])).await;
        assert_eq!((took, replies.len()), (takes, 2), "{fault:?}");
        assert!(replies[1].is_ok(), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_of_the_way() {
    let second = Duration::from_secs(1);
    let slow = FaultStore::new(MemoryStore::new()).limit(second);
    slow.delay(second);
    let (fetched, took) = timed(FaultStore::new(slow).session(key()).fetch()).await;
    assert!(fetched.is_ok());
    assert_eq!(took, second);
}

/// Follows a flight of the other, which ends so many times as it is told.
pub(super) async fn followed(
    session: &mut dyn Session,
    other: &mut dyn Session,
) -> crate::FlightRef {
    let mine = ask();
    let Ok(Joined::Own { token }) = other.join(mine.clone()).await else { panic!("no lease") };
    assert!(matches!(session.join(ask()).await, Ok(Joined::Follow { .. })));
    crate::FlightRef { token, id: mine.flight }
}

#[tokio::test(start_paused = true)]
async fn what_is_held_falls_when_the_line_breaks() {
    let World { store, mut session, mut other } = world();
    let flight = followed(&mut *session, &mut *other).await;
    other.finish(done(flight, "answer")).await.unwrap();
    let held = session.hold(flight, KEEP).await.unwrap().expect("an answer");
    assert!(held.vigil.stands());
    store.cut();
    assert!(!held.vigil.stands());
    store.heal();
    assert!(!held.vigil.stands(), "once false, it stays so");
    assert!(session.hold(flight, KEEP).await.unwrap().is_some());
    store.lose_pushes();
    assert!(session.hold(flight, KEEP).await.unwrap().is_none(), "who hears nothing");
}

#[tokio::test(start_paused = true)]
async fn what_comes_by_chance_comes_again_with_its_seed() {
    let faults = [Fault::Fail(StoreErrorKind::Busy), Fault::LoseReply];
    let mut stories = Vec::new();
    for seed in [7, 7, 8] {
        let World { store, mut session, .. } = world();
        store.at_random(seed, 4, faults);
        let mut story = Vec::new();
        for _ in 0..400 {
            story.push(kind(session.fetch().await));
        }
        let failed = story.iter().flatten().count();
        assert!((60..140).contains(&failed), "{failed}");
        store.at_random(seed, 1, []);
        assert!(session.fetch().await.is_ok(), "nothing to choose from");
        stories.push(story);
    }
    assert!(stories[0] == stories[1] && stories[1] != stories[2]);
}

#[tokio::test(start_paused = true)]
async fn lost_data_is_lost_for_all() {
    let World { store, mut session, mut other } = world();
    followed(&mut *session, &mut *other).await;
    store.lose_data();
    assert!(store.get_ref().is_empty());
    assert!(owns(&session.join(ask()).await));
}

/// With nothing wrong it is what it wraps.
mod whole {
    use super::*;

    crate::conformance_tests! {
        #[tokio::test(start_paused = true)]
        {
            let store = MemoryStore::new();
            move || std::future::ready(FaultStore::new(store.clone()))
        }
    }
}

#[test]
fn it_crosses_threads_and_shows_no_keys() {
    fn shared<T: Send + Sync + Clone + Store>(_: &T) {}
    let store = FaultStore::new(MemoryStore::new());
    shared(&store);
    assert_eq!(format!("{store:?}"), "FaultStore { store: MemoryStore { .. }, .. }");
    let _: Arc<dyn Store> = Arc::new(store);
}
