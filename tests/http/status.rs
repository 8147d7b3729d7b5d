//! What responses say of themselves in `Cache-Status` (RFC 9211), read as others read it.

use futures_util::future::join_all;
use http::HeaderMap;
use sfv::{BareItem, List, ListEntry, Parser};
use tower::{Layer, ServiceExt};
use tower_singleflight::{Config, FlightRole};

use crate::support::{
    Inner, Runs, ask, crowd, get, inner, layer, ms, nodes, read, sure, text, with,
};

/// The caches that a response went through, the nearest to the origin first, each with
/// what it says.
fn status(headers: &HeaderMap) -> Vec<(String, Vec<String>)> {
    let lines: Vec<_> =
        headers.get_all("cache-status").iter().map(|line| line.to_str().unwrap()).collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let list: List = Parser::new(&lines.join(", ")).parse().expect("a list of RFC 9651");
    let of = |item: &BareItem| match item {
        BareItem::Token(token) => token.as_str().to_owned(),
        BareItem::String(text) => text.as_str().to_owned(),
        BareItem::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let entries = list.iter().map(|entry| match entry {
        ListEntry::Item(item) => {
            let parameters = item.params.iter().map(|(name, value)| match value {
                BareItem::Boolean(true) => name.as_str().to_owned(),
                value => format!("{}={}", name.as_str(), of(value)),
            });
            (of(&item.bare_item), parameters.collect())
        }
        ListEntry::InnerList(_) => panic!("a cache is no list"),
    });
    entries.collect()
}

fn ours(says: &[&str]) -> (String, Vec<String>) {
    ("tower-singleflight".into(), says.iter().map(|&said| said.to_owned()).collect())
}

/// An inner behind another cache.
fn behind(runs: &Runs, before: &'static [&'static str]) -> Inner {
    sure(runs, ms(100), move |_, _| {
        let mut response = text("hello");
        for line in before {
            response.headers_mut().append("cache-status", line.parse().unwrap());
        }
        response
    })
}

#[tokio::test(start_paused = true)]
async fn every_role_is_appended_to_what_was_said_before() {
    let before = [
        (&[][..], vec![]),
        (
            &["Origin; hit; ttl=10", "\"an edge\"; fwd=stale"][..],
            vec![
                ("Origin".to_owned(), vec!["hit".to_owned(), "ttl=10".into()]),
                ("an edge".to_owned(), vec!["fwd=stale".to_owned()]),
            ],
        ),
    ];
    for (lines, expected) in before {
        let runs = Runs::default();
        let config = Config::builder().reuse(ms(5000)).build().unwrap();
        let [here, there] =
            nodes().map(|node| node.config(config.clone()).layer(behind(&runs, lines)));
        let mut answers = crowd(&[&here, &there], 2, get("/")).await;
        answers.push(ask(&there, get("/")).await);
        answers.push(ask(&there, with(get("/"), "range", "bytes=0-1")).await);
        let mut roles: Vec<_> = answers.iter().map(|a| a.role.unwrap().name()).collect();
        roles.sort_unstable();
        roles.dedup();
        assert_eq!(roles, ["bypass", "follower_local", "follower_remote", "owner", "reused"]);
        for answer in answers {
            let ours = match answer.role.unwrap() {
                FlightRole::Owner => ours(&["fwd=miss"]),
                FlightRole::Reused { .. } => ours(&["hit"]),
                FlightRole::Bypass(_) => ours(&["fwd=bypass"]),
                _ => ours(&["fwd=miss", "collapsed"]),
            };
            let said = status(&answer.headers);
            assert_eq!(said.last(), Some(&ours));
            assert_eq!(said[..said.len() - 1], expected);
        }
    }
}

fn failing(runs: &Runs) -> Inner<crate::support::Full, &'static str> {
    inner(runs, ms(100), |_, _| Err("no luck"))
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_of() {
    let runs = Runs::default();
    let service = layer().layer(failing(&runs));
    let results = join_all((0..5).map(|_| service.clone().oneshot(get("/")))).await;
    let failures: Vec<_> = results.into_iter().flatten().collect();
    assert_eq!(failures.len(), 3);
    for response in failures {
        assert_eq!(status(response.headers()), [ours(&["detail=owner_failed"])]);
    }
}

#[tokio::test(start_paused = true)]
async fn it_can_be_switched_off() {
    let runs = Runs::default();
    let node = layer().cache_status(false);
    let service = node.layer(behind(&runs, &["origin; hit"]));
    let mut answers = crowd(&[&service], 3, get("/")).await;
    answers.push(ask(&service, with(get("/"), "range", "bytes=0-1")).await);
    for answer in answers {
        assert_eq!(status(&answer.headers), [("origin".to_owned(), vec!["hit".to_owned()])]);
        assert!(answer.role.is_some());
    }
    let service = node.layer(failing(&runs));
    let results = join_all((0..5).map(|_| service.clone().oneshot(get("/other")))).await;
    for response in results.into_iter().flatten() {
        let answer = read(response).await.unwrap();
        assert!(answer.failure.is_some() && !answer.headers.contains_key("cache-status"));
    }
}
