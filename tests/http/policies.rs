//! With whom answers are shared, and for how long: what policies, identities and inner
//! itself say of it (rows L1, L3, L5, B3, C14).

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{
    HeaderName, Response, StatusCode,
    header::{AUTHORIZATION, SET_COOKIE},
};
use http_body_util::{StreamBody, combinators::UnsyncBoxBody};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{
    Config, DefaultSharePolicy, HttpKey, MemoryStore, ResponseView, Share, SharePolicy,
    SingleFlightLayer,
};

use crate::support::{
    ALONE, Full, Inner, Req, Runs, ask, crowd, get, layer, ms, nodes, numbered, sure, text, with,
};

/// Answers with these headers, and with this word on its sharing.
fn saying(runs: &Runs, fields: &[(&'static str, &'static str)], share: Option<Share>) -> Inner {
    let fields = fields.to_vec();
    sure(runs, ms(100), move |run, _| {
        let mut response = text(format!("run {run}"));
        for &(name, value) in &fields {
            response.headers_mut().append(name, value.parse().unwrap());
        }
        response.extensions_mut().extend(share.into_iter().fold(
            http::Extensions::new(),
            |mut extensions, share| {
                extensions.insert(share);
                extensions
            },
        ));
        response
    })
}

fn user(user: &'static str) -> Req {
    with(get("/"), "authorization", user)
}

#[tokio::test(start_paused = true)]
async fn private_answers_are_shared_within_one_identity() {
    let runs = Runs::default();
    let private = saying(&runs, &[("cache-control", "private")], None);
    let store = MemoryStore::new();
    let [here, there] = [(); 2].map(|()| {
        let key = HttpKey::new().identity(AUTHORIZATION);
        let node = SingleFlightLayer::new(key).store(store.clone()).namespace("tests");
        node.layer(private.clone())
    });
    let both = [&here, &there];
    let (a, b, nobody) = tokio::join!(
        crowd(&both, 3, user("Bearer A")),
        crowd(&both, 3, user("Bearer B")),
        crowd(&both, 2, get("/")),
    );
    for of_one in [&a, &b] {
        assert!(of_one.iter().all(|answer| answer.body == of_one[0].body));
        assert_eq!(of_one.iter().filter(|answer| answer.is_owner()).count(), 1);
    }
    assert_ne!(a[0].body, b[0].body);
    assert_eq!(nobody.iter().filter(|answer| answer.role == ALONE).count(), 3);
    assert_eq!(runs.total(), 1 + 1 + 4);

    // Without the name of an identity it is everyone for themselves.
    let service = layer().layer(private);
    crowd(&[&service], 3, user("Bearer A")).await;
    assert_eq!(runs.total(), 6 + 3);
}

#[tokio::test(start_paused = true)]
async fn l1_a_cookie_is_not_shared_within_one_identity_either() {
    let runs = Runs::default();
    let node = SingleFlightLayer::new(HttpKey::new().identity(AUTHORIZATION));
    let service = node.layer(saying(&runs, &[("set-cookie", "sid=1")], None));
    crowd(&[&service], 3, user("Bearer A")).await;
    assert_eq!(runs.total(), 3);
}

#[tokio::test(start_paused = true)]
async fn inner_says_never() {
    let runs = Runs::default();
    let [here, there] = nodes().map(|node| node.layer(saying(&runs, &[], Some(Share::Never))));
    let answers = crowd(&[&here, &there], 5, get("/")).await;
    assert_eq!(runs.total(), 10);
    assert_eq!(answers.iter().filter(|answer| answer.role == ALONE).count(), 9);
}

#[tokio::test(start_paused = true)]
async fn l1_inner_says_always_and_the_cookie_stays_with_its_caller() {
    let fields = [("set-cookie", "sid=1"), ("cache-control", "private")];
    for kept in [false, true] {
        let runs = Runs::default();
        let inner = saying(&runs, &fields, Some(Share::Always));
        let [here, there] = nodes().map(|node| {
            let node = if kept { node.keep_header(SET_COOKIE) } else { node };
            node.layer(inner.clone())
        });
        let answers = crowd(&[&here, &there], 3, get("/")).await;
        assert_eq!(runs.total(), 1);
        for answer in answers {
            assert_eq!(answer.headers.contains_key(SET_COOKIE), kept || answer.is_owner());
            assert_eq!(answer.headers["cache-control"], "private");
        }
    }
}

/// What does not fit other requests by its form is not shared, whatever is said.
#[tokio::test(start_paused = true)]
async fn some_answers_are_never_shared() {
    for status in [206, 304] {
        let runs = Runs::default();
        let inner = sure(&runs, ms(100), move |_, _| {
            let mut response = text("");
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response.extensions_mut().insert(Share::Always);
            response
        });
        let node = layer().share_policy(|_: ResponseView<'_>| Share::Always);
        crowd(&[&node.layer(inner)], 3, get("/")).await;
        assert_eq!(runs.total(), 3, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_inner_said_does_not_leave_the_layer() {
    for (share, request) in [
        (Share::Always, get("/")),
        (Share::Never, get("/")),
        (Share::For(ms(1)), with(get("/"), "range", "bytes=0-1")),
    ] {
        let runs = Runs::default();
        let service = layer().layer(saying(&runs, &[], Some(share)));
        let (one, other) =
            tokio::join!(service.clone().oneshot(request.clone()), service.oneshot(request));
        for response in [one.unwrap(), other.unwrap()] {
            assert!(response.extensions().get::<Share>().is_none(), "{share:?}");
        }
    }
}

/// Waiters need not wait for the body of an answer that is not theirs.
#[tokio::test(start_paused = true)]
async fn l3_a_policy_decides_at_the_head() {
    let runs = Runs::default();
    let inner = sure(&runs, ms(500), |run, _| {
        let mut response = text(format!("run {run}"));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response
    });
    let policy = |response: ResponseView<'_>| match response.status() {
        StatusCode::TOO_MANY_REQUESTS => Share::Never,
        _ => DefaultSharePolicy.share(response),
    };
    let [here, there] = nodes().map(|node| node.share_policy(policy).layer(inner.clone()));
    let start = Instant::now();
    crowd(&[&here, &there], 10, get("/")).await;
    assert_eq!((runs.total(), runs.highest()), (20, 19));
    assert!(start.elapsed() < ms(1300), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn l5_the_list_of_dropped_headers_is_edited_on_the_layer() {
    let runs = Runs::default();
    let fields = [("x-request-id", "1"), ("x-served-by", "1"), ("etag", "\"1\"")];
    let [here, there] = nodes().map(|node| {
        let node = node
            .drop_header(HeaderName::from_static("x-served-by"))
            .keep_header(HeaderName::from_static("x-request-id"));
        node.layer(saying(&runs, &fields, None))
    });
    for answer in crowd(&[&here, &there], 2, get("/")).await {
        assert_eq!(answer.headers.contains_key("x-served-by"), answer.is_owner());
        assert!(answer.headers.contains_key("x-request-id") && answer.headers.contains_key("etag"));
    }
    assert_eq!(runs.total(), 1);
}

/// How long an answer is used again, in whole seconds after its end; asked of the node
/// that ran it and of another.
async fn reused_for(inner: impl Fn(&Runs) -> Inner, reuse: u64) -> u64 {
    let mut found = None;
    for elsewhere in [false, true] {
        let runs = Runs::default();
        let config = Config::builder().reuse(ms(reuse * 1000)).build().unwrap();
        let [here, there] = nodes().map(|node| node.config(config.clone()).layer(inner(&runs)));
        let mut seconds = 0;
        loop {
            let before = runs.total();
            ask(&here, get("/")).await;
            assert_eq!(runs.total(), before + 1, "begun");
            sleep(ms(1000 * seconds + 500)).await;
            let before = runs.total();
            ask(if elsewhere { &there } else { &here }, get("/")).await;
            if runs.total() > before {
                break;
            }
            seconds += 1;
            // Past all that was kept.
            sleep(ms(1000 * reuse)).await;
        }
        assert!(found.is_none_or(|found| found == seconds), "{found:?} here, {seconds} elsewhere");
        found = Some(seconds);
    }
    found.unwrap()
}

#[tokio::test(start_paused = true)]
async fn c14_freshness_shortens_reuse_and_never_lengthens_it() {
    let cc = "cache-control";
    for (fields, share, seconds) in [
        (&[][..], None, 5),
        (&[(cc, "max-age=2")], None, 2),
        (&[(cc, "max-age=3, s-maxage=1")], None, 1),
        (&[(cc, "max-age=100")], None, 5),
        (&[(cc, "max-age=4"), ("age", "1")], None, 3),
        (&[(cc, "max-age=0")], None, 0),
        (&[(cc, "no-cache")], None, 0),
        (&[("expires", "Thu, 01 Jan 1970 00:00:00 GMT")], None, 0),
        (&[(cc, "max-age=1")], Some(Share::For(ms(3000))), 3),
        (&[(cc, "no-store")], Some(Share::For(ms(100_000))), 5),
        (&[], Some(Share::For(ms(0))), 0),
        (&[(cc, "private, max-age=2")], Some(Share::Always), 2),
    ] {
        let found = reused_for(|runs| saying(runs, fields, share), 5).await;
        assert_eq!(found, seconds, "{fields:?} {share:?}");
    }
    assert_eq!(reused_for(|runs| saying(runs, &[], Some(Share::For(ms(9000)))), 0).await, 0);
}

#[tokio::test(start_paused = true)]
async fn large_answers_are_as_fresh_as_small_ones() {
    let large = |runs: &Runs, fields: &'static str| {
        sure(runs, ms(100), move |_, _| {
            let mut response = text(vec![1; 600 * 1024]);
            response.headers_mut().insert("cache-control", fields.parse().unwrap());
            response
        })
    };
    for (fields, seconds) in [("max-age=2", 2), ("max-age=0", 0), ("max-age=50", 5)] {
        assert_eq!(reused_for(|runs| large(runs, fields), 5).await, seconds, "{fields}");
    }
}

/// What is handed out live has grown old by its end, from which its reuse is counted.
#[tokio::test(start_paused = true)]
async fn a_stream_is_used_again_for_as_long_as_it_is_fresh_at_its_end() {
    for (seconds, again) in [(2, false), (4, false), (5, true), (9, true)] {
        let runs = Runs::default();
        let begun = runs.clone();
        let inner = service_fn(move |_: Req| {
            let run = begun.begin().number;
            let frames = stream::iter(0..3).then(move |_| async move {
                sleep(ms(1000)).await;
                let text = Bytes::from(format!("run {run} "));
                Ok::<_, Infallible>(http_body::Frame::data(text))
            });
            let mut response = Response::new(UnsyncBoxBody::new(StreamBody::new(frames)));
            let fresh = format!("max-age={seconds}");
            response.headers_mut().insert("cache-control", fresh.parse().unwrap());
            async move { Ok::<_, Infallible>(response) }
        });
        let config = Config::builder().reuse(ms(5000)).build().unwrap();
        let [here, there] = nodes().map(|node| node.config(config.clone()).layer(inner.clone()));
        let both = [&here, &there];
        for answer in crowd(&both, 2, get("/")).await {
            assert_eq!(answer.text(), "run 0 run 0 run 0 ");
        }
        sleep(ms(1000)).await;
        let later = ask(&there, get("/")).await;
        assert_eq!(later.text().starts_with("run 0"), again, "{seconds}");
        assert_eq!(runs.total(), if again { 1 } else { 2 });
    }
}

#[tokio::test(start_paused = true)]
async fn b3_a_5xx_is_shared_and_never_kept() {
    for share in [None, Some(Share::Always), Some(Share::For(ms(5000)))] {
        let failing = |runs: &Runs| {
            let inner = saying(runs, &[("cache-control", "max-age=100")], share);
            let inner = inner.map_response(|mut response: Response<Full>| {
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                response
            });
            tower::util::BoxCloneSyncService::new(inner)
        };
        assert_eq!(reused_for(failing, 5).await, 0);
        let runs = Runs::default();
        let [here, there] = nodes().map(|node| node.layer(failing(&runs)));
        crowd(&[&here, &there], 3, get("/")).await;
        assert_eq!(runs.total(), 1);
    }
}

/// Who takes a tenant from where a request says nothing of it.
#[tokio::test(start_paused = true)]
async fn tenants_never_share_and_nobodys_request_runs_alone() {
    #[derive(Clone)]
    struct Tenant(&'static str);
    let runs = Runs::default();
    let key = HttpKey::new().tenant(|request| Some(request.extensions().get::<Tenant>()?.0));
    let service = SingleFlightLayer::new(key).layer(numbered(&runs, ms(100)));
    let of = |tenant: Option<&'static str>| {
        let mut request = get("/");
        if let Some(tenant) = tenant {
            request.extensions_mut().insert(Tenant(tenant));
        }
        ask(&service, request)
    };
    let (a, again, b, one, other) =
        tokio::join!(of(Some("a")), of(Some("a")), of(Some("b")), of(None), of(None));
    assert_eq!((a.text(), runs.total()), (again.text(), 4));
    assert_ne!(a.text(), b.text());
    assert_ne!(one.text(), other.text());
    assert_eq!(one.role.map(|role| role.name()), Some("bypass"));
}

/// Row K6, through the layer.
#[tokio::test(start_paused = true)]
async fn k6_a_sorted_query_shares() {
    for (key, total) in [(HttpKey::new(), 4), (HttpKey::new().sorted_query(), 3)] {
        let runs = Runs::default();
        let service = SingleFlightLayer::new(key).layer(numbered(&runs, ms(100)));
        let asked = ["/?a=1&b=2", "/?b=2&a=1", "/?x=1&x=2", "/?x=2&x=1"];
        futures_util::future::join_all(asked.map(|path| ask(&service, get(path)))).await;
        assert_eq!(runs.total(), total);
    }
}
