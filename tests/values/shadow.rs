//! Shadow mode: every caller has the value of its own run, and values are compared.

use std::{collections::BTreeMap, convert::Infallible};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tower::Layer as _;
use tower_singleflight::{Config, FlightError};

use crate::support::{Inner, Layer, Question, Runs, crowd, inner, ms, nodes, report};

/// Two nodes, two callers each; how many runs agreed, differed, may not be shared, could
/// not be compared.
async fn compared<T, E>(service: Inner<T, E>) -> (Vec<Result<T, FlightError<E>>>, [u64; 4])
where
    T: Serialize + DeserializeOwned + Send + 'static,
    E: std::fmt::Display + Send + 'static,
{
    let config = Config::builder().shadow(true).build().unwrap();
    let layers = nodes::<T, 2>().map(|node: Layer<T>| node.config(config.clone()));
    let start = tokio::time::Instant::now();
    let services = layers.each_ref().map(|layer| layer.layer(service.clone()));
    let values = crowd(&[&services[0], &services[1]], 2, "Rome").await;
    assert_eq!(start.elapsed(), ms(100), "nothing waits");
    while layers.iter().any(|layer| !layer.flights().is_empty()) {
        tokio::time::sleep(ms(1)).await;
    }
    tokio::time::sleep(ms(1)).await;
    let mut all = [0; 4];
    for stats in layers.map(|layer| layer.stats()) {
        let counts = [
            stats.shadow_agreed,
            stats.shadow_differed,
            stats.shadow_unshareable,
            stats.shadow_uncompared,
        ];
        all = std::array::from_fn(|at| all[at] + counts[at]);
    }
    (values, all)
}

#[tokio::test(start_paused = true)]
async fn values_are_inners_own_and_compared() {
    let runs = Runs::default();
    let answer = |run, question: Question| report::<Infallible>(run, &question);
    let (reports, counts) = compared(inner(&runs, ms(100), answer)).await;
    for (caller, report) in reports.into_iter().enumerate() {
        assert_eq!(report.unwrap().own, Some(caller));
    }
    assert_eq!((runs.total(), counts), (4, [0, 3, 0, 0]), "they name their runs");

    let map = |_, _: Question| {
        Ok::<_, Infallible>(BTreeMap::from([("pages", 7)].map(|(name, n)| (name.to_owned(), n))))
    };
    let (maps, counts) = compared(inner(&Runs::default(), ms(100), map)).await;
    assert!(maps.iter().all(Result::is_ok));
    assert_eq!(counts, [3, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_and_what_fails() {
    #[derive(Debug, Serialize, Deserialize)]
    struct LeavesOut {
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<u8>,
    }
    let (values, counts) = compared(inner(&Runs::default(), ms(100), |_, _: Question| {
        Ok::<_, Infallible>(LeavesOut { note: None })
    }))
    .await;
    assert!(values.iter().all(|value| value.as_ref().unwrap().note.is_none()));
    assert_eq!(counts, [0, 0, 4, 0]);

    let (errors, counts) = compared(inner(&Runs::default(), ms(100), |run, _: Question| {
        Err::<u8, _>(format!("error {run}"))
    }))
    .await;
    for (run, error) in errors.into_iter().enumerate() {
        assert!(matches!(error, Err(FlightError::Inner(why)) if why == format!("error {run}")));
    }
    assert_eq!(counts, [0, 0, 0, 4]);
}
