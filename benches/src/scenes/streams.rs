//! A stream's frames, from the owner's handler to a reader in another process.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::{Ready, ready};
use http::{Request, Response};
use http_body_util::{
    BodyExt,
    channel::{Channel, Sender},
};
use tower::{Service, ServiceExt};
use tower_singleflight::Config;

use super::{
    Effort, fresh,
    hand_off::{Way, publish},
};
use crate::{
    fleet::Node,
    row::{Bound, Goal},
    sample::{median, nanos},
    work::{self, Body},
};

/// Answers with what is sent to it.
#[derive(Clone)]
pub struct Streaming(Arc<Mutex<Option<Channel<Bytes, Infallible>>>>);

impl Streaming {
    pub fn new() -> (Self, Sender<Bytes, Infallible>) {
        let (sender, body) = Channel::new(16);
        (Self(Arc::new(Mutex::new(Some(body)))), sender)
    }
}

impl Service<Request<Body>> for Streaming {
    type Response = Response<Channel<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let body = self.0.lock().expect("a lock").take();
        ready(Ok(Response::new(body.expect("one run"))))
    }
}

/// Each frame is a group of its own.
pub(super) async fn groups(effort: Effort, way: Way, url: &str) {
    const FRAME: usize = 1024;
    let frames = effort.pick(50, 200);
    let one = Node::watched(url, Config::default()).await;
    let other = Node::watched(url, Config::default()).await;
    let (inner, mut sender) = Streaming::new();
    let path = fresh();
    let owning = one.around(inner.clone()).oneshot(work::get(&path));
    let owning = tokio::spawn(async {
        let mut body = owning.await.expect("an answer").into_body();
        while body.frame().await.is_some() {}
    });
    one.seen.until(|seen| seen.owned(), 1).await;
    let following = tokio::spawn(other.around(inner).oneshot(work::get(&path)));
    other.seen.until(|seen| seen.followed(), 1).await;
    let frame = Bytes::from(vec![b'a'; FRAME]);
    sender.send_data(frame.clone()).await.expect("a reader");
    let mut body = following.await.expect("a task").expect("an answer").into_body();
    let mut times = Vec::new();
    for nth in 0..frames {
        let since = Instant::now();
        if nth > 0 {
            sender.send_data(frame.clone()).await.expect("a reader");
        }
        let mut left = FRAME;
        while left > 0 {
            let frame = body.frame().await.expect("a frame").expect("no error");
            left -= frame.into_data().expect("data").len();
        }
        // The first ones find out that somebody waits elsewhere.
        if nth >= 10 {
            times.push(nanos(since.elapsed()));
        }
        // More often than each 10 ms, frames go in groups.
        way.pause(Duration::from_millis(15)).await;
    }
    drop(sender);
    while body.frame().await.is_some() {}
    owning.await.expect("an answer");
    let (ours, raw) = (median(times), publish(url, FRAME, frames, way).await);
    Goal {
        group: way.group(),
        what: "stream, groups of one frame of 1 KiB",
        of: "x raw publish",
        most: Bound::AtMost(1.5),
        measured: ours / raw,
        detail: format!("{:.0} us to {:.0} us", ours / 1e3, raw / 1e3),
    }
    .print();
}
