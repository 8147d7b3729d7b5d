//! Values that others cannot read: they are shared with nobody, and taken for nothing
//! else (row K8).

use std::{convert::Infallible, fmt};

use http::{Request, Response};
use http_body_util::Full;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tower::{Layer, ServiceExt, service_fn};
use tower_singleflight::{MemoryStore, SingleFlightLayer, key_fn};

use crate::support::{Inner, Runs, crowd, inner, layer, ms, nodes, reports};

fn made<T: Send + 'static>(runs: &Runs, value: fn(usize) -> T) -> Inner<T, Infallible> {
    inner(runs, ms(100), move |run, _| Ok(value(run)))
}

/// Six callers in two processes: each has a value of its own run, and none waits for
/// more than one run before its own.
async fn each_has_its_own<T>(value: fn(usize) -> T, run: fn(T) -> usize)
where
    T: Serialize + DeserializeOwned + fmt::Debug + Send + 'static,
{
    let (runs, start) = (Runs::default(), tokio::time::Instant::now());
    let [here, there] = nodes().map(|node| node.layer(made(&runs, value)));
    let values = crowd(&[&here, &there], 3, "Rome").await;
    let mut seen: Vec<_> = values.into_iter().map(|value| run(value.unwrap())).collect();
    seen.sort_unstable();
    assert_eq!((seen, runs.total()), ((0..6).collect(), 6));
    assert!(start.elapsed() <= ms(210), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_value_that_cannot_be_written() {
    /// A sequence of unknown length has no form in postcard.
    #[derive(Debug, Deserialize)]
    struct Lengthless(Vec<usize>);
    impl Serialize for Lengthless {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeSeq;
            let mut seq = serializer.serialize_seq(None)?;
            seq.serialize_element(&self.0[0])?;
            seq.end()
        }
    }
    each_has_its_own(|run| Lengthless(vec![run]), |value| value.0[0]).await;

    #[derive(Debug, Serialize, Deserialize)]
    struct LeavesOut {
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<u8>,
        run: usize,
    }
    each_has_its_own(|run| LeavesOut { note: None, run }, |value| value.run).await;
}

/// Nobody waits for a key of such values a second time, as long as it is marked.
#[tokio::test(start_paused = true)]
async fn l3_a_probe_that_gives_such_a_value_leaves_the_mark() {
    #[derive(Debug, Serialize, Deserialize)]
    struct LeavesOut {
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<u8>,
        run: usize,
    }
    let runs = Runs::default();
    let value = |run| LeavesOut { note: None, run };
    let [here, there] = nodes().map(|node| node.layer(made(&runs, value)));
    crowd(&[&here, &there], 3, "Rome").await;
    for round in 0..3 {
        // The mark is there, and then the word of the last round's probe.
        tokio::time::sleep(ms(10)).await;
        let start = tokio::time::Instant::now();
        crowd(&[&here, &there], 3, "Rome").await;
        assert_eq!(start.elapsed(), ms(100), "round {round}");
    }
    assert_eq!(runs.total(), 24);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_does_not_read_back() {
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Run(usize),
    }
    each_has_its_own(Untagged::Run, |Untagged::Run(run)| run).await;

    each_has_its_own(
        |run| serde_json::json!({ "run": run }),
        |value| value["run"].as_u64().unwrap().try_into().unwrap(),
    )
    .await;

    /// Writes one thing and reads another.
    #[derive(Debug, Serialize, Deserialize)]
    struct OneWay {
        #[serde(serialize_with = "half", deserialize_with = "usize::deserialize")]
        run: usize,
    }
    fn half<S: serde::Serializer>(run: &usize, serializer: S) -> Result<S::Ok, S::Error> {
        (run + 1000).serialize(serializer)
    }
    each_has_its_own(|run| OneWay { run }, |value| value.run).await;
}

/// Two releases of a service on one store, in the middle of a deploy.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Trip {
    from: u32,
    to: u32,
}

mod next {
    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    pub(super) struct Trip {
        pub(super) to: u32,
        pub(super) from: u32,
    }
}

#[tokio::test(start_paused = true)]
async fn k8_no_value_is_taken_for_that_of_another_type() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let old = layer().store(store.clone()).namespace("trips");
    let new = layer().store(store).namespace("trips");
    let olds = old.layer(made(&runs, |_| Trip { from: 1, to: 2 }));
    let news = new.layer(made(&runs, |_| next::Trip { from: 1, to: 2 }));
    let (olds, news) = tokio::join!(crowd(&[&olds], 3, "Rome"), crowd(&[&news], 3, "Rome"));
    assert!(olds.into_iter().all(|trip| trip.unwrap() == Trip { from: 1, to: 2 }));
    assert!(news.into_iter().all(|trip| trip.unwrap() == next::Trip { from: 1, to: 2 }));
    // One release shared, the callers of the other ran alone.
    assert_eq!(runs.total(), 4);
    assert_eq!(old.stats().bad_records + new.stats().bad_records, 3);
    assert_eq!(old.stats().bypass + new.stats().bypass, 3);
}

/// An HTTP service and one of values under one namespace and key.
#[tokio::test(start_paused = true)]
async fn k8_values_and_http_responses_are_kept_apart() {
    for (values_first, forged) in [(true, false), (false, false), (false, true)] {
        let (runs, store) = (Runs::default(), MemoryStore::new());
        let values = layer().store(store.clone()).namespace("one");
        let http = SingleFlightLayer::new(key_fn(|_: &Request<Full<bytes::Bytes>>| Some("rome")))
            .store(store)
            .namespace("one");
        let reports = values.layer(reports::<Infallible>(&runs, ms(100)));
        let pages = http.layer(service_fn(move |_| async move {
            tokio::time::sleep(ms(100)).await;
            let mut page = Response::new(Full::<bytes::Bytes>::from("\0\x04page"));
            if forged {
                let name = "x-tower-singleflight-value";
                page.headers_mut()
                    .insert(name, http::HeaderValue::from_static("1-0123456789abcdef"));
            }
            Ok::<_, Infallible>(page)
        }));
        let later = |later| tokio::time::sleep(ms(if later { 10 } else { 0 }));
        let (reports, page) = tokio::join!(
            async {
                later(!values_first).await;
                crowd(&[&reports], 3, "Rome").await
            },
            async {
                later(values_first).await;
                let page = pages.oneshot(Request::new(Full::default())).await.unwrap();
                http_body_util::BodyExt::collect(page.into_body()).await.unwrap().to_bytes()
            },
        );
        assert_eq!(page, "\0\x04page");
        assert!(reports.iter().all(|report| report.as_ref().unwrap().text.starts_with("Rome")));
        assert_eq!(http.stats().bad_records, u64::from(values_first));
        assert_eq!(values.stats().bad_records, if values_first { 0 } else { 3 });
    }
}
