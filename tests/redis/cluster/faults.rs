//! Nodes that fail, freeze and are replaced: keys elsewhere are untouched.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tower_singleflight::{
    Store,
    store::{Beat, BeatReply, StoreErrorKind, StoreState},
};

use super::{
    rig::{LEASE, Node, ask, key_on, key_where, one_flight, slot, two_stores},
    support::{cluster::Cluster, eventually},
};

fn record() -> Bytes {
    Bytes::from_static(b"record")
}

/// User keys of all kinds, in a cluster, through the whole of two processes.
#[tokio::test]
async fn g6_scripts_that_a_node_forgot_are_sent_again() {
    let cluster = Cluster::start();
    let stores = two_stores(&cluster).await;
    let key = key_on(&cluster, 1);
    let flush = || assert_eq!(cluster.nodes[1].command(&["SCRIPT", "FLUSH"]), "+OK\r\n");
    let [mut owner, mut follower] = [Node::new(&stores[0], key), Node::new(&stores[1], key)];
    flush();
    let flight = owner.own().await;
    flush();
    follower.follow(flight).await;
    flush();
    assert!(matches!(owner.renew(flight).await, Ok(BeatReply::Renewed { waiters: 1 })));
    flush();
    owner.finish(flight, &Bytes::from(vec![7; 50_000])).await;
    follower.pushed().await;
    flush();
    assert_eq!(follower.finds(flight).await, vec![7; 50_000]);
    assert!(stores.iter().all(|store| store.errors().is_empty()));
}

/// The master that holds a key says nothing more, and does not hang up either.
#[tokio::test]
async fn g3_a_frozen_master_concerns_its_own_keys_alone() {
    let cluster = Cluster::start_with(&["--cluster-replica-no-failover", "yes"]);
    let stores = two_stores(&cluster).await;
    let dead = key_on(&cluster, 0);
    let mut lost = Node::new(&stores[0], dead);
    let lost_flight = lost.own().await;
    let alive: Vec<_> = (0..60).map(|n| key_on(&cluster, 1 + n % 2)).collect();
    let held: Vec<_> = alive[..10].to_vec();
    let mut owners = Vec::new();
    for key in &held {
        let mut node = Node::new(&stores[0], *key);
        let flight = node.own().await;
        owners.push(flight);
    }
    // One keeper's line for all of them, as a process has.
    let mut keeper = stores[0].heartbeat();
    let beats: Vec<Beat> = std::iter::once((&dead, &lost_flight))
        .chain(held.iter().zip(&owners))
        .map(|(key, flight)| Beat::Renew { key: *key, flight: *flight, lease: LEASE })
        .collect();
    assert!(keeper.beat(&beats).await.iter().all(Result::is_ok));
    cluster.nodes[0].freeze();

    let began = Instant::now();
    let mut first = None;
    for n in 0..8 {
        let start = Instant::now();
        let replies = keeper.beat(&beats).await;
        let took = start.elapsed();
        assert!(replies[0].is_err());
        assert!(replies[1..].iter().all(Result::is_ok), "{replies:?}");
        println!("g3: beat {n} took {took:?}");
        if n == 0 {
            first = Some(took);
        } else {
            // Once it is known, it holds up the others no more.
            assert!(took < Duration::from_millis(120), "{took:?}");
        }
    }
    assert!(first.unwrap() < Duration::from_millis(700), "{first:?}");

    let (mut slow, mut refused) = (Duration::ZERO, Duration::ZERO);
    for (n, key) in alive[10..].iter().enumerate() {
        let start = Instant::now();
        let joined = Node::new(&stores[1], dead).session.join(ask()).await;
        let error = joined.expect_err("it is frozen");
        if n >= 3 {
            assert_eq!(error.kind(), StoreErrorKind::Open, "{error}");
            refused = refused.max(start.elapsed());
        }
        let start = Instant::now();
        one_flight(&stores, *key, &record()).await;
        slow = slow.max(start.elapsed());
    }
    println!("g3: flights elsewhere took at most {slow:?}, frozen ones {refused:?}");
    assert!(slow < Duration::from_millis(100), "{slow:?}");
    assert!(refused < Duration::from_millis(20), "{refused:?}");
    assert_eq!(stores[1].state(), StoreState::Degraded);
    cluster.nodes[0].thaw();
    let thawed = Instant::now();
    eventually("it is asked again", async || {
        stores[1].state() == StoreState::Ok
            && Node::new(&stores[1], key_where(|slot| slot < 5000))
                .session
                .join(ask())
                .await
                .is_ok()
    })
    .await;
    println!("g3: frozen for {:?}, back {:?} after", thawed - began, thawed.elapsed());
}

/// Each master in turn is killed; pushes come back with the rest.
#[tokio::test]
async fn g1_each_master_killed_is_replaced() {
    let mut cluster = Cluster::start();
    let stores = two_stores(&cluster).await;
    for master in 0..3 {
        let key = key_on(&cluster, master);
        let slot = slot(&cluster, key);
        let [mut owner, mut follower] = [Node::new(&stores[0], key), Node::new(&stores[1], key)];
        let flight = owner.own().await;
        follower.follow(flight).await;
        cluster.nodes[master].kill();
        let killed = Instant::now();
        while cluster.owner(slot).is_none_or(|owner| owner == master) {
            assert!(killed.elapsed() < Duration::from_secs(20), "nobody took its place");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let over = Instant::now();
        // Who listened there is told to look, without having asked.
        let told = tokio::time::timeout(Duration::from_secs(5), follower.session.pushed());
        assert!(matches!(told.await, Ok(tower_singleflight::store::Pushed::Gap)));
        let told = over.elapsed();
        eventually("keys are owned again", async || {
            let key = key_where(|other| other == slot);
            Node::new(&stores[0], key).session.join(ask()).await.is_ok()
        })
        .await;
        println!(
            "g1: killed {master}: replaced after {:?}, listeners told {told:?} later, keys owned \
             {:?} later",
            over - killed,
            over.elapsed()
        );
        assert!(over.elapsed() < Duration::from_secs(5));
        eventually("all is in order", async || {
            stores.iter().all(|store| store.state() == StoreState::Ok)
        })
        .await;
        // The first flight may find the line on its way.
        let key = key_where(|other| other == slot);
        Node::new(&stores[1], key).session.join(ask()).await.unwrap();
        let took = one_flight(&stores, key_where(|other| other == slot), &record()).await;
        println!("g1: and a push took {took:?}");
        assert!(took < Duration::from_millis(100), "{took:?}");
    }
}

/// Each replica in turn takes its master's place, while that lives on.
#[tokio::test]
async fn g2_each_replica_takes_its_masters_place() {
    let cluster = Cluster::start();
    let stores = two_stores(&cluster).await;
    for replica in 3..6 {
        let key = key_on(&cluster, replica - 3);
        let slot = slot(&cluster, key);
        let [mut owner, mut follower] = [Node::new(&stores[0], key), Node::new(&stores[1], key)];
        let flight = owner.own().await;
        follower.follow(flight).await;
        cluster.fail_over(replica);
        let over = Instant::now();
        let told = tokio::time::timeout(Duration::from_secs(5), follower.session.pushed());
        assert!(matches!(told.await, Ok(tower_singleflight::store::Pushed::Gap)));
        eventually("the lease is kept", async || {
            Node::new(&stores[0], key).renew(flight).await.is_ok()
        })
        .await;
        println!("g2: failed over to {replica}, lease kept {:?} later", over.elapsed());
        assert!(over.elapsed() < Duration::from_secs(5));
        let took = one_flight(&stores, key_where(|other| other == slot), &record()).await;
        println!("g2: and a push took {took:?}");
        assert!(took < Duration::from_millis(100), "{took:?}");
        cluster.settle();
    }
}
