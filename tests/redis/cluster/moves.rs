//! Slots that move from one master to another while flights run there.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tower_singleflight::store::{Append, Appended, BeatReply, Joined, StoreErrorKind};

use super::{
    rig::{LEASE, Node, ask, ask_after, key_on, one_flight, slot, two_stores},
    support::cluster::Cluster,
};

fn records() -> [Bytes; 3] {
    // Through the script, staged and pushed, staged and fetched.
    [64, 10_000, 100_000].map(|size| Bytes::from(vec![b'r'; size]))
}

/// A slot has gone: whoever asks the old node is sent on, by every step.
#[tokio::test]
async fn g2_a_slot_that_has_moved_is_found() {
    let cluster = Cluster::start();
    let stores = two_stores(&cluster).await;
    for record in records() {
        let key = key_on(&cluster, 0);
        let slot = slot(&cluster, key);
        let [mut owner, mut follower] = [Node::new(&stores[0], key), Node::new(&stores[1], key)];
        let flight = owner.own().await;
        follower.follow(flight).await;
        cluster.begin_move(slot, 0, 1);
        cluster.move_keys(slot, 0, 1);
        cluster.end_move(slot, 0, 1);
        // The server says that the subscription is over, and so it looks.
        let told = tokio::time::timeout(Duration::from_secs(1), follower.session.pushed());
        assert!(matches!(told.await, Ok(tower_singleflight::store::Pushed::Gap)));
        match follower.session.join(ask_after(flight)).await.unwrap() {
            Joined::Follow { flight: of, .. } => assert_eq!(of, flight),
            other => panic!("{other:?}"),
        }
        assert!(matches!(owner.renew(flight).await, Ok(BeatReply::Renewed { waiters: 1.. })));
        let finishing = owner.finish(flight, &record);
        let ((), (_, took)) = tokio::join!(finishing, follower.pushed());
        assert!(took < Duration::from_millis(500), "{took:?}");
        assert_eq!(follower.finds(flight).await, record);
        println!("moved: {} bytes pushed after {took:?}", record.len());
        // Another flight of the key, at the new place from the start.
        one_flight(&stores, key, &record).await;
    }
    for store in &stores {
        let errors = format!("{store:?}");
        assert!(!errors.contains("Reply"), "{errors}");
    }
}

/// While it moves, Redis refuses scripts of which some keys are there and some are not:
/// that is an error in time, which concerns no other key, and over with the move.
#[tokio::test]
async fn g2_a_slot_on_its_way_costs_its_own_keys_alone() {
    let cluster = Cluster::start();
    let stores = two_stores(&cluster).await;
    let [key, other] = [key_on(&cluster, 0), key_on(&cluster, 0)];
    let moving = slot(&cluster, key);
    assert_ne!(slot(&cluster, other), moving);
    let mut owner = Node::new(&stores[0], key);
    let flight = owner.own().await;
    cluster.begin_move(moving, 0, 1);
    for moved in [false, true] {
        if moved {
            cluster.move_keys(moving, 0, 1);
        }
        for n in 0..5 {
            let began = Instant::now();
            let joined = Node::new(&stores[1], key).session.join(ask()).await;
            let took = began.elapsed();
            println!("keys moved: {moved}; join: {joined:?} after {took:?}");
            match joined {
                Ok(Joined::Follow { flight: of, .. }) => assert_eq!(of, flight),
                Ok(other) => panic!("{other:?}"),
                Err(error) => assert_eq!(error.kind(), StoreErrorKind::Cluster, "{error}"),
            }
            // Once it was waited for in vain, it is not waited for again for a while.
            assert!(took < Duration::from_millis(if n == 0 { 400 } else { 50 }), "{took:?}");
            // The lease is kept all the same.
            let renewed = owner.renew(flight).await;
            assert!(matches!(renewed, Ok(BeatReply::Renewed { .. })), "{renewed:?}");
            assert!(!format!("{:?}", stores[1]).contains("Degraded"));
        }
        one_flight(&stores, other, &Bytes::from_static(b"untouched")).await;
    }
    // A step under way waits for the end of the move.
    let record = Bytes::from(vec![b'r'; 20_000]);
    let (finished, ()) = tokio::join!(owner.finish(flight, &record), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cluster.end_move(moving, 0, 1);
    });
    let () = finished;
    assert_eq!(Node::new(&stores[1], key).finds(flight).await, record);
    one_flight(&stores, key, &record).await;
}

/// Pieces of a stream go on at the new place, in order, and the lease is kept.
#[tokio::test]
async fn g2_a_stream_goes_on_where_its_slot_went() {
    let cluster = Cluster::start();
    let stores = two_stores(&cluster).await;
    let key = key_on(&cluster, 0);
    let slot = slot(&cluster, key);
    let [mut owner, mut follower] = [Node::new(&stores[0], key), Node::new(&stores[1], key)];
    let flight = owner.own().await;
    follower.follow(flight).await;
    let piece = |n: u64| Bytes::from(format!("piece {n}"));
    let append = |n| Append {
        flight,
        first: n,
        pieces: vec![piece(n)],
        kept_from: 0,
        keep: LEASE,
        inline: true,
        to_come: 0,
    };
    for n in 0..10 {
        match n {
            4 => cluster.begin_move(slot, 0, 2),
            5 => {
                cluster.move_keys(slot, 0, 2);
                cluster.end_move(slot, 0, 2);
            }
            _ => {}
        }
        loop {
            match owner.session.append(append(n)).await {
                Ok(Appended::Accepted { next }) => break assert_eq!(next, n + 1),
                Ok(other) => panic!("{other:?}"),
                // Some of its keys are missing, so it waits for the end.
                Err(error) => assert_eq!((error.kind(), n), (StoreErrorKind::Cluster, 4)),
            }
            cluster.move_keys(slot, 0, 2);
            cluster.end_move(slot, 0, 2);
        }
    }
    let read = follower.session.read(flight, 0).await.unwrap();
    assert_eq!(read.pieces, (0..10).map(piece).collect::<Vec<_>>());
}
