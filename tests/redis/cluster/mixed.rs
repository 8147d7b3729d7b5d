//! What a node says unasked, when it loses a slot, is not taken for an answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::task::block_in_place;
use tower_singleflight::{
    FlightRef, RedisStore, Store,
    store::{Joined, Pushed, StoreErrorKind},
};

use super::{
    rig::{Node, ask, ask_after, end, key_where, two_stores},
    support::cluster::Cluster,
};

/// A flight of two processes, whose record is its key: what comes of it, if anything,
/// is of this key.
async fn flight(stores: &[RedisStore; 2], slots: [u16; 2]) -> bool {
    let key = key_where(|slot| (slots[0]..slots[1]).contains(&slot));
    let record = Bytes::from(key.to_string());
    let [mut owner, mut follower] = [Node::new(&stores[0], key), Node::new(&stores[1], key)];
    let join = ask();
    let flight = match owner.session.join(join.clone()).await {
        Ok(Joined::Own { token }) => FlightRef { token, id: join.flight },
        // Nobody else has this key.
        Ok(other) => panic!("another key's answer: {other:?}"),
        Err(_) => return false,
    };
    match follower.session.join(ask()).await {
        Ok(Joined::Follow { flight: of, .. }) => assert_eq!(of, flight, "another key's answer"),
        Ok(other) => panic!("another key's answer: {other:?}"),
        Err(_) => return false,
    }
    if owner.session.finish(end(flight, &record)).await.is_err() {
        return false;
    }
    loop {
        let pushed = tokio::time::timeout(Duration::from_secs(2), follower.session.pushed()).await;
        match pushed {
            Ok(Pushed::Ended { flight: of, record: Some(pushed), .. }) => {
                assert_eq!((of, pushed), (flight, record));
                return true;
            }
            Ok(Pushed::Gap) => match follower.session.join(ask_after(flight)).await {
                Ok(Joined::Done { flight: of, record: found, .. }) => {
                    assert_eq!((of, found), (flight, Some(record)));
                    return true;
                }
                Ok(Joined::Follow { flight: of, .. }) => assert_eq!(of, flight),
                Ok(other) => panic!("another key's answer: {other:?}"),
                Err(_) => return false,
            },
            Ok(other) => panic!("{other:?}"),
            Err(_) => return false,
        }
    }
}

/// Slots with listeners are moved away under many flights that share their lines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_answers_are_never_mixed_up_while_slots_move() {
    const SLOTS: [u16; 2] = [100, 140];
    let cluster = Cluster::start();
    let stores = Arc::new(two_stores(&cluster).await);
    let stop = Arc::new(AtomicBool::new(false));
    let (whole, broken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut flights = tokio::task::JoinSet::new();
    // Others on the same node go on beside those that move.
    for slots in [SLOTS, [141, 5000]] {
        for _ in 0..12 {
            let (stores, stop) = (Arc::clone(&stores), Arc::clone(&stop));
            let (whole, broken) = (Arc::clone(&whole), Arc::clone(&broken));
            flights.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let came = flight(&stores, slots).await;
                    if came { &whole } else { &broken }.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
    block_in_place(|| {
        for round in 0..4 {
            let (from, to) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
            for slot in SLOTS[0]..SLOTS[1] {
                cluster.begin_move(slot, from, to);
                cluster.move_keys(slot, from, to);
                cluster.end_move(slot, from, to);
            }
        }
    });
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = flights.join_next().await {
        ended.expect("each answer was its own");
    }
    let (whole, broken) = (whole.load(Ordering::Relaxed), broken.load(Ordering::Relaxed));
    println!("g2: {whole} flights whole, {broken} without an answer; {:?}", stores[0].errors());
    assert!(whole > 10 * broken, "{whole} whole, {broken} not");
    let replies =
        |store: &RedisStore| store.errors().iter().any(|(kind, _)| *kind == StoreErrorKind::Reply);
    assert!(!stores.iter().any(replies), "{:?}", stores[0].errors());
}
