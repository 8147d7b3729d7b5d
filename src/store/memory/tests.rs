//! What is the memory store's own; the conformance suite holds it to all else.

use std::{sync::Arc, time::Duration};

use super::MemoryStore;
use crate::{
    store::{Abandoned, BeatReply, EndStatus, Joined, Loss, Pushed, Store},
    testing::conformance::{
        Engine,
        node::{KEEP, LEASE, Node, ask, ask_after, done, ended, is_missing, key},
    },
};

#[derive(Default)]
struct Memory(MemoryStore);

impl Engine for Memory {
    async fn node(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    async fn elapse(&self, time: Duration) {
        tokio::time::advance(time).await;
    }
}

#[tokio::test(start_paused = true)]
async fn many_keys_leave_nothing_behind() {
    let engine = Memory::default();
    for round in 0..100_000 {
        let mut node = Node::new(&engine, key()).await;
        let flight = node.own(&ask()).await;
        match round % 4 {
            0 => node.release(flight.id, None).await,
            1 => assert_eq!(node.abandon(flight).await, Abandoned::Over),
            2 => node.finished(&ended(flight, EndStatus::Done)).await,
            _ => {}
        }
    }
    assert_eq!(engine.0.len(), 100_000);
    Engine::elapse(&engine, LEASE * 2).await;
    assert!(engine.0.is_empty());
}

#[tokio::test(start_paused = true)]
async fn answers_are_counted_until_their_time_is_over() {
    let engine = Memory::default();
    let mut node = Node::new(&engine, key()).await;
    let flight = node.own(&ask()).await;
    node.finish(&done(flight, "answer")).await;
    Engine::elapse(&engine, KEEP - LEASE).await;
    assert_eq!(engine.0.len(), 1);
    // The record of the flight before outlives the one that was let go.
    let next = node.own(&ask()).await;
    node.release(next.id, None).await;
    Engine::elapse(&engine, LEASE / 2).await;
    assert_eq!(engine.0.len(), 1);
    Engine::elapse(&engine, LEASE).await;
    assert!(engine.0.is_empty());
}

#[tokio::test(start_paused = true)]
async fn cleared_store_is_a_server_that_restarted_empty() {
    let engine = Memory::default();
    let key = key();
    let mut owner = Node::new(&engine, key).await;
    let flight = owner.own(&ask()).await;
    let mut follower = Node::new(&engine, key).await;
    follower.follow(&ask(), flight).await;
    engine.0.clear();
    assert!(engine.0.is_empty());
    assert!(matches!(follower.pushed().await, Pushed::Gap));
    assert!(matches!(owner.renew(flight).await, BeatReply::Lost(Loss::Missing)));
    is_missing(&follower.look(&ask_after(flight)).await);
    // Its subscription is still there, and the next owner's end is heard.
    let next = owner.own(&ask_after(flight)).await;
    assert!(next.token > flight.token);
    owner.finish(&done(next, "answer")).await;
    assert!(matches!(follower.pushed().await, Pushed::Ended { flight, .. } if flight == next));
}

#[tokio::test(start_paused = true)]
async fn session_that_does_not_listen_gets_a_gap() {
    let engine = Memory::default();
    let key = key();
    let mut owner = Node::new(&engine, key).await;
    let mut flight = owner.own(&ask()).await;
    let mut follower = Node::new(&engine, key).await;
    follower.follow(&ask(), flight).await;
    for _ in 0..40 {
        owner.release(flight.id, None).await;
        flight = owner.own(&ask()).await;
    }
    owner.finish(&done(flight, "answer")).await;
    assert!(matches!(follower.pushed().await, Pushed::Gap));
    let mut last = None;
    for _ in 0..32 {
        last = Some(follower.pushed().await);
    }
    assert!(matches!(last, Some(Pushed::Ended { flight: of, .. }) if of == flight));
    follower.not_pushed().await;
}

#[tokio::test(start_paused = true)]
async fn listeners_outlive_the_record_and_nothing_outlives_them() {
    let engine = Memory::default();
    let key = key();
    let mut owner = Node::new(&engine, key).await;
    let flight = owner.own(&ask()).await;
    let mut follower = Node::new(&engine, key).await;
    follower.follow(&ask(), flight).await;
    Engine::elapse(&engine, KEEP).await;
    assert!(engine.0.is_empty());
    let next = owner.own(&ask()).await;
    owner.release(next.id, None).await;
    assert!(matches!(follower.pushed().await, Pushed::Released { flight } if flight == next));
    drop(follower);
    Engine::elapse(&engine, LEASE * 2).await;
    assert!(engine.0.is_empty());
}

#[tokio::test]
async fn one_of_many_owns() {
    let store = MemoryStore::new();
    let key = key();
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let mut session = store.session(key);
            tokio::spawn(async move { session.join(ask()).await })
        })
        .collect();
    let mut owners = 0;
    for task in tasks {
        match task.await.expect("no panic").expect("no error") {
            Joined::Own { .. } => owners += 1,
            Joined::Follow { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(owners, 1);
}
