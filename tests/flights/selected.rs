//! Answers that depend on headers outside the key, and owners that are lost (row L7).

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, header::USER_AGENT};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower::util::BoxCloneSyncService;
use tower_singleflight::{Bypass, Config, FlightPhase, FlightRole, MemoryStore};

use crate::rig::*;

fn agent(agent: &'static str) -> Request<Body> {
    let request = Request::get("http://a.test/a").header(USER_AGENT, agent);
    request.body(Body::default()).unwrap()
}

/// Says at once that its answer is for one agent, and what it is much later.
fn late(counts: &Arc<Counts>) -> InnerService {
    let counts = Arc::clone(counts);
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
        let run = counts.run();
        counts.calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let text = Bytes::copy_from_slice(request.headers()[USER_AGENT].as_bytes());
        let length = text.len();
        let body = stream::once(async move {
            tokio::time::sleep(ms(10_000)).await;
            run.finish();
            Ok(Frame::data(text))
        });
        let response = Response::builder().header("vary", "user-agent");
        let response = response.header("content-length", length);
        let response = response.body(StreamBody::new(body).boxed_unsync()).unwrap();
        async move { Ok::<_, Infallible>(response) }
    }))
}

/// Whoever comes to a process that has lost its run is held to what the next owner gives,
/// and not to what the lost run would have given.
#[tokio::test(start_paused = true)]
async fn l7_who_follows_the_next_owner_fits_that_one() {
    let (counts, store) = (Arc::<Counts>::default(), MemoryStore::new());
    let line = Line::new(&store);
    let inner = late(&counts);
    let a = Node::new(line.clone(), &inner, Config::default());
    let b = Node::new(store, &inner, Config::default());
    let lost = a.send(agent("one"));
    until(|| counts.calls() == 1).await;
    let follower = a.send(agent("one"));
    let next = b.send(agent("two"));
    until(|| b.layer.flights().iter().any(|flight| flight.phase == FlightPhase::Following)).await;
    line.lose_beats();
    until(|| counts.calls() == 2).await;
    assert_eq!(b.layer.flights()[0].phase, FlightPhase::Owning);
    until(|| a.layer.flights()[0].phase == FlightPhase::Following).await;
    line.find_beats();

    let late = a.send(agent("two"));
    let (next, late) = (next.await, late.await);
    assert_eq!((next.text(), late.text()), ("two", "two"));
    assert_eq!(late.role, Some(FlightRole::FollowerRemote));
    // The others have their own run, or had it and lost it.
    let follower = follower.await;
    assert_eq!(
        (follower.text(), follower.role),
        ("one", Some(FlightRole::Bypass(Bypass::Unshared)))
    );
    assert_eq!(lost.await.status, 503);
    assert_eq!(counts.calls(), 3);
}
