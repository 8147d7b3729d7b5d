//! A service of values that counts its runs, and nodes of a simulated fleet.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tower::{Service, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_singleflight::{KeyFn, MemoryStore, SingleFlightLayer, ValueCodec, key_fn};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What is asked; not `Clone`.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) city: String,
    /// No part of the key.
    pub(crate) caller: usize,
}

pub(crate) fn ask(city: &str, caller: usize) -> Question {
    Question { city: city.into(), caller }
}

/// What is answered; not `Clone`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) run: usize,
    pub(crate) text: String,
    /// The caller that has inner's own value, and not one that was read back.
    #[serde(skip)]
    pub(crate) own: Option<usize>,
}

pub(crate) type ByCity = KeyFn<fn(&Question) -> Option<String>>;
pub(crate) type Layer<T> = SingleFlightLayer<ByCity, ValueCodec<T>>;
pub(crate) type Inner<T, E> = BoxCloneSyncService<Question, T, E>;

fn city(question: &Question) -> Option<String> {
    (!question.city.is_empty()).then(|| question.city.to_lowercase())
}

/// A layer with all defaults.
pub(crate) fn layer<T>() -> Layer<T> {
    SingleFlightLayer::values(key_fn(city))
}

/// Layers that meet on one store, as processes of a fleet do.
pub(crate) fn nodes<T, const N: usize>() -> [Layer<T>; N] {
    let store = MemoryStore::new();
    std::array::from_fn(|_| layer().store(store.clone()).namespace("tests"))
}

/// Counts runs of an inner.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<AtomicUsize>);

impl Runs {
    pub(crate) fn total(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// An inner that takes this long; `answer` gets the number of the run.
pub(crate) fn inner<T, E, F>(runs: &Runs, takes: Duration, answer: F) -> Inner<T, E>
where
    F: Fn(usize, Question) -> Result<T, E> + Clone + Send + Sync + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    let runs = runs.clone();
    BoxCloneSyncService::new(service_fn(move |question| {
        let (run, answer) = (runs.0.fetch_add(1, SeqCst), answer.clone());
        async move {
            tokio::time::sleep(takes).await;
            answer(run, question)
        }
    }))
}

pub(crate) fn report<E>(run: usize, question: &Question) -> Result<Report, E> {
    let text = format!("{} in run {run}", question.city);
    Ok(Report { run, text, own: Some(question.caller) })
}

/// Reports, and never fails.
pub(crate) fn reports<E: Send + 'static>(runs: &Runs, takes: Duration) -> Inner<Report, E> {
    inner(runs, takes, |run, question| report(run, &question))
}

/// `each` callers of each service with the same question, all at once; numbered from
/// zero over all of them.
pub(crate) fn crowd<S>(
    services: &[&S],
    each: usize,
    city: &str,
) -> impl Future<Output = Vec<Result<S::Response, S::Error>>> + use<S>
where
    S: Service<Question> + Clone,
{
    let callers = services.iter().flat_map(|service| (0..each).map(move |_| (*service).clone()));
    join_all(callers.enumerate().map(|(caller, service)| service.oneshot(ask(city, caller))))
}
