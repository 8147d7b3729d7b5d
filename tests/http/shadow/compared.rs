//! What agrees and what differs.

use futures_util::future::join_all;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{ACCEPT_LANGUAGE, CONTENT_LANGUAGE},
};
use tower::{Layer, ServiceExt};
use tower_singleflight::{Bypass, HttpKey, Share};
use tracing::subscriber::set_default;

use super::{SHADOW, counts, shadows};
use crate::{
    log::Log,
    script::{Script, Step, data},
    support::{Full, Runs, ask, crowd, get, inner, layer, ms, sure, text, with},
};

fn logged() -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    (log, set_default(subscriber))
}

#[tokio::test(start_paused = true)]
async fn everybody_runs_and_those_who_would_have_followed_agree() {
    let runs = Runs::default();
    let [a, b] = shadows(&HttpKey::new());
    let services = [&a, &b].map(|layer| layer.layer(sure(&runs, ms(100), |_, _| text("same"))));
    let start = tokio::time::Instant::now();
    let answers = crowd(&[&services[0], &services[1]], 5, get("/")).await;
    assert_eq!(start.elapsed(), ms(100), "nothing waits");
    assert_eq!((runs.total(), runs.highest()), (10, 10));
    for answer in answers {
        assert_eq!((answer.role, answer.text()), (SHADOW, "same"));
        assert_eq!(answer.headers["cache-status"], "tower-singleflight; fwd=bypass");
    }
    assert_eq!(counts(&[&a, &b]).await, [9, 0, 0, 0], "one is the owner");
    assert_eq!((a.stats().bypassed(Bypass::Shadow), a.stats().bypass), (5, 5));
    assert_eq!((a.stats().owner, a.stats().follower_local, a.stats().failed), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_is_alone_is_compared_with_nobody() {
    let runs = Runs::default();
    let [a] = shadows(&HttpKey::new());
    let service = a.layer(sure(&runs, ms(100), |run, _| text(format!("run {run}"))));
    let paths = ["/1", "/2", "/1"];
    for path in paths {
        ask(&service, get(path)).await;
    }
    join_all(paths.iter().take(2).map(|path| ask(&service, get(path)))).await;
    assert_eq!(counts(&[&a]).await, [0; 4]);
    assert_eq!(runs.total(), 5);
}

/// The answer of a run, and the parts in which it is another than that of run 0.
type Case = (&'static str, fn(usize) -> Response<Script>);

fn made(run: usize, change: fn(&mut Response<Script>, HeaderValue)) -> Response<Script> {
    let mut response = Script::new([data("hello"), data(" world"), Step::Trailers]).response(None);
    response.headers_mut().insert("x-same", HeaderValue::from_static("hunter2"));
    change(&mut response, HeaderValue::from(run));
    response
}

fn cases() -> [Case; 8] {
    [
        ("status", |run| {
            made(run, |response, run| {
                let status = if run == "0" { StatusCode::OK } else { StatusCode::CREATED };
                *response.status_mut() = status;
            })
        }),
        ("headers (etag)", |run| {
            made(run, |response, run| drop(response.headers_mut().insert("etag", run)))
        }),
        ("headers (link)", |run| {
            made(run, |response, run| {
                let headers = response.headers_mut();
                headers.append("link", HeaderValue::from_static("a"));
                if run != "0" {
                    headers.append("link", HeaderValue::from_static("b"));
                }
            })
        }),
        ("headers (x-a, x-b)", |run| {
            made(run, |response, run| {
                let name = if run == "0" { "x-b" } else { "x-a" };
                response.headers_mut().insert(name, HeaderValue::from_static("1"));
            })
        }),
        ("body", |run| {
            let end = if run == 0 { " world" } else { " World" };
            Script::new([data("hello"), data(end)]).response(None)
        }),
        ("trailers (x-sum)", |run| {
            let end = (run == 0).then_some(Step::Trailers);
            Script::new([data("hello")].into_iter().chain(end)).response(None)
        }),
        ("status, headers (x-run), body, trailers (x-sum)", |run| {
            if run == 0 {
                return made(run, |_, _| {});
            }
            let mut response = Script::new([]).response(None);
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response.headers_mut().insert("x-same", HeaderValue::from_static("hunter2"));
            response.headers_mut().insert("x-run", HeaderValue::from(run));
            response
        }),
        ("sharing", |run| {
            made(run, |response, run| {
                if run != "0" {
                    response.extensions_mut().insert(Share::Never);
                }
            })
        }),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_difference_is_found_in_each_part_and_named_without_a_value() {
    for (parts, answer) in cases() {
        for nodes in [1, 2] {
            let (log, _guard) = logged();
            let runs = Runs::default();
            let layers = shadows::<2>(&HttpKey::new());
            let services: Vec<_> = (0..2)
                .map(|at| layers[at % nodes].layer(sure(&runs, ms(100), move |run, _| answer(run))))
                .collect();
            crowd(&[&services[0], &services[1]], 1, get("/hunter2")).await;
            let all = counts(&[&layers[0], &layers[1]]).await;
            assert_eq!(all, [0, 1, 0, 0], "{parts} over {nodes}");
            let text = log.text();
            let line = text.lines().find(|line| line.contains("another answer")).unwrap();
            assert!(line.contains(" WARN ") && line.contains(" key="), "{line}");
            assert!(line.trim_end().ends_with(&format!("parts={parts}")), "{line}: {parts}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_of_one_request_or_of_its_moment_is_no_difference() {
    let runs = Runs::default();
    let layers = shadows::<2>(&HttpKey::new())
        .map(|layer| layer.drop_header(HeaderName::from_static("x-served-by")));
    let inner = sure(&runs, ms(100), |run, _| {
        let mut response = text("same");
        for name in ["date", "age", "expires", "x-request-id", "x-served-by", "x-ratelimit-left"] {
            response.headers_mut().insert(name, HeaderValue::from(run));
        }
        // Nor is the order of names, or how a body is cut.
        let (first, last) = if run == 0 { ("x-a", "x-b") } else { ("x-b", "x-a") };
        for name in [first, last] {
            response.headers_mut().insert(name, HeaderValue::from_static("1"));
        }
        response
    });
    let services = layers.each_ref().map(|layer| layer.layer(inner.clone()));
    crowd(&[&services[0], &services[1]], 2, get("/")).await;
    assert_eq!(counts(&[&layers[0], &layers[1]]).await, [3, 0, 0, 0]);
}

/// Answers in the language that is asked for.
fn greet(headers: &HeaderMap, says_so: bool) -> Response<Full> {
    let language = headers.get(ACCEPT_LANGUAGE).cloned().unwrap();
    let mut response = text(if language == "de" { "Hallo" } else { "Hello" });
    response.headers_mut().insert(CONTENT_LANGUAGE, language);
    if says_so {
        response.headers_mut().insert("vary", HeaderValue::from_static("accept-language"));
    }
    response
}

#[tokio::test(start_paused = true)]
async fn a_header_that_the_key_lacks_is_found() {
    let (log, _guard) = logged();
    for (key, says_so, expected) in [
        (HttpKey::new(), false, [2, 0, 0, 0]),
        (HttpKey::new().ignore(ACCEPT_LANGUAGE), false, [1, 2, 0, 0]),
        // Others of this language would share; the others know that they must not.
        (HttpKey::new().ignore(ACCEPT_LANGUAGE), true, [1, 0, 2, 0]),
    ] {
        let [a, b] = shadows(&key);
        let inner =
            sure(&Runs::default(), ms(100), move |_, request| greet(request.headers(), says_so));
        let services = [&a, &b].map(|layer| layer.layer(inner.clone()));
        let asked = [(0, "de"), (0, "en"), (1, "de"), (1, "en")];
        let answers = join_all(asked.map(|(node, language)| {
            ask(&services[node], with(get("/"), "accept-language", language))
        }));
        for (answer, (_, language)) in answers.await.iter().zip(asked) {
            assert_eq!(answer.text() == "Hallo", language == "de", "everybody gets its own");
        }
        assert_eq!(counts(&[&a, &b]).await, expected);
    }
    assert_eq!(log.text().matches("parts=headers (content-language), body").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_shared_is_no_difference() {
    type Answer = fn(usize) -> Response<Full>;
    let cases: [(&str, Answer); 4] = [
        ("cookie", |run| {
            let mut response = text("hello");
            response.headers_mut().insert("set-cookie", HeaderValue::from(run));
            response
        }),
        ("no-store", |run| {
            let mut response = text(format!("run {run}"));
            response.headers_mut().insert("cache-control", HeaderValue::from_static("no-store"));
            response
        }),
        ("its own word", |run| {
            let mut response = text(format!("run {run}"));
            response.extensions_mut().insert(Share::Never);
            response
        }),
        ("the first only", |run| {
            let mut response = text(format!("run {run}"));
            if run == 0 {
                response.extensions_mut().insert(Share::Never);
            }
            response
        }),
    ];
    for (name, answer) in cases {
        let [a, b] = shadows(&HttpKey::new());
        let runs = Runs::default();
        let services =
            [&a, &b].map(|layer| layer.layer(sure(&runs, ms(100), move |run, _| answer(run))));
        crowd(&[&services[0], &services[1]], 2, get("/")).await;
        // Those who know of the mark on the key wait for nobody.
        crowd(&[&services[0]], 1, get("/")).await;
        let [agreed, differed, unshareable, uncompared] = counts(&[&a, &b]).await;
        assert_eq!((agreed, differed, uncompared), (0, 0, 0), "{name}");
        assert!(unshareable >= 4, "{name}: {unshareable}");
    }
}

#[tokio::test(start_paused = true)]
async fn errors_and_panics_are_their_callers_and_compared_with_nothing() {
    let [a] = shadows(&HttpKey::new());
    let runs = Runs::default();
    let failing = a.layer(inner(&runs, ms(100), |run, _| {
        if run < 2 { Err(format!("error {run}")) } else { Ok(text("same")) }
    }));
    let callers = (0..4).map(|_| failing.clone().oneshot(get("/error")));
    let answers = join_all(callers).await;
    let errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    assert_eq!(errors, ["error 0", "error 1"]);
    // Two runs failed for the two that are whole, as they would have.
    assert_eq!(counts(&[&a]).await, [0, 0, 0, 4]);

    let panics = a.layer(sure(&Runs::default(), ms(100), |run, _| match run {
        0 => panic!("inner's own words"),
        _ => text("same"),
    }));
    let mut callers: Vec<_> = (0..3).map(|_| tokio::spawn(ask(&panics, get("/panic")))).collect();
    let panic = callers.remove(0).await.unwrap_err().into_panic();
    assert_eq!(*panic.downcast::<&str>().unwrap(), "inner's own words");
    join_all(callers).await;
    assert_eq!(counts(&[&a]).await, [1, 0, 0, 5], "one more owns, and one follows");
}

#[tokio::test(start_paused = true)]
async fn of_one_key_a_bounded_number_is_compared() {
    let config = super::config().max_followers_per_key(3).build().unwrap();
    let [a] = shadows(&HttpKey::new()).map(|layer: super::Layer| layer.config(config.clone()));
    let service = a.layer(sure(&Runs::default(), ms(100), |_, _| text("same")));
    let answers = crowd(&[&service], 10, get("/")).await;
    assert!(answers.iter().all(|answer| answer.role == SHADOW && answer.text() == "same"));
    assert_eq!(counts(&[&a]).await, [3, 0, 0, 6]);
}

#[tokio::test(start_paused = true)]
async fn it_is_off_by_default() {
    let (runs, layer) = (Runs::default(), layer());
    let service = layer.layer(sure(&runs, ms(100), |_, _| text("same")));
    crowd(&[&service], 3, get("/")).await;
    assert_eq!((runs.total(), layer.stats().shadow_agreed), (1, 0));
}
