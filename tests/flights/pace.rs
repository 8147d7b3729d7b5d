//! Bodies that come as fast as they are taken.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::sleep;
use tower_singleflight::{Config, MemoryStore};

use crate::{rig::*, tap::Open};

const FRAMES: usize = 20_000;

/// A node whose inner gives its frames without ever being waited for, of which 256 are
/// shared at most; and how many it has given.
fn node(store: &MemoryStore) -> (Node, Arc<AtomicUsize>) {
    let given = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&given);
    let inner = inner(&Arc::default(), move |_| {
        let given = Arc::clone(&counted);
        let frames = stream::iter((0..FRAMES).map(move |n| {
            given.fetch_add(1, SeqCst);
            Ok(Frame::data(Bytes::from(format!("{n:01024}"))))
        }));
        async { Response::new(StreamBody::new(frames).boxed_unsync()) }
    });
    let config = Config::builder().lease(LEASE).max_share_bytes(256 * 1024).build().unwrap();
    (Node::new(Line::new(store), &inner, config), given)
}

async fn all(mut reader: Open) -> Result<usize, String> {
    for n in 0..FRAMES {
        match reader.next().await?.as_str() {
            "" => return Ok(n),
            text => assert_eq!(text, format!("{n:01024}")),
        }
    }
    Ok(FRAMES)
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_always_ready_is_dropped_with_its_last_reader() {
    let (node, given) = node(&MemoryStore::new());
    let mut alone = node.open("/a").await;
    for _ in 0..100 {
        alone.next().await.unwrap();
    }
    drop(alone);
    sleep(ms(10)).await;
    let taken = given.load(SeqCst);
    assert!(taken < 1000, "{taken}");
    // The same while its lease stands.
    let mut two = [node.open("/b").await, node.open("/b").await];
    for reader in &mut two {
        reader.next().await.unwrap();
    }
    drop(two);
    sleep(ms(10)).await;
    assert!(given.load(SeqCst) < taken + 1000, "{}", given.load(SeqCst));
    assert_eq!(node.in_air(), 0);
}

/// No store holds it as one value, and none is given more than a part of it at once.
#[tokio::test(start_paused = true)]
async fn j3_a_large_answer_that_is_there_at_once_goes_in_pieces() {
    let store = MemoryStore::new();
    let line = Line::new(&store);
    let config = || Config::builder().lease(LEASE).build().unwrap();
    let inner = inner(&Arc::default(), |_| async {
        sleep(ms(100)).await;
        answer("0123456789abcdef".repeat(64 * 1024))
    });
    let [here, there] =
        [line.clone(), Line::new(&store)].map(|line| Node::new(line, &inner, config()));
    let owner = here.call("/a");
    sleep(ms(50)).await;
    let follower = there.call("/a");
    let (owner, follower) = (owner.await, follower.await);
    assert!(owner.body == follower.body && follower.body.unwrap().len() == 1 << 20);
    assert_eq!(line.appends.load(SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn readers_of_a_body_that_is_always_ready_set_its_pace() {
    let (node, given) = node(&MemoryStore::new());
    for readers in 1..4 {
        let opening: Vec<_> = (0..readers).map(|_| node.opening(&format!("/{readers}"))).collect();
        let mut reading = Vec::new();
        for opening in opening {
            reading.push(opening.await.unwrap());
        }
        for read in futures_util::future::join_all(reading.into_iter().map(all)).await {
            assert_eq!(read, Ok(FRAMES), "of {readers} readers");
        }
        assert_eq!(given.swap(0, SeqCst), FRAMES, "one run for {readers} readers");
    }
}
