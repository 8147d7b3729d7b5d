//! Requests whose bodies are read for their keys (rows K4, K5, K10, M8).

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tokio_test::{assert_pending, assert_ready, task};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_singleflight::{
    Bypass, FlightRole, HttpKey, MemoryStore, SingleFlightLayer,
    key::{BodyKey, Json, ReadBody},
};

use crate::{
    posts::{Boxed, ask, boxed, bypass, post},
    script::{Script, Step, data},
    support::{Answer, Full, Runs, ms, text},
};

type Key = HttpKey<BodyKey<fn(ReadBody<Boxed>) -> Boxed, Json>>;

const JSON: &str = r#"{"model":"m","messages":[{"role":"user","content":"q"}]}"#;
const SAME: &str = r#" {"messages": [{"content": "\u0071", "role": "user"}], "model": "m"}"#;

fn json() -> Key {
    HttpKey::new().json_body(boxed)
}

fn full(body: impl Into<Bytes>) -> Full {
    Full::new(body.into())
}

/// Answers after 500 ms with the body of the request.
fn echo(
    runs: &Runs,
) -> impl Service<Request<Boxed>, Response = Response<Full>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ use<> {
    let runs = runs.clone();
    service_fn(move |request: Request<Boxed>| {
        let run = runs.begin();
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            tokio::time::sleep(ms(500)).await;
            run.finish();
            Ok(text(body))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn k4_bodies_that_say_the_same_share_over_processes() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let node = || SingleFlightLayer::new(json()).store(store.clone()).layer(echo(&runs));
    let [here, there] = [node(), node()];
    let answers = join_all([
        ask(&here, post(full(JSON))),
        ask(&here, post(full(SAME))),
        ask(&there, post(full(SAME))),
        ask(&there, post(full(JSON.replace("q", "Q")))),
    ])
    .await;
    assert_eq!(runs.total(), 2);
    let role = |n: usize| answers[n].role.unwrap();
    assert_eq!((role(0), role(1)), (FlightRole::Owner, FlightRole::FollowerLocal));
    assert_eq!((role(2), role(3)), (FlightRole::FollowerRemote, FlightRole::Owner));
    assert!(answers[..3].iter().all(|answer| answer.text() == JSON));
}

#[tokio::test(start_paused = true)]
async fn k10_what_is_left_out_by_name_is_all_that_does_not_count() {
    let runs = Runs::default();
    let key = json().leave_out("/user").unwrap().leave_out("/metadata/trace").unwrap();
    let service = SingleFlightLayer::new(key).layer(echo(&runs));
    let bodies = [
        r#"{"q":1}"#,
        r#"{"q":1,"user":"a"}"#,
        r#"{"q":1,"user":"b","trace":7}"#,
        r#"{"q":1,"user":{"name":"c"}}"#,
        r#"{"q":1,"metadata":{"trace":1}}"#,
        r#"{"q":1,"metadata":{}}"#,
    ];
    let answers = join_all(bodies.map(|body| ask(&service, post(full(body))))).await;
    let seen: Vec<_> = answers.iter().map(Answer::text).collect();
    assert_eq!(runs.total(), 3);
    assert_eq!(seen, [0, 0, 2, 0, 4, 4].map(|place| bodies[place]));
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_holds_nothing() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let node = SingleFlightLayer::new(json()).store(store.clone());
    let service = node.layer(echo(&runs));
    let steps = [data(&JSON[..9]), Step::Wait(ms(60_000)), data(&JSON[9..])];
    let slow = ask(&service, post(Script::new(steps)));
    let others = async {
        tokio::time::sleep(ms(1)).await;
        assert!(node.flights().is_empty() && store.is_empty());
        assert!(ask(&service, post(full(JSON))).await.is_owner());
        // One that comes while the slow one is at its end is shared with it.
        tokio::time::sleep(ms(60_000 - 501)).await;
        ask(&service, post(full(JSON))).await
    };
    let (slow, late) = tokio::join!(slow, others);
    assert_eq!(runs.total(), 2);
    assert!(slow.is_shared() != late.is_shared() && slow.text() == JSON);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_takes_its_body_along() {
    let (sender, frames) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
    let runs = Runs::default();
    let node = SingleFlightLayer::new(json());
    let body = StreamBody::new(ReceiverStream::new(frames));
    let mut call = task::spawn(node.layer(echo(&runs)).call(post(body)));
    sender.send(Ok(Frame::data(Bytes::from_static(b"{")))).await.unwrap();
    assert_pending!(call.poll());
    sender.reserve().await.expect("the first frame was read");
    drop(call);
    sender.closed().await;
    assert!(node.flights().is_empty() && runs.total() == 0);
}

#[tokio::test(start_paused = true)]
async fn k5_what_is_held_of_a_large_body_is_bounded() {
    const MIB: usize = 1 << 20;
    const CHUNK: usize = 16 * 1024;
    let made = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&made);
    let chunks = tokio_stream::iter(0..100 * MIB / CHUNK).map(move |_| {
        counting.fetch_add(CHUNK, SeqCst);
        Ok::<_, Infallible>(Frame::data(Bytes::from(vec![7; CHUNK])))
    });
    let inner = {
        let made = Arc::clone(&made);
        service_fn(move |request: Request<Boxed>| {
            let made = Arc::clone(&made);
            async move {
                let (mut body, mut came) = (request.into_body(), 0);
                while let Some(frame) = body.frame().await {
                    came += frame.unwrap().into_data().unwrap().len();
                    // What was read before, and the frame that was too much.
                    assert!(made.load(SeqCst) <= came.max(2 * MIB + CHUNK));
                }
                Ok::<_, Infallible>(text(came.to_string()))
            }
        })
    };
    let node = SingleFlightLayer::new(HttpKey::new().raw_body(boxed).body_limit(2 * MIB));
    let answer = ask(&node.layer(inner), post(StreamBody::new(chunks))).await;
    assert_eq!(answer.text(), (100 * MIB).to_string());
    assert_eq!(answer.role, bypass(Bypass::BodyTooLarge));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_known_to_be_too_large_is_not_touched() {
    let key = HttpKey::new().json_body(|_: ReadBody<Boxed>| panic!("nothing was read"));
    let runs = Runs::default();
    let service = SingleFlightLayer::new(key.body_limit(JSON.len() - 1)).layer(echo(&runs));
    let answer = ask(&service, post(full(JSON))).await;
    assert_eq!((answer.text(), answer.role), (JSON, bypass(Bypass::BodyTooLarge)));
}

#[tokio::test(start_paused = true)]
async fn m8_bodies_of_other_kinds_are_untouched() {
    let echo = service_fn(|request: Request<Boxed>| async {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let service = SingleFlightLayer::new(json()).layer(echo);
    for (method, kind, why) in [
        (Method::POST, "text/plain", Bypass::Body),
        (Method::PUT, "application/json", Bypass::Method),
        (Method::GET, "application/json", Bypass::Body),
    ] {
        let (sender, frames) = mpsc::channel::<Result<_, Infallible>>(1);
        let mut request = post(StreamBody::new(ReceiverStream::new(frames)));
        *request.method_mut() = method;
        request.headers_mut().insert("content-type", kind.parse().unwrap());
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.extensions().get(), bypass(why).as_ref());
        let mut body = Box::pin(response.into_body());
        for word in ["one", "two"] {
            sender.send(Ok(Frame::data(Bytes::from(word)))).await.unwrap();
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), word);
        }
        drop(sender);
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn c7_a_handler_may_ask_itself_with_its_own_body() {
    type Own = tower::util::BoxCloneSyncService<Request<Boxed>, Response<Full>, Infallible>;
    let node = SingleFlightLayer::new(json());
    let depth = Arc::new(AtomicUsize::new(0));
    fn inner(node: &SingleFlightLayer<Key>, depth: &Arc<AtomicUsize>) -> Own {
        let (node, depth) = (node.clone(), Arc::clone(depth));
        Own::new(service_fn(move |_: Request<Boxed>| {
            let (node, depth) = (node.clone(), Arc::clone(&depth));
            async move {
                if depth.fetch_add(1, SeqCst) > 0 {
                    return Ok(text("inside"));
                }
                let service = node.layer(inner(&node, &depth));
                // Read first, it is still a call of this run.
                let again = ask(&service, post(Script::new([data(SAME)]))).await;
                assert_eq!(again.role, bypass(Bypass::Recursion));
                Ok(text(again.body))
            }
        }))
    }
    let answer = ask(&node.layer(inner(&node, &depth)), post(full(JSON))).await;
    assert_eq!((answer.text(), answer.is_owner()), ("inside", true));
}

#[test]
fn without_a_runtime_a_read_request_runs_alone() {
    let inner = service_fn(|request: Request<Boxed>| async {
        Ok::<_, Infallible>(text(request.into_body().collect().await.unwrap().to_bytes()))
    });
    let service = SingleFlightLayer::new(json()).layer(inner);
    let mut call = task::spawn(service.oneshot(post(full(JSON))));
    let response = assert_ready!(call.poll()).unwrap();
    assert_eq!(response.extensions().get(), bypass(Bypass::NoRuntime).as_ref());
    let mut body = task::spawn(response.into_body().collect());
    assert_eq!(assert_ready!(body.poll()).unwrap().to_bytes(), JSON);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panics_reaches_its_own_caller_alone() {
    let runs = Runs::default();
    let node = SingleFlightLayer::new(json());
    let service = node.layer(echo(&runs));
    let steps = [data("{"), Step::Wait(ms(1)), Step::Panic];
    let bad = tokio::spawn({
        let service = service.clone();
        async move { ask(&service, post(Script::new(steps))).await }
    });
    let good = ask(&service, post(full(JSON))).await;
    assert!(bad.await.unwrap_err().is_panic());
    assert!(good.is_owner() && runs.total() == 1 && node.flights().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_in_the_air_for_a_body_can_be_forgotten() {
    let runs = Runs::default();
    let node = SingleFlightLayer::new(json());
    let service = node.layer(echo(&runs));
    let later = async {
        tokio::time::sleep(ms(10)).await;
        // Without its body a request has no key.
        node.forget(&post(full(JSON))).await.unwrap();
        let joined = ask(&service, post(full(JSON)));
        let forgotten = async {
            tokio::time::sleep(ms(10)).await;
            node.forget_with_body(post(full(SAME))).await.unwrap();
            ask(&service, post(full(JSON))).await
        };
        tokio::join!(joined, forgotten)
    };
    let (first, (joined, forgotten)) = tokio::join!(ask(&service, post(full(JSON))), later);
    assert!(first.is_owner() && joined.is_shared() && forgotten.is_owner());
    assert_eq!(runs.total(), 2);
}
