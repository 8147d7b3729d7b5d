//! What a body says of itself is true at each step.

use std::convert::Infallible;

use futures_util::future::join_all;
use http::{Method, Response};
use http_body::Body;
use proptest::{
    collection::vec,
    prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest},
};
use tokio_test::{assert_ready, task};
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{Config, Delivery, ResponseBody};

use crate::{
    script::{Hint, Script, Step, bytes_in},
    seen::{check, read_steps},
    support::{Req, get, layer, nodes},
};

/// Where a body comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The caller's own run, and one of the same process, and one of another.
    Shared,
    /// Over the limit: inner's own body with what was read of it before.
    Large,
    /// Inner's own body.
    Passed,
}

async fn bodies(
    way: Way,
    script: impl Fn() -> Script + Clone + Send + Sync + 'static,
) -> Vec<ResponseBody<Script>> {
    let config =
        Config::builder().max_share_bytes(40).delivery(Delivery::Buffered).build().unwrap();
    let inner = service_fn(move |_: Req| {
        let script = script.clone();
        async move {
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(Response::new(script()))
        }
    });
    let mut request = get("/");
    if way == Way::Passed {
        *request.method_mut() = Method::POST;
    }
    let [here, there] = nodes().map(|node| match way {
        Way::Large => node.config(config.clone()).layer(inner.clone()),
        _ => node.layer(inner.clone()),
    });
    let callers = [&here, &here, &there].map(|node| node.clone().oneshot(request.clone()));
    let responses = join_all(callers).await.into_iter().map(Result::unwrap);
    // Failures of the layer's own are looked at elsewhere.
    responses.filter(|r| r.status() == 200).map(Response::into_body).collect()
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => vec(any::<u8>(), 0..50).prop_map(|data| Step::Data(data.into())),
        1 => Just(Step::Wait(std::time::Duration::from_millis(1))),
    ]
}

/// How a script ends.
fn last() -> impl Strategy<Value = Option<Step>> {
    prop_oneof![
        4 => Just(None),
        2 => Just(Some(Step::Trailers)),
        1 => Just(Some(Step::Error)),
        1 => Just(Some(Step::Panic)),
    ]
}

fn way() -> impl Strategy<Value = Way> {
    prop_oneof![2 => Just(Way::Shared), 1 => Just(Way::Large), 1 => Just(Way::Passed)]
}

fn hint() -> impl Strategy<Value = Hint> {
    prop_oneof![Just(Hint::Exact), Just(Hint::Lower), Just(Hint::None)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn what_a_body_says_is_true(
        steps in vec(step(), 0..6),
        last in last(),
        way in way(),
        hint in hint(),
        says_end in any::<bool>(),
    ) {
        let panics = last == Some(Step::Panic);
        // Inner's own panic goes through where the layer hands its body on.
        if !panics || way == Way::Shared {
            let clean = !matches!(last, Some(Step::Error | Step::Panic));
            let steps: Vec<_> = steps.into_iter().chain(last).collect();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(run(way, steps, hint, says_end, clean));
        }
    }
}

/// What a reader does with a shared body.
#[derive(Clone, Copy, Debug)]
enum Act {
    Look,
    Poll,
}

fn orders() -> impl Strategy<Value = Vec<(usize, Act)>> {
    vec((0_usize..3, prop_oneof![Just(Act::Look), Just(Act::Poll)]), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn n3_a_replay_is_the_same_in_whatever_order_it_is_polled(
        data in vec(vec(any::<u8>(), 1..20), 0..=5),
        trailers in any::<bool>(),
        orders in orders(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(replays(data, trailers, orders));
    }
}

async fn replays(data: Vec<Vec<u8>>, trailers: bool, orders: Vec<(usize, Act)>) {
    let count = data.len() + usize::from(trailers);
    let last = trailers.then_some(Step::Trailers);
    let steps: Vec<_> = data.iter().cloned().map(|d| Step::Data(d.into())).chain(last).collect();
    let script = move || Script::new(steps.clone()).hint(Hint::Exact);
    let bodies = bodies(Way::Shared, script).await;
    let mut bodies: Vec<_> = bodies.into_iter().map(|body| (0, task::spawn(body))).collect();
    // Each is read to its end at last, and once more.
    let rest = (0..3).flat_map(|reader| (0..=count + 1).map(move |_| (reader, Act::Poll)));
    for (reader, act) in orders.into_iter().chain(rest) {
        let (at, body) = &mut bodies[reader];
        let left: usize = data.iter().skip(*at).map(Vec::len).sum();
        // A server that is told a length sends no trailers after it on HTTP/1.
        let hint = body.size_hint();
        assert_eq!(hint.lower(), left as u64);
        assert!(trailers || hint.exact() == Some(left as u64));
        assert_eq!(body.is_end_stream(), *at >= count);
        if matches!(act, Act::Look) {
            continue;
        }
        let next = assert_ready!(body.enter(|cx, body| body.poll_frame(cx)));
        match (next.map(|frame| frame.unwrap().into_data()), data.get(*at)) {
            (Some(Ok(frame)), Some(data)) => assert_eq!(frame, data),
            (Some(Err(_)), None) => assert!(trailers && *at == data.len()),
            (None, None) => assert!(*at >= count),
            (next, _) => panic!("{next:?} at {at}"),
        }
        *at += 1;
    }
}

async fn run(way: Way, steps: Vec<Step>, hint: Hint, says_end: bool, clean: bool) {
    let what = format!("{way:?} {hint:?} {says_end} {steps:?}");
    let expected: Vec<u8> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Data(data) => Some(data.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(expected.len() as u64, bytes_in(steps.clone()));
    let trailers = steps.contains(&Step::Trailers);
    let waits = steps.iter().any(|step| matches!(step, Step::Wait(_)));
    let script = move || Script::new(steps.clone()).hint(hint).says_end(says_end);
    let bodies = bodies(way, script).await;
    assert!(!bodies.is_empty() && (!clean || bodies.len() == 3), "{what}");
    for body in bodies {
        let replayed = format!("{body:?}") == "ResponseBody(replay)";
        let (seen, last) = read_steps(body).await;
        assert_eq!(last.clean, clean, "{what}");
        assert!(check(&seen, &last, &what) == expected, "{what}: other bytes");
        assert_eq!(seen.iter().any(|step| step.data.is_none()), trailers, "{what}");
        if replayed && clean && !waits {
            // Servers that do not ask again must know the end, and the length, of what is
            // there at once; a length that inner does not tell would cost trailers.
            assert!(last.ended, "{what}");
            let first = seen.first().map_or(&last.hint, |step| &step.hint);
            assert_eq!(first.lower(), expected.len() as u64, "{what}");
            assert!(trailers || first.exact().is_some(), "{what}");
            assert!(!trailers || hint == Hint::Exact || first.exact().is_none(), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_failure_has_its_length() {
    let config = Config::builder().hard_timeout(std::time::Duration::from_secs(1)).build().unwrap();
    let inner = service_fn(|_: Req| std::future::pending::<Result<Response<Script>, Infallible>>());
    let response = layer().config(config).layer(inner).oneshot(get("/")).await.unwrap();
    assert_eq!(response.status(), 504);
    let (seen, last) = read_steps(response.into_body()).await;
    let bytes = check(&seen, &last, "text");
    assert_eq!(seen[0].hint.exact(), Some(bytes.len() as u64));
    assert!(last.ended && last.clean && !bytes.is_empty());
}
