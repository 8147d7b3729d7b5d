//! A body that was read for its key is what it was, and says what is true.

use std::convert::Infallible;

use http::Request;
use http_body::Body;
use proptest::{
    collection::vec,
    prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest},
};
use tower::{Layer, service_fn};
use tower_singleflight::{Bypass, FlightRole, HttpKey, SingleFlightLayer};

use crate::{
    posts::{Boxed, ask, boxed, bypass, post},
    script::{Hint, Script, Step, bytes_in, trailers},
    seen::{check, read_steps},
    support::{ms, text},
};

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => vec(any::<u8>(), 0..50).prop_map(|data| Step::Data(data.into())),
        1 => Just(Step::Wait(ms(1))),
    ]
}

/// How a body ends.
fn last() -> impl Strategy<Value = Option<Step>> {
    prop_oneof![3 => Just(None), 2 => Just(Some(Step::Trailers)), 2 => Just(Some(Step::Error))]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn inner_reads_what_was_sent(
        sent in vec(step(), 0..6),
        last in last(),
        limit in 0_usize..120,
        hint in prop_oneof![Just(Hint::Exact), Just(Hint::Lower), Just(Hint::None)],
        says_end in any::<bool>(),
    ) {
        let sent: Vec<_> = sent.into_iter().chain(last).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(inner_reads(sent, limit, hint, says_end));
    }
}

async fn inner_reads(sent: Vec<Step>, limit: usize, hint: Hint, says_end: bool) {
    let what = format!("{limit} {hint:?} {says_end} {sent:?}");
    let inner = {
        let (sent, what) = (sent.clone(), what.clone());
        service_fn(move |request: Request<Boxed>| {
            let (sent, what) = (sent.clone(), what.clone());
            async move {
                let exact = request.body().size_hint().exact();
                let (seen, last) = read_steps(request.into_body()).await;
                let bytes: Vec<u8> = check(&seen, &last, &what);
                let expected = sent.iter().filter_map(|step| match step {
                    Step::Data(data) => Some(&data[..]),
                    _ => None,
                });
                assert!(bytes == expected.collect::<Vec<_>>().concat(), "{what}: other bytes");
                assert_eq!(last.clean, !sent.contains(&Step::Error), "{what}");
                let trailers = seen.iter().any(|step| step.data.is_none());
                assert_eq!(trailers, sent.contains(&Step::Trailers), "{what}");
                Ok::<_, Infallible>(text(format!("{exact:?}")))
            }
        })
    };
    let service =
        SingleFlightLayer::new(HttpKey::new().raw_body(boxed).body_limit(limit)).layer(inner);
    let script = Script::new(sent.clone()).hint(hint).says_end(says_end);
    let answer = ask(&service, post(script)).await;
    let length = bytes_in(sent.clone());
    let trailing: usize = match sent.contains(&Step::Trailers) {
        true => trailers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum(),
        false => 0,
    };
    if length + trailing as u64 > limit as u64 {
        // Where it is not known at once, the body may break off first.
        let failed = sent.contains(&Step::Error) && length <= limit as u64;
        assert!(!failed && answer.role == bypass(Bypass::BodyTooLarge), "{what}: {answer:?}");
    } else if sent.contains(&Step::Error) {
        assert_eq!(answer.role, bypass(Bypass::BodyFailed), "{what}");
    } else {
        assert_eq!(answer.role, Some(FlightRole::Owner), "{what}");
        // Of a body that was at its end there was nothing to read.
        if !(sent.is_empty() && says_end) {
            assert_eq!(answer.text(), format!("{:?}", Some(length)), "{what}");
        }
    }
}
