//! An owner that is lost while its answer is handed out: who has begun goes on where
//! the next run says the same, and breaks off where it does not.

use std::{io, sync::Arc};

use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{Instant, sleep};
use tower_singleflight::{Config, FlightRole, LeaseLoss, MemoryStore};

use crate::{
    rig::*,
    tap::{Open, Taps},
};

struct Fleet {
    taps: Taps,
    store: MemoryStore,
    lines: Vec<Line>,
    nodes: Vec<Node>,
}

fn fleet(nodes: usize, config: &Config) -> Fleet {
    let (store, taps) = (MemoryStore::new(), Taps::default());
    let lines: Vec<Line> = (0..nodes).map(|_| Line::new(&store)).collect();
    let nodes =
        lines.iter().map(|line| Node::new(line.clone(), &taps.inner(), config.clone())).collect();
    Fleet { taps, store, lines, nodes }
}

fn config() -> Config {
    Config::builder().lease(LEASE).build().unwrap()
}

impl Fleet {
    /// An owner, and a reader elsewhere that has got `one`.
    async fn begun(&self) -> (Open, Open) {
        let owner = self.nodes[0].open("/a").await;
        let mut remote = self.nodes[1].open("/a").await;
        self.taps.send(0, "one");
        assert_eq!(remote.next().await.unwrap(), "one");
        (owner, remote)
    }

    /// The process of the owner is gone without a word.
    fn kill_owner(&self, owner: Open) {
        self.lines[0].cut();
        drop(owner);
    }
}

#[tokio::test(start_paused = true)]
async fn o2_who_has_begun_goes_on_where_the_next_run_says_the_same() {
    let fleet = fleet(3, &config());
    let (owner, remote) = fleet.begun().await;
    let third = fleet.nodes[2].open("/a").await;
    fleet.kill_owner(owner);
    let killed = Instant::now();
    until(|| fleet.taps.runs() == 2).await;
    assert!(killed.elapsed() <= LEASE + ms(1000), "{:?}", killed.elapsed());
    for text in ["on", "e two", " three"] {
        fleet.taps.send(1, text);
        sleep(ms(30)).await;
    }
    fleet.taps.end(1);
    for reader in [remote, third] {
        let text = reader.rest().await.unwrap();
        assert!("one two three".ends_with(&text) && text.len() >= 10, "{text}");
    }
    assert_eq!(fleet.taps.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn o2_who_has_begun_breaks_off_where_the_next_run_says_something_else() {
    for (text, ends) in [("onE two", false), ("on", true), ("two", true)] {
        let fleet = fleet(2, &config());
        let (owner, remote) = fleet.begun().await;
        fleet.kill_owner(owner);
        until(|| fleet.taps.runs() == 2).await;
        fleet.taps.send(1, text);
        if ends {
            fleet.taps.end(1);
        }
        let error = remote.rest().await.unwrap_err();
        assert!(error.contains("another"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_begun_with_nothing_yet_sees_no_takeover() {
    let fleet = fleet(2, &config());
    let owner = fleet.nodes[0].open("/a").await;
    let remote = fleet.nodes[1].open("/a").await;
    fleet.kill_owner(owner);
    until(|| fleet.taps.runs() == 2).await;
    fleet.taps.send(1, "other");
    fleet.taps.end(1);
    assert_eq!(remote.rest().await.unwrap(), "other");
}

/// Nobody begins with the answer of a run whose owner may be gone.
#[tokio::test(start_paused = true)]
async fn who_comes_during_a_takeover_begins_with_the_next_run() {
    let fleet = fleet(2, &config());
    let (owner, remote) = fleet.begun().await;
    fleet.taps.hold_heads();
    fleet.kill_owner(owner);
    until(|| fleet.taps.runs() == 2).await;
    let late = fleet.nodes[1].opening("/a");
    sleep(ms(100)).await;
    assert!(!late.is_finished());
    fleet.taps.let_heads_go();
    let late = late.await.unwrap();
    fleet.taps.send(1, "other");
    fleet.taps.end(1);
    assert_eq!(late.rest().await.unwrap(), "other");
    assert!(remote.rest().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn two_takeovers_of_the_same_answer_are_not_seen() {
    let fleet = fleet(3, &config());
    let (owner, second) = fleet.begun().await;
    let third = fleet.nodes[2].open("/a").await;
    fleet.kill_owner(owner);
    until(|| fleet.taps.runs() == 2).await;
    fleet.taps.send(1, "one two ");
    sleep(ms(50)).await;
    // One of the two others runs it now; it goes too.
    let (next, last) = match fleet.nodes[1].layer.stats().takeovers {
        1 => (1, third),
        _ => (2, second),
    };
    fleet.lines[next].cut();
    until(|| fleet.taps.runs() == 3).await;
    fleet.taps.send(2, "one tw");
    sleep(ms(30)).await;
    fleet.taps.send(2, "o three");
    fleet.taps.end(2);
    let text = last.rest().await.unwrap();
    assert!("one two three".ends_with(&text), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_cut_off_goes_on_for_those_who_have_begun_here() {
    for loss in [LeaseLoss::Abort, LeaseLoss::FinishLocally] {
        let config = Config::builder().lease(LEASE).lease_loss(loss).build().unwrap();
        let fleet = fleet(2, &config);
        let (owner, remote) = fleet.begun().await;
        let local = fleet.nodes[0].open("/a").await;
        fleet.lines[0].cut();
        until(|| fleet.taps.runs() == 2).await;
        fleet.taps.send(0, " first");
        fleet.taps.end(0);
        fleet.taps.send(1, "one second");
        fleet.taps.end(1);
        assert_eq!(owner.rest().await.unwrap(), "one first");
        assert_eq!(local.rest().await.unwrap(), "one first");
        assert_eq!(remote.rest().await.unwrap(), " second");
    }
}

/// The store is back, empty, in the middle of the answer.
#[tokio::test(start_paused = true)]
async fn lost_data_breaks_no_answer() {
    let fleet = fleet(2, &config());
    let (owner, mut remote) = fleet.begun().await;
    fleet.store.clear();
    sleep(BEAT * 3).await;
    fleet.taps.send(0, " two");
    assert_eq!(remote.next().await.unwrap(), " two");
    fleet.taps.end(0);
    assert_eq!(remote.rest().await.unwrap(), "");
    assert_eq!(owner.rest().await.unwrap(), "one two");
    assert_eq!(fleet.taps.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_hands_a_stream_over() {
    let fleet = fleet(2, &config());
    let (owner, remote) = fleet.begun().await;
    fleet.nodes[0].layer.drain(ms(100)).await;
    let drained = Instant::now();
    until(|| fleet.taps.runs() == 2).await;
    assert!(drained.elapsed() <= ms(300), "{:?}", drained.elapsed());
    fleet.taps.send(1, "one two");
    fleet.taps.end(1);
    assert_eq!(remote.rest().await.unwrap(), " two");
    // Its own client goes on with the other process, or is told.
    match owner.rest().await {
        Ok(text) => assert_eq!(text, "one two"),
        Err(error) => assert!(error.contains("leaving"), "{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_takeover_that_may_not_be_shared_is_an_error_for_who_has_begun() {
    let (store, taps) = (MemoryStore::new(), Taps::default());
    let lines = [Line::new(&store), Line::new(&store)];
    let here = Node::new(lines[0].clone(), &taps.inner(), config());
    let private = inner(&Default::default(), |_| async {
        let mut response = answer("mine");
        response.headers_mut().insert("cache-control", "no-store".parse().unwrap());
        response
    });
    let there = Node::new(lines[1].clone(), &private, config());
    let owner = here.open("/a").await;
    let remote = there.open("/a").await;
    taps.send(0, "one");
    sleep(ms(50)).await;
    lines[0].cut();
    drop(owner);
    let error = remote.rest().await.unwrap_err();
    assert!(error.contains("not shared"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_comes_while_the_last_one_leaves_is_answered() {
    for wait in 0..40 {
        let fleet = fleet(1, &config());
        let first = fleet.nodes[0].open("/a").await;
        fleet.taps.send(0, "one");
        sleep(ms(20)).await;
        fleet.lines[0].slow(ms(20));
        drop(first);
        sleep(ms(wait)).await;
        let second = fleet.nodes[0].opening("/a");
        until(|| fleet.taps.runs() == 2 || second.is_finished()).await;
        let last = fleet.taps.runs() - 1;
        if last == 1 {
            fleet.taps.send(1, "other");
        }
        fleet.taps.end(last);
        let second = second.await.unwrap();
        assert_eq!(second.role(), Some(FlightRole::Owner), "{wait}");
        assert_eq!(second.rest().await.unwrap(), ["one", "other"][last], "{wait}");
    }
}

/// A head says more of a body than its type: validators, links, checksums, how long it may
/// be kept.
#[tokio::test(start_paused = true)]
async fn the_head_of_one_run_never_stands_over_the_body_of_another() {
    for (name, goes_on) in [
        ("last-modified", false),
        ("cache-control", false),
        ("link", false),
        ("x-snapshot", false),
        ("date", true),
        ("server-timing", true),
    ] {
        let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
        let inner = inner(&counts, move |nth| async move {
            let frame = async {
                tokio::time::sleep(ms(500)).await;
                Ok::<_, io::Error>(Frame::data("the same".into()))
            };
            let body = StreamBody::new(futures_util::stream::once(frame)).boxed_unsync();
            Response::builder().header(name, format!("of run {nth}")).body(body).unwrap()
        });
        let [near, far] = [(); 2].map(|()| Node::new(store.clone(), &inner, Config::default()));
        let owner = near.call("/a");
        until(|| counts.calls() == 1).await;
        let follower = far.call("/a");
        tokio::time::sleep(ms(50)).await;
        near.layer.drain(ms(0)).await;
        let follower = follower.await;
        assert_eq!(follower.headers[name], "of run 0");
        assert_eq!(follower.body.is_ok(), goes_on, "{name}");
        assert_eq!(counts.calls(), 2);
        drop(owner);
    }
}
