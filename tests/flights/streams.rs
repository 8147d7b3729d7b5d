//! Answers that are handed out as they come: to callers of the same process and of
//! others, from the start and then live.

use std::sync::atomic::Ordering::SeqCst;

use tokio::time::{Instant, sleep};
use tower_singleflight::{Abandon, Config, ConfigBuilder, Delivery, FlightRole, MemoryStore};

use crate::{
    rig::*,
    tap::{Open, Taps},
};

fn config() -> ConfigBuilder {
    Config::builder().lease(LEASE)
}

/// Nodes on one store, whose runs are given their frames by the test.
fn nodes<const N: usize>(config: ConfigBuilder) -> (Taps, [Node; N], [Line; N]) {
    let (store, taps) = (MemoryStore::new(), Taps::default());
    let config = config.build().unwrap();
    let lines = std::array::from_fn(|_| Line::new(&store));
    let nodes =
        std::array::from_fn(|n| Node::new(Line::clone(&lines[n]), &taps.inner(), config.clone()));
    (taps, nodes, lines)
}

#[tokio::test(start_paused = true)]
async fn o1_each_frame_comes_at_once_here_and_elsewhere() {
    let (taps, [here, there], _) = nodes(config());
    let mut owner = here.open("/a").await;
    let mut local = here.open("/a").await;
    let mut remote = there.open("/a").await;
    for (who, role) in [
        (&owner, FlightRole::Owner),
        (&local, FlightRole::FollowerLocal),
        (&remote, FlightRole::FollowerRemote),
    ] {
        assert_eq!(who.role(), Some(role));
    }
    for n in 0..10 {
        let sent = Instant::now();
        taps.send(0, &format!("event {n}\n"));
        for reader in [&mut owner, &mut local, &mut remote] {
            assert_eq!(reader.next().await.unwrap(), format!("event {n}\n"));
            assert!(sent.elapsed() <= ms(10), "{:?}", sent.elapsed());
        }
        sleep(ms(200)).await;
    }
    taps.end(0);
    for reader in [owner, local, remote] {
        assert_eq!(reader.rest().await, Ok(String::new()));
    }
    assert_eq!(taps.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn o10_who_joins_late_gets_all_from_the_start_and_then_live() {
    let (taps, [here, there, third], _) = nodes(config());
    let owner = here.open("/a").await;
    for n in 0..500 {
        taps.send(0, &format!("{n} "));
        sleep(ms(1)).await;
    }
    let middle = [here.open("/a").await, there.open("/a").await, third.open("/a").await];
    for n in 500..1000 {
        taps.send(0, &format!("{n} "));
        sleep(ms(1)).await;
    }
    taps.end(0);
    let all: String = (0..1000).map(|n| format!("{n} ")).collect();
    assert_eq!(owner.rest().await.unwrap(), all);
    for reader in middle {
        assert_eq!(reader.rest().await.unwrap(), all);
    }
    // And who comes after the end begins anew.
    let after = there.open("/a").await;
    assert_eq!((after.role(), taps.runs()), (Some(FlightRole::Owner), 2));
}

#[tokio::test(start_paused = true)]
async fn an_unwatched_stream_sends_nothing_and_a_watched_one_a_step_a_group() {
    let (taps, [here, there], [line, _]) = nodes(config());
    let owner = here.open("/a").await;
    for _ in 0..100 {
        taps.send(0, "x");
        sleep(ms(20)).await;
    }
    assert_eq!(line.appends.load(SeqCst), 0);
    // However many follow, and however many frames come in ten milliseconds.
    let remote: Vec<Open> = {
        let mut remote = Vec::new();
        for _ in 0..20 {
            remote.push(there.open("/a").await);
        }
        remote
    };
    let before = line.appends.load(SeqCst);
    for _ in 0..50 {
        for _ in 0..10 {
            taps.send(0, "y");
            sleep(ms(2)).await;
        }
    }
    let groups = line.appends.load(SeqCst) - before;
    assert!((50..=101).contains(&groups), "{groups} steps in a second");
    // Nobody elsewhere is left: no more is sent, a beat later.
    drop(remote);
    sleep(BEAT * 2).await;
    let before = line.appends.load(SeqCst);
    for _ in 0..10 {
        taps.send(0, "z");
        sleep(ms(20)).await;
    }
    assert_eq!(line.appends.load(SeqCst), before);
    // Somebody is there again: all from the start.
    let again = there.open("/a").await;
    taps.end(0);
    let all = "x".repeat(100) + &"y".repeat(500) + &"z".repeat(10);
    assert_eq!(again.rest().await.unwrap(), all);
    assert_eq!(owner.rest().await.unwrap(), all);
    assert_eq!(taps.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn o4_lost_pushes_cost_a_beat_and_no_more() {
    let (taps, [here, there], [_, line]) = nodes(config());
    let _owner = here.open("/a").await;
    let mut remote = there.open("/a").await;
    taps.send(0, "one");
    assert_eq!(remote.next().await.unwrap(), "one");
    line.deafen();
    taps.send(0, "two");
    let sent = Instant::now();
    assert_eq!(remote.next().await.unwrap(), "two");
    assert!(sent.elapsed() <= BEAT + ms(200), "{:?}", sent.elapsed());
    taps.end(0);
    let ended = Instant::now();
    assert_eq!(remote.rest().await.unwrap(), "");
    assert!(ended.elapsed() <= BEAT + ms(200), "{:?}", ended.elapsed());
}

/// Without any push at all, as some servers have it.
#[tokio::test(start_paused = true)]
async fn a_store_without_pushes_costs_a_beat_on_each_side() {
    let (taps, [here, there], lines) = nodes(config());
    lines.iter().for_each(Line::deafen);
    let owner = here.open("/a").await;
    taps.send(0, "one ");
    let asked = Instant::now();
    let remote = there.open("/a").await;
    assert!(asked.elapsed() <= BEAT * 2 + ms(400), "{:?}", asked.elapsed());
    taps.send(0, "two");
    taps.end(0);
    assert_eq!(remote.rest().await.unwrap(), "one two");
    assert_eq!(owner.rest().await.unwrap(), "one two");
}

#[tokio::test(start_paused = true)]
async fn a4_the_run_goes_on_while_anybody_reads_anywhere() {
    for abandon in [Abandon::Abort, Abandon::Finish] {
        let (taps, [here, there], _) = nodes(config().abandon(abandon));
        let owner = here.open("/a").await;
        let mut remote = there.open("/a").await;
        taps.send(0, "one");
        assert_eq!(remote.next().await.unwrap(), "one");
        drop(owner);
        sleep(LEASE * 2).await;
        taps.send(0, "two");
        assert_eq!(remote.next().await.unwrap(), "two");
        assert!(!taps.is_dropped(0));
        drop(remote);
        sleep(BEAT + ms(100)).await;
        assert_eq!(taps.is_dropped(0), abandon == Abandon::Abort, "{abandon:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_again_gets_the_stream_from_the_start() {
    let (taps, [here, there], _) =
        nodes(config().abandon(Abandon::Finish).reuse(LEASE * 2).retention(LEASE * 3));
    let mut first = here.open("/a").await;
    taps.send(0, "one ");
    assert_eq!(first.next().await.unwrap(), "one ");
    drop(first);
    sleep(ms(500)).await;
    let again = here.open("/a").await;
    taps.send(0, "two ");
    drop(again);
    sleep(ms(500)).await;
    taps.end(0);
    sleep(ms(500)).await;
    // After the end, from the record of it.
    for node in [&here, &there] {
        let reused = node.open("/a").await;
        assert!(matches!(reused.role(), Some(FlightRole::Reused { .. })));
        assert_eq!(reused.rest().await.unwrap(), "one two ");
    }
    assert_eq!(taps.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_was_watched_is_reused_from_its_pieces() {
    let (taps, [here, there], _) = nodes(config().reuse(LEASE * 2).retention(LEASE * 3));
    let owner = here.open("/a").await;
    let remote = there.open("/a").await;
    taps.send(0, "one ");
    sleep(ms(50)).await;
    taps.send(0, "two");
    taps.end(0);
    assert_eq!(owner.rest().await.unwrap(), "one two");
    assert_eq!(remote.rest().await.unwrap(), "one two");
    for node in [&here, &there] {
        let reused = node.open("/a").await;
        assert!(matches!(reused.role(), Some(FlightRole::Reused { .. })));
        assert_eq!(reused.rest().await.unwrap(), "one two");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_fails_is_an_error_to_every_reader() {
    let (taps, [here, there], _) = nodes(config());
    let owner = here.open("/a").await;
    let local = here.open("/a").await;
    let remote = there.open("/a").await;
    taps.send(0, "one");
    sleep(ms(50)).await;
    taps.fail(0, "upstream went away");
    for reader in [owner, local, remote] {
        let error = reader.rest().await.unwrap_err();
        assert!(error.contains("broke off"), "{error}");
    }
    assert_eq!(taps.runs(), 1);
    sleep(ms(100)).await;
    assert_eq!((here.in_air(), there.in_air()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_holds_up_nobody_and_breaks_off_behind_the_window() {
    let (taps, [here, there], _) = nodes(config().max_share_bytes(64 * 1024));
    let mut slow = here.open("/a").await;
    let mut fast = here.open("/a").await;
    let mut remote = there.open("/a").await;
    let chunk = "0123456789abcdef".repeat(64);
    for _ in 0..500 {
        taps.send(0, &chunk);
        let sent = Instant::now();
        for reader in [&mut fast, &mut remote] {
            let mut read = 0;
            while read < chunk.len() {
                read += reader.next().await.unwrap().len();
            }
        }
        assert!(sent.elapsed() <= ms(50), "{:?}", sent.elapsed());
    }
    let error = loop {
        match slow.next().await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.contains("behind"), "{error}");
    // Who comes now begins anew, in both processes.
    for (node, run) in [(&here, 1), (&there, 2)] {
        let late = node.open("/a").await;
        assert_eq!(taps.runs(), run + 1);
        taps.end(run);
        assert_eq!(late.rest().await.unwrap(), "");
    }
    taps.end(0);
    assert_eq!((fast.rest().await.unwrap(), remote.rest().await.unwrap()), Default::default());
}

/// As if the layer were not there: no limit of size or time, and the client sets the
/// pace.
#[tokio::test(start_paused = true)]
async fn o6_a_lone_client_of_an_endless_stream_sets_the_pace() {
    let (taps, [here, there], _) =
        nodes(config().max_share_bytes(64 * 1024).hard_timeout(ms(20_000)));
    let mut owner = here.open("/a").await;
    let chunk = "x".repeat(1024);
    for _ in 0..200 {
        taps.send(0, &chunk);
    }
    sleep(ms(1000)).await;
    assert!(taps.waiting(0) > 100, "inner runs ahead of its client");
    // It is nobody's flight any more.
    assert_eq!(here.in_air(), 0);
    let other = there.open("/a").await;
    assert_eq!((other.role(), taps.runs()), (Some(FlightRole::Owner), 2));
    for _ in 0..200 {
        assert_eq!(owner.next().await.unwrap(), chunk);
        sleep(ms(500)).await;
    }
    drop(owner);
    sleep(ms(10)).await;
    assert!(taps.is_dropped(0));
}

#[tokio::test(start_paused = true)]
async fn a_stall_is_ended_by_the_idle_timeout() {
    let (taps, [here, there], _) = nodes(config().idle_timeout(ms(5000)));
    let owner = here.open("/a").await;
    let remote = there.open("/a").await;
    taps.send(0, "one");
    let sent = Instant::now();
    until(|| taps.is_dropped(0)).await;
    assert!((5000..5050).contains(&(sent.elapsed().as_millis() as u64)), "{:?}", sent.elapsed());
    // The next run says the same, and more: who has begun elsewhere goes on.
    until(|| taps.runs() == 2).await;
    taps.send(1, "one");
    taps.send(1, " two");
    taps.end(1);
    assert_eq!(remote.rest().await.unwrap(), "one two");
    assert!(owner.rest().await.unwrap_err().contains("time limit"));
}

#[tokio::test(start_paused = true)]
async fn two_stalls_are_a_failure_and_no_clean_end() {
    let (taps, [here, there], _) = nodes(config().idle_timeout(ms(2000)));
    let owner = here.open("/a").await;
    let remote = there.open("/a").await;
    taps.send(0, "one");
    until(|| taps.runs() == 2).await;
    taps.send(1, "one");
    for reader in [owner, remote] {
        let error = reader.rest().await.unwrap_err();
        assert!(error.contains("time limit") || error.contains("lost"), "{error}");
    }
    assert_eq!(taps.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn trailers_come_to_all() {
    let (taps, [here, there], _) = nodes(config());
    let owner = here.open("/a").await;
    let remote = there.open("/a").await;
    taps.send(0, "one");
    sleep(ms(50)).await;
    taps.trailers(0, "x-sum", "17");
    for mut reader in [owner, remote] {
        assert_eq!(reader.next().await.unwrap(), "one");
        assert_eq!(reader.trailers().await.unwrap()["x-sum"], "17");
        assert_eq!(reader.next().await.unwrap(), "");
    }
}

#[tokio::test(start_paused = true)]
async fn the_head_of_a_forced_stream_is_there_before_its_body() {
    let (taps, [here, there], _) = nodes(config().delivery(Delivery::Streaming));
    let owner = here.open("/a").await;
    let remote = there.open("/a").await;
    taps.end(0);
    assert_eq!((owner.rest().await.unwrap(), remote.rest().await.unwrap()), Default::default());
}

#[tokio::test(start_paused = true)]
async fn who_follows_before_the_head_is_handed_it_at_once() {
    let (taps, [here, there], _) = nodes(config());
    taps.hold_heads();
    let (owner, remote) = (here.opening("/a"), there.opening("/a"));
    sleep(ms(300)).await;
    taps.let_heads_go();
    let head = Instant::now();
    let (owner, remote) = (owner.await.unwrap(), remote.await.unwrap());
    assert!(head.elapsed() <= ms(10), "{:?}", head.elapsed());
    taps.send(0, "one");
    taps.end(0);
    assert_eq!(owner.rest().await.unwrap(), "one");
    assert_eq!(remote.rest().await.unwrap(), "one");
}
