//! Answers that are handed out as they come, and what goes wrong meanwhile.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{Instant, advance, sleep, sleep_until};
use tower::util::BoxCloneSyncService;
use tower_singleflight::{Config, ConfigBuilder, Delivery, FlightPhase, MemoryStore};

use crate::{
    rig::*,
    tap::{Open, Taps},
};

struct Fleet<const N: usize> {
    taps: Taps,
    store: MemoryStore,
    lines: [Line; N],
    nodes: [Node; N],
}

fn config() -> ConfigBuilder {
    Config::builder().lease(LEASE)
}

fn fleet<const N: usize>(config: ConfigBuilder) -> Fleet<N> {
    let (store, taps) = (MemoryStore::new(), Taps::default());
    let config = config.build().unwrap();
    let lines: [Line; N] = std::array::from_fn(|_| Line::new(&store));
    let node = |n| Node::new(Line::clone(&lines[n]), &taps.inner(), config.clone());
    let nodes = std::array::from_fn(node);
    Fleet { taps, store, lines, nodes }
}

/// Reads until so many bytes are there.
async fn read(reader: &mut Open, bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        text += &reader.next().await.unwrap();
    }
    text
}

/// The owner's own client is gone, and the store forgets who reads elsewhere.
#[tokio::test(start_paused = true)]
async fn lost_data_ends_no_run_that_is_read_elsewhere() {
    let fleet = fleet::<2>(config());
    let owner = fleet.nodes[0].open("/a").await;
    let mut remote = fleet.nodes[1].open("/a").await;
    fleet.taps.send(0, "one");
    assert_eq!(remote.next().await.unwrap(), "one");
    drop(owner);
    sleep(BEAT * 2).await;
    fleet.store.clear();
    sleep(BEAT * 3).await;
    assert!(!fleet.taps.is_dropped(0), "somebody reads it");
    fleet.taps.send(0, " two");
    fleet.taps.end(0);
    assert_eq!(remote.rest().await.unwrap(), " two");
    assert_eq!(fleet.taps.runs(), 1);
    // And who is gone is not waited for.
    let fleet = self::fleet::<2>(config());
    let owner = fleet.nodes[0].open("/a").await;
    let remote = fleet.nodes[1].open("/a").await;
    drop(owner);
    sleep(BEAT * 2).await;
    fleet.store.clear();
    fleet.lines[1].cut();
    drop(remote);
    sleep(BEAT * 5).await;
    assert!(fleet.taps.is_dropped(0));
}

/// A push tells that a flight has failed that a caller elsewhere has begun with; the look
/// that asks whether it is so finds a newer one, or its answer.
#[tokio::test(start_paused = true)]
async fn who_hears_of_a_newer_flight_takes_nothing_of_an_older_one() {
    for is_over in [true, false] {
        let fleet = fleet::<4>(config());
        let owner = fleet.nodes[0].open("/a").await;
        let mut remote = fleet.nodes[1].open("/a").await;
        fleet.taps.send(0, "one");
        assert_eq!(remote.next().await.unwrap(), "one");
        fleet.lines[1].slow(ms(500));
        fleet.taps.fail(0, "broke off");
        assert!(owner.rest().await.is_err());
        until(|| fleet.nodes[0].in_air() == 0).await;
        let others = [fleet.nodes[2].open("/a").await, fleet.nodes[3].open("/a").await];
        fleet.taps.send(1, "one");
        if !is_over {
            sleep(ms(1200)).await;
        }
        fleet.taps.send(1, " two");
        fleet.taps.end(1);
        for other in others {
            assert_eq!(other.rest().await.unwrap(), "one two");
        }
        assert_eq!(remote.rest().await, Ok(" two".into()), "over: {is_over}");
        assert_eq!(fleet.taps.runs(), 2);
    }
}

/// But who waited for what is not shared runs alone at once: all that follow might end so.
#[tokio::test(start_paused = true)]
async fn who_waited_for_what_is_not_shared_waits_for_no_newer_flight() {
    let config = config().max_share_bytes(1000).delivery(Delivery::Buffered);
    let fleet = fleet::<3>(config);
    let _owner = fleet.nodes[0].opening("/a");
    until(|| fleet.taps.runs() == 1).await;
    let remote = fleet.nodes[1].opening("/a");
    until(|| fleet.nodes[1].in_air() == 1).await;
    sleep(ms(10)).await;
    fleet.lines[1].slow(ms(500));
    fleet.taps.send(0, &"0123456789".repeat(200));
    sleep(ms(100)).await;
    let _other = fleet.nodes[2].opening("/a");
    until(|| fleet.taps.runs() == 2).await;
    let began = Instant::now();
    until(|| fleet.taps.runs() == 3).await;
    assert!(began.elapsed() < ms(500), "{:?}", began.elapsed());
    fleet.taps.send(2, "alone");
    fleet.taps.end(2);
    assert_eq!(remote.await.unwrap().rest().await.unwrap(), "alone");
}

#[tokio::test(start_paused = true)]
async fn one_failed_read_at_the_end_breaks_no_body() {
    let fleet = fleet::<2>(config());
    let owner = fleet.nodes[0].open("/a").await;
    let mut remote = fleet.nodes[1].open("/a").await;
    fleet.taps.send(0, "one");
    assert_eq!(remote.next().await.unwrap(), "one");
    // Several pieces in one step are read, not pushed.
    let chunk = "0123456789abcdef".repeat(1024);
    for _ in 0..4 {
        fleet.taps.send(0, &chunk);
    }
    fleet.lines[1].fail_reads(2);
    fleet.taps.end(0);
    assert_eq!(remote.rest().await.map(|text| text.len()), Ok(4 * chunk.len()));
    assert_eq!(owner.rest().await.map(|text| text.len()), Ok(4 * chunk.len() + 3));
}

/// As many bytes as may be shared, but more frames: each counts as 64 bytes.
#[tokio::test(start_paused = true)]
async fn who_joins_a_stream_of_many_small_frames_gets_all_of_one() {
    let fleet = fleet::<3>(config().max_share_bytes(64 * 1024));
    let mut owner = fleet.nodes[0].open("/a").await;
    let mut remote = fleet.nodes[1].open("/a").await;
    let groups = [1; 64].into_iter().chain([100; 40]);
    for frames in groups {
        for n in 0..frames {
            fleet.taps.send(0, &format!("{n:04} "));
        }
        for reader in [&mut owner, &mut remote] {
            read(reader, frames * 5).await;
        }
        sleep(ms(20)).await;
    }
    fleet.lines[2].slow(ms(5));
    let late = fleet.nodes[2].open("/a").await;
    if fleet.taps.runs() > 1 {
        fleet.taps.end(1);
    }
    fleet.taps.end(0);
    let text = late.rest().await.expect("all of one run");
    assert!(text.is_empty() || text.len() == 5 * 4064, "{}", text.len());
}

#[tokio::test(start_paused = true)]
async fn who_comes_after_forget_gets_nothing_of_the_forgotten_answer() {
    for at in [0, 1] {
        let fleet = fleet::<2>(config());
        let owner = fleet.nodes[0].open("/a").await;
        let mut remote = fleet.nodes[1].open("/a").await;
        fleet.taps.send(0, "old");
        assert_eq!(remote.next().await.unwrap(), "old");
        fleet.lines[1].deafen();
        let request = Request::get("http://a.test/a").body(Body::default()).unwrap();
        fleet.nodes[at].layer.forget(&request).await.unwrap();
        let late = fleet.nodes[at].opening("/a");
        until(|| late.is_finished() || fleet.taps.runs() == 2).await;
        if fleet.taps.runs() == 2 {
            fleet.taps.send(1, "new");
            fleet.taps.end(1);
        }
        let late = late.await.unwrap();
        fleet.taps.end(0);
        assert_eq!(late.rest().await, Ok("new".into()), "{at}");
        assert_eq!(owner.rest().await.unwrap(), "old");
        drop(remote);
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_whose_beats_fail_goes_on_from_where_it_was() {
    let fleet = fleet::<2>(config().max_share_bytes(4096));
    let mut owner = fleet.nodes[0].open("/a").await;
    let mut remote = fleet.nodes[1].open("/a").await;
    fleet.taps.send(0, "begin");
    assert_eq!(remote.next().await.unwrap(), "begin");
    assert_eq!(owner.next().await.unwrap(), "begin");
    fleet.lines[1].lose_beats();
    let chunk = "x".repeat(1024);
    for _ in 0..50 {
        fleet.taps.send(0, &chunk);
        assert_eq!(read(&mut owner, 1024).await, chunk);
        assert_eq!(read(&mut remote, 1024).await, chunk);
        sleep(ms(200)).await;
    }
    fleet.taps.end(0);
    assert_eq!((owner.rest().await, remote.rest().await), (Ok("".into()), Ok("".into())));
    assert_eq!(fleet.taps.runs(), 1);
}

/// A body whose frames are all there, of a length that nobody knows.
fn at_once(frames: usize) -> InnerService {
    BoxCloneSyncService::new(tower::service_fn(move |_: Request<Body>| async move {
        let chunk = Bytes::from(vec![7; 1024]);
        let frames = (0..frames).map(move |_| Ok(Frame::data(chunk.clone())));
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        Ok::<_, Infallible>(Response::new(body))
    }))
}

#[tokio::test(start_paused = true)]
async fn inner_does_not_run_ahead_of_every_reader() {
    let config = config().max_share_bytes(128 * 1024).build().unwrap();
    let node = Node::new(MemoryStore::new(), &at_once(2000), config);
    let calls = [node.call("/a"), node.call("/a"), node.call("/a")];
    for call in calls {
        assert_eq!(call.await.body.map(|body| body.len()), Ok(2000 * 1024));
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_alone_is_no_lease_to_wait_for() {
    let fleet = fleet::<2>(config());
    let mut owner = fleet.nodes[0].open("/a").await;
    fleet.taps.send(0, "one");
    assert_eq!(owner.next().await.unwrap(), "one");
    fleet.lines[0].cut();
    sleep(LEASE).await;
    fleet.lines[0].heal();
    sleep(LEASE * 2).await;
    let info = &fleet.nodes[0].layer.flights()[0];
    assert_eq!((info.phase, info.token), (FlightPhase::Local, None));
    let asked = Instant::now();
    fleet.nodes[0].layer.drain(ms(1000)).await;
    assert!(asked.elapsed() <= ms(10), "{:?}", asked.elapsed());
    fleet.taps.end(0);
    assert_eq!(owner.rest().await.unwrap(), "");
}

/// The renewal is confirmed a moment after the deadline, before anybody has noticed.
#[tokio::test(start_paused = true)]
async fn a_head_that_comes_while_the_lease_hangs_in_the_air_is_handed_out() {
    let fleet = fleet::<1>(config());
    fleet.taps.hold_heads();
    let asked = Instant::now();
    let owner = fleet.nodes[0].opening("/a");
    sleep(ms(100)).await;
    fleet.lines[0].hold_beats();
    sleep_until(asked + ms(2490)).await;
    fleet.taps.let_heads_go();
    let line = fleet.lines[0].clone();
    tokio::spawn(async move { line.let_beats_go() });
    advance(ms(20)).await;
    sleep(ms(50)).await;
    assert!(owner.is_finished());
    assert_eq!(fleet.nodes[0].layer.stats().leases_lost, 0);
}

/// The owner learns that it was superseded when it says that it shares no more.
#[tokio::test(start_paused = true)]
async fn a_superseded_owner_aborts_also_where_it_was_to_share_no_more() {
    let fleet = fleet::<2>(config().max_share_bytes(4096));
    let mut owner = fleet.nodes[0].open("/a").await;
    fleet.taps.send(0, "begin");
    assert_eq!(owner.next().await.unwrap(), "begin");
    fleet.lines[0].lose_beats();
    fleet.lines[0].slow(ms(5000));
    for _ in 0..8 {
        fleet.taps.send(0, &"x".repeat(1024));
    }
    sleep(ms(3100)).await;
    let next = fleet.nodes[1].open("/a").await;
    assert_eq!(fleet.taps.runs(), 2);
    sleep(ms(3000)).await;
    assert!(fleet.taps.is_dropped(0));
    drop((owner, next));
}

/// Clients of equal speed in two processes: what the owner sends to the store is no
/// faster than they are.
#[tokio::test(start_paused = true)]
async fn clients_of_two_processes_get_a_large_answer_that_is_there_at_once() {
    let config = config().max_share_bytes(128 * 1024).build().unwrap();
    let store = MemoryStore::new();
    let [a, b] = [(); 2].map(|()| Node::new(store.clone(), &at_once(2000), config.clone()));
    let calls = [a.call("/a"), b.call("/a")];
    for call in calls {
        assert_eq!(call.await.body.map(|body| body.len()), Ok(2000 * 1024));
    }
}

/// Who comes next has a flight of its own: the forgotten one asks for no lease beside it.
#[tokio::test(start_paused = true)]
async fn a_forgotten_flight_owns_no_more() {
    let (counts, store) = (std::sync::Arc::<Counts>::default(), MemoryStore::new());
    let inner = inner(&counts, |nth| async move {
        sleep(ms(2000)).await;
        if nth == 0 { panic!("the first run fails") } else { answer("late") }
    });
    let node = Node::new(store.clone(), &inner, config().build().unwrap());
    let (own, other) = (node.call("/a"), node.call("/a"));
    until(|| counts.calls() == 1).await;
    let request = Request::get("http://a.test/a").body(Body::default()).unwrap();
    node.layer.forget(&request).await.unwrap();
    until(|| counts.calls() == 2).await;
    assert_eq!(counts.tokens.lock().unwrap()[1], None, "it runs alone");
    drop(own);
    assert_eq!(other.await.text(), "late");
}
