//! Shadow mode has nothing to do with those who share.

use std::time::Duration;

use futures_util::future::join_all;
use tower::Layer as _;
use tower_singleflight::{HttpKey, MemoryStore};

use super::{Layer, SHADOW, config, counts, shadows};
use crate::support::{Runs, ask, crowd, get, layer, ms, sure, text, until};

fn beside() -> (MemoryStore, Layer, Layer) {
    let store = MemoryStore::new();
    let sharing = layer().store(store.clone()).namespace("tests");
    let shadow = sharing.clone().config(config().build().unwrap());
    (store, sharing, shadow)
}

#[tokio::test(start_paused = true)]
async fn it_never_meets_those_who_share_on_the_same_store() {
    for shadow_first in [true, false] {
        let (_, sharing, shadow) = beside();
        let (shared, shadowed) = (Runs::default(), Runs::default());
        let sharer = sharing.layer(sure(&shared, ms(100), |run, _| text(format!("shared {run}"))));
        let other = shadow.layer(sure(&shadowed, ms(100), |_, _| text("own")));
        let first = if shadow_first { 1 } else { 3 };
        let shadowed_callers = |count| join_all((0..count).map(|_| ask(&other, get("/"))));
        let (early, answers, late) = tokio::join!(
            shadowed_callers(first),
            join_all((0..4).map(|_| ask(&sharer, get("/")))),
            shadowed_callers(4 - first),
        );
        for answer in answers {
            assert_eq!(answer.text(), "shared 0");
        }
        for answer in early.into_iter().chain(late) {
            assert_eq!((answer.role, answer.text()), (SHADOW, "own"));
        }
        assert_eq!((shared.total(), shadowed.total()), (1, 4));
        assert_eq!(counts(&[&shadow]).await, [3, 0, 0, 0]);
        assert_eq!((sharing.stats().owner, sharing.stats().follower_local), (1, 3));
        assert_eq!(sharing.stats().bad_records, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn it_leaves_nothing_behind() {
    let (store, _, shadow) = beside();
    let service = shadow.layer(sure(&Runs::default(), ms(100), |run, _| text(format!("{run}"))));
    crowd(&[&service], 3, get("/")).await;
    assert_eq!(counts(&[&shadow]).await, [0, 2, 0, 0]);
    tokio::time::sleep(Duration::from_secs(35)).await;
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn switched_off_nothing_is_compared_and_drained_everybody_is_answered() {
    let (_, _, shadow) = beside();
    let service = shadow.layer(sure(&Runs::default(), ms(100), |_, _| text("same")));
    shadow.switch().turn_off();
    crowd(&[&service], 3, get("/")).await;
    assert_eq!((counts(&[&shadow]).await, shadow.stats().shadow_agreed), ([0; 4], 0));
    shadow.switch().turn_on();

    let callers = join_all((0..3).map(|_| ask(&service, get("/"))));
    let (answers, ()) = tokio::join!(callers, shadow.drain(Duration::from_secs(1)));
    assert!(answers.iter().all(|answer| answer.role == SHADOW && answer.text() == "same"));
    assert_eq!(counts(&[&shadow]).await, [2, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn who_comes_after_the_owner_has_its_answer_begins_anew() {
    let [a, b] = shadows(&HttpKey::new());
    let runs = Runs::default();
    let times = sure(&runs, ms(100), |run, _| text(if run < 2 { "one" } else { "another" }));
    let services = [&a, &b].map(|layer| layer.layer(times.clone()));
    let owner = tokio::spawn(ask(&services[0], get("/")));
    until("the owner runs", || runs.total() == 1).await;
    tokio::time::sleep(ms(50)).await;
    let follower = tokio::spawn(ask(&services[1], get("/")));
    owner.await.unwrap();
    // The follower still runs, but its flight is over.
    ask(&services[0], get("/")).await;
    follower.await.unwrap();
    assert_eq!(counts(&[&a, &b]).await, [1, 0, 0, 0]);
}
