//! Whose answer may go to whom (rows L1 to L4).

use std::collections::HashSet;

use futures_util::future::join_all;
use http::{Response, header::ACCEPT_ENCODING};
use tokio::time::Instant;
use tower::{Layer, ServiceBuilder};
use tower_singleflight::{HttpKey, SingleFlightLayer};

use crate::support::{
    ALONE, Full, Inner, Req, Runs, ask, crowd, get, layer, ms, nodes, numbered, sure, text, with,
};

#[tokio::test(start_paused = true)]
async fn l1_set_cookie_is_never_shared() {
    let runs = Runs::default();
    let inner = sure(&runs, ms(500), |run, _| {
        let mut response = text("hello");
        response.headers_mut().insert("set-cookie", format!("sid={run}").parse().unwrap());
        response
    });
    let [here, there] = nodes().map(|node| node.layer(inner.clone()));
    let answers = crowd(&[&here, &there], 5, get("/")).await;
    let sids: HashSet<_> = answers.iter().map(|answer| &answer.headers["set-cookie"]).collect();
    assert_eq!(sids.len(), 10);
    assert_eq!(runs.total(), 10);
    assert_eq!(answers.iter().filter(|answer| answer.is_owner()).count(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.role == ALONE).count(), 9);
}

#[tokio::test(start_paused = true)]
async fn l2_credentials_are_in_the_key() {
    let runs = Runs::default();
    let inner = sure(&runs, ms(500), |_, request| {
        let user = ["authorization", "cookie"].map(|name| request.headers().get(name).cloned());
        text(format!("{user:?}"))
    });
    let [here, there] = nodes().map(|node| node.layer(inner.clone()));
    let requests = || {
        [
            with(get("/"), "authorization", "Bearer A"),
            with(get("/"), "authorization", "Bearer B"),
            get("/"),
            with(get("/"), "cookie", "s=1"),
            with(get("/"), "cookie", "s=2"),
        ]
    };
    let asked = requests().into_iter().zip(requests()).flat_map(|(a, b)| {
        [
            Box::pin(ask(&here, a)) as futures_util::future::BoxFuture<'_, _>,
            Box::pin(ask(&there, b)),
        ]
    });
    let answers = join_all(asked).await;
    assert_eq!(runs.total(), 5);
    let bodies: Vec<_> = answers.iter().map(|answer| answer.text()).collect();
    let own = [
        r#"[Some("Bearer A"), None]"#,
        r#"[Some("Bearer B"), None]"#,
        "[None, None]",
        r#"[None, Some("s=1")]"#,
        r#"[None, Some("s=2")]"#,
    ];
    let expected: Vec<_> = own.iter().flat_map(|own| [*own, *own]).collect();
    assert_eq!(bodies, expected);
}

fn no_store(runs: &Runs) -> Inner {
    sure(runs, ms(500), |run, _| {
        let mut response = text(format!("run {run}"));
        response.headers_mut().insert("cache-control", "no-store".parse().unwrap());
        response
    })
}

#[tokio::test(start_paused = true)]
async fn l3_followers_of_a_private_answer_run_in_parallel() {
    let runs = Runs::default();
    let [here, there] = nodes().map(|node| node.layer(no_store(&runs)));
    let start = Instant::now();
    let answers = crowd(&[&here, &there], 10, get("/")).await;
    assert!(start.elapsed() < ms(1300), "{:?}", start.elapsed());
    assert!(start.elapsed() >= ms(1000));
    assert_eq!((runs.total(), runs.highest()), (20, 19));
    let bodies: HashSet<_> = answers.iter().map(|answer| answer.body.clone()).collect();
    assert_eq!(bodies.len(), 20);

    // Within the mark nobody waits any more, here or elsewhere.
    tokio::time::sleep(ms(1000)).await;
    let start = Instant::now();
    crowd(&[&here, &there], 10, get("/")).await;
    assert_eq!(start.elapsed(), ms(500));
    assert_eq!((runs.total(), runs.highest()), (40, 20));
}

#[tokio::test(start_paused = true)]
async fn l3_the_mark_runs_out() {
    let runs = Runs::default();
    let answers_alone = Runs::default();
    let inner = sure(&runs, ms(500), move |run, _| {
        let mut response = text(format!("run {run}"));
        if run < 2 {
            answers_alone.begin().finish();
            response.headers_mut().insert("cache-control", "no-store".parse().unwrap());
        }
        response
    });
    let service = layer().layer(inner);
    crowd(&[&service], 2, get("/")).await;
    assert_eq!(runs.total(), 2);
    // The mark is for at least five seconds.
    tokio::time::sleep(ms(6000)).await;
    let answers = crowd(&[&service], 5, get("/")).await;
    assert_eq!(runs.total(), 3);
    assert!(answers.iter().all(|answer| answer.text() == "run 2"));
}

/// Stands for an inner with a compression layer on it.
fn compressing(runs: &Runs) -> Inner {
    sure(runs, ms(100), |_, request| {
        let gzip = request.headers().get(ACCEPT_ENCODING).is_some_and(|value| value == "gzip");
        let mut response = text(if gzip { "gzip bytes" } else { "plain" });
        response.headers_mut().insert("vary", "accept-encoding".parse().unwrap());
        if gzip {
            response.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        }
        response
    })
}

async fn gzip_first<S>(here: &S, there: &S)
where
    S: tower::Service<Req, Error = std::convert::Infallible, Future: Send> + Clone + Send + Sync,
    S: tower::Service<Req, Response = Response<tower_singleflight::ResponseBody<Full>>>,
{
    let gzip = with(get("/"), "accept-encoding", "gzip");
    let (first, second, third, fourth) = tokio::join!(
        ask(here, gzip.clone()),
        ask(here, get("/")),
        ask(there, gzip),
        ask(there, get("/"))
    );
    for answer in [first, third] {
        assert_eq!(answer.text(), "gzip bytes");
        assert_eq!(answer.headers["content-encoding"], "gzip");
    }
    for answer in [second, fourth] {
        assert_eq!(answer.text(), "plain");
        assert!(!answer.headers.contains_key("content-encoding"));
    }
}

#[tokio::test(start_paused = true)]
async fn l4_compression_inside() {
    let runs = Runs::default();
    let [here, there] = nodes().map(|node| node.layer(compressing(&runs)));
    gzip_first(&here, &there).await;
    assert_eq!(runs.total(), 2);
}

#[tokio::test(start_paused = true)]
async fn l4_compression_inside_and_the_header_ignored() {
    let runs = Runs::default();
    let store = tower_singleflight::MemoryStore::new();
    let [here, there] = [(); 2].map(|()| {
        SingleFlightLayer::new(HttpKey::new().ignore(ACCEPT_ENCODING))
            .store(store.clone())
            .namespace("tests")
            .layer(compressing(&runs))
    });
    // Only `vary` tells them apart now: those that are alike share.
    gzip_first(&here, &there).await;
    assert_eq!(runs.total(), 3);
}

#[tokio::test(start_paused = true)]
async fn l4_compression_outside() {
    let runs = Runs::default();
    let compress = tower::layer::layer_fn(|inner| {
        tower::service_fn(move |request: Req| {
            let gzip = request.headers().get(ACCEPT_ENCODING).is_some_and(|value| value == "gzip");
            let answer = ask(&inner, request);
            async move {
                let answer = answer.await;
                let prefix = if gzip { "gzip " } else { "" };
                Ok::<_, std::convert::Infallible>(text(format!("{prefix}{}", answer.text())))
            }
        })
    });
    let key = HttpKey::new().ignore(ACCEPT_ENCODING);
    let service = ServiceBuilder::new()
        .layer(compress)
        .layer(SingleFlightLayer::new(key))
        .service(numbered(&runs, ms(100)));
    let (zipped, plain) = tokio::join!(
        ask(&service, with(get("/"), "accept-encoding", "gzip")),
        ask(&service, get("/"))
    );
    assert_eq!((zipped.text(), plain.text()), ("gzip run 0", "run 0"));
    assert_eq!(runs.total(), 1);
}
