//! Anything on a push channel: who waits gets the answer of the flight all the same, and
//! the run goes on.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config as Cases, TestRunner},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{FlightPhase, HttpKey, RedisStore, SingleFlightLayer};

use crate::support::{eventually, redis_server::RedisServer};

type Body = StreamBody<std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Item> + Send>>>;
type Item = Result<Frame<Bytes>, Infallible>;

/// Payloads that say something of this flight, or of another, or nothing.
fn payloads(head: &str) -> Vec<Vec<u8>> {
    let head = head.as_bytes().to_vec();
    let count = any::<[u8; 20]>().prop_map(|digits| digits.map(|digit| b'0' + digit % 2).to_vec());
    let kind = "[12][BESPNWRX][drfplatx]".prop_map(String::into_bytes);
    let other = any::<u8>().prop_map({
        let head = head.clone();
        move |at| {
            let mut head = head.clone();
            let at = usize::from(at) % head.len();
            head[at] = if head[at] == b'7' { b'8' } else { b'7' };
            head
        }
    });
    let rest = vec(any::<u8>(), 0..60);
    let piece = (prop_oneof![Just(b"1P".to_vec()), Just(b"1B".to_vec())], Just(head), rest.clone())
        .prop_map(|(kind, head, rest)| match &kind[..] {
            b"1P" => [b"1Pr", &head[..], &[b'0'; 19], b"1", &rest].concat(),
            _ => [b"1Bd", &head[..], &rest].concat(),
        });
    let any_of_all = prop_oneof![
        vec(any::<u8>(), 0..200),
        (kind, other, count, rest).prop_map(|(a, b, c, d)| [a, b, c, d].concat()),
        piece,
    ];
    let mut runner = TestRunner::new(Cases { failure_persistence: None, ..Cases::default() });
    (0..300).map(|_| any_of_all.new_tree(&mut runner).unwrap().current()).collect()
}

#[tokio::test]
async fn k8_any_bytes_on_the_push_channel_harm_no_flight() {
    let server = RedisServer::start();
    let runs = Arc::new(AtomicUsize::new(0));
    let sender = Arc::new(Mutex::new(None));
    let layers = [1, 2].map(|_| {
        let store = RedisStore::builder(server.url()).connect_lazy().unwrap();
        SingleFlightLayer::new(HttpKey::new()).store(store).namespace("n")
    });
    let services = [0, 1].map(|at| {
        let (runs, sender) = (Arc::clone(&runs), Arc::clone(&sender));
        layers[at].layer(service_fn(move |_: Request<Full<Bytes>>| {
            runs.fetch_add(1, SeqCst);
            let (frames, body) = mpsc::channel::<Item>(8);
            *sender.lock().unwrap() = Some(frames);
            let body: Body = StreamBody::new(Box::pin(ReceiverStream::new(body)));
            async { Ok::<_, Infallible>(Response::new(body)) }
        }))
    });
    let call = |at: usize| {
        let request = Request::get("http://a.test/a").body(Full::<Bytes>::default()).unwrap();
        tokio::spawn(services[at].clone().oneshot(request))
    };
    let send = async |text: &'static str| {
        let sender: mpsc::Sender<Item> = sender.lock().unwrap().clone().unwrap();
        sender.send(Ok(Frame::data(Bytes::from(text)))).await.unwrap();
    };
    let owner = call(0);
    eventually("it runs", async || runs.load(SeqCst) == 1).await;
    let follower = call(1);
    eventually("it is followed", async || {
        layers[1].flights().iter().any(|flight| flight.phase == FlightPhase::Following)
    })
    .await;
    let key = layers[1].flights()[0].key;
    let lines =
        server.lines(&["HMGET", &format!("ai:flight:meta:{{{key}}}"), "flight", "ownerToken"]);
    let head = format!("{}{:0>20}", lines[0], lines[1]);
    let channel = format!("ai:flight:push:0:{{{key}}}");
    let mut redis = bb8_redis::redis::Client::open(server.url())
        .unwrap()
        .get_multiplexed_async_connection()
        .await
        .unwrap();
    // Each end that there is, of the flight that is followed.
    let ends = ["Ed", "Ef", "Et", "Ep", "El", "Ea", "Es", "Ra"].map(|end| format!("1{end}{head}"));
    let sealed = ["Sd", "Sf"].map(|end| format!("1{end}{head}{:0>20}a seal", 1));
    let mut publish = async || {
        let ends = ends.iter().chain(&sealed).map(|end| end.clone().into_bytes());
        for payload in payloads(&head).into_iter().chain(ends) {
            let mut command = bb8_redis::redis::cmd("PUBLISH");
            command.arg(&channel).arg(&payload[..]);
            let _: i64 = command.query_async(&mut redis).await.unwrap();
        }
    };
    publish().await;
    send("one ").await;
    let mut follower = follower.await.unwrap().unwrap().into_body();
    let first = follower.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "one ");
    publish().await;
    send("two ").await;
    send("three").await;
    *sender.lock().unwrap() = None;
    let rest = follower.collect().await.unwrap().to_bytes();
    assert_eq!(rest, "two three");
    let owned = owner.await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(owned, "one two three");
    assert_eq!(runs.load(SeqCst), 1);
    let [one, other] = [layers[0].stats(), layers[1].stats()];
    assert_eq!((one.owner, one.leases_lost, other.follower_remote), (1, 0, 1));
    assert!(other.bad_records > 0, "{other:?}");
}
