//! Answers that are held back until they are whole.

use tokio::time::sleep;
use tower_singleflight::{Config, Delivery, FlightRole, MemoryStore};

use crate::{rig::*, tap::Taps};

/// Held back until it is too large to be shared: then each of its callers has a run of its
/// own, at its own pace, and the key is free.
#[tokio::test(start_paused = true)]
async fn o6_an_endless_answer_is_held_back_to_the_limit_and_no_further() {
    const CHUNK: usize = 1024;
    let (taps, store) = (Taps::default(), MemoryStore::new());
    let config = Config::builder().delivery(Delivery::Buffered).max_share_bytes(64 * CHUNK);
    let config = config.build().unwrap();
    let [here, there, third] =
        [(); 3].map(|()| Node::new(store.clone(), &taps.inner(), config.clone()));
    let owner = here.opening("/a");
    until(|| taps.runs() == 1).await;
    let others = [here.opening("/a"), there.opening("/a")];
    until(|| there.layer.flights().first().is_some_and(|flight| flight.token.is_some())).await;
    let chunk = "x".repeat(CHUNK);
    let mut sent = 0;
    while !owner.is_finished() {
        assert_eq!(taps.runs(), 1, "the others wait for it");
        assert!(sent <= 65, "{sent} are held back");
        taps.send(0, &chunk);
        sent += 1;
        sleep(ms(10)).await;
    }
    assert!(sent >= 64, "given up after {sent}");
    let mut readers = vec![owner.await.unwrap()];
    for other in others {
        readers.push(other.await.unwrap());
    }
    let roles: Vec<_> = readers.iter().map(|reader| reader.role().unwrap()).collect();
    assert_eq!(roles[0], FlightRole::Owner);
    assert!(matches!(roles[1..], [FlightRole::Bypass(_), FlightRole::Bypass(_)]), "{roles:?}");
    // No lease is held for what is shared with nobody.
    until(|| here.in_air() + there.in_air() == 0).await;
    assert_eq!(taps.runs(), 3);
    let next = third.opening("/a");
    until(|| taps.runs() == 4).await;
    assert!(third.layer.flights()[0].token.is_some());
    next.abort();
    // Their clients set the pace: what they do not read is not read for them.
    for (run, reader) in readers.iter_mut().enumerate() {
        for _ in 0..200 {
            taps.send(run, &chunk);
        }
        sleep(ms(100)).await;
        assert!(taps.waiting(run) > 100, "run {run} runs ahead of its client");
        let held = if run == 0 { sent } else { 0 };
        for _ in 0..held + 200 {
            assert_eq!(reader.next().await.unwrap(), chunk);
        }
    }
    drop(readers);
    sleep(ms(10)).await;
    assert!((0..3).all(|run| taps.is_dropped(run)));
}
