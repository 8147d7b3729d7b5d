//! Crates that share runs in one process.

use std::{convert::Infallible, future::Future, sync::Arc};

use bytes::Bytes;
use http::Request;
use tower::{Layer, ServiceExt};
use tower_resilience_coalesce::{CoalesceLayer, CoalesceService};
use tower_singleflight::{Key, KeyExtractor};

use super::{Answer, Peer, key_of, run};
use crate::work::{self, Body, Inner};

macro_rules! peer {
    ($(#[$doc:meta])* $name:ident, $crate_name:literal, $table:ty, $new:expr,
        |$shared:ident, $inner:ident, $key:ident, $request:ident| $answer:expr) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name<K> {
            inner: Inner,
            key: K,
            shared: Arc<$table>,
        }

        impl<K> $name<K> {
            pub fn new(inner: Inner, key: K) -> Self {
                Self { inner, key, shared: Arc::new($new) }
            }
        }

        impl<K: KeyExtractor<Request<Body>>> Peer for $name<K> {
            const NAME: &'static str = $crate_name;

            fn call(
                &self,
                $request: Request<Body>,
            ) -> impl Future<Output = Bytes> + Send + 'static {
                let Self { inner: $inner, key, shared: $shared } = self.clone();
                async move {
                    let $key = key_of(&key, &$request);
                    let answer: Answer = $answer;
                    work::read(answer).await
                }
            }
        }
    };
}

peer!(
    SingleflightAsync,
    "singleflight-async",
    singleflight_async::SingleFlight<Key, Answer>,
    singleflight_async::SingleFlight::new(),
    |shared, inner, key, request| shared.work(key, || run(inner, request)).await
);

peer!(
    AsyncSingleflight,
    "async_singleflight",
    async_singleflight::UnaryGroup<Key, Answer>,
    async_singleflight::UnaryGroup::new(),
    |shared, inner, key, request| shared.work(&key, run(inner, request)).await
);

peer!(
    /// A cache, from which whoever ran takes the answer out again.
    QuickCache,
    "quick_cache",
    quick_cache::sync::Cache<Key, Answer>,
    quick_cache::sync::Cache::new(100_000),
    |shared, inner, key, request| {
        match shared.get_value_or_guard_async(&key).await {
            Ok(answer) => answer,
            Err(guard) => {
                let answer = run(inner, request).await;
                guard.insert(answer.clone()).expect("its place");
                shared.remove(&key);
                answer
            }
        }
    }
);

peer!(
    /// A cache, from which whoever ran takes the answer out again.
    Moka,
    "moka",
    moka::future::Cache<Key, Answer>,
    moka::future::Cache::new(100_000),
    |shared, inner, key, request| {
        let entry = shared.entry_by_ref(&key).or_insert_with(run(inner, request)).await;
        if entry.is_fresh() {
            shared.invalidate(&key).await;
        }
        entry.into_value()
    }
);

/// A Tower layer, too.
#[derive(Clone)]
pub struct Resilience<F>(CoalesceService<Inner, Key, Request<Body>, F>);

impl<F: Fn(&Request<Body>) -> Key + Clone + Send + Sync + 'static> Resilience<F> {
    pub fn new(inner: Inner, key: F) -> Self {
        Self(CoalesceLayer::new(key).layer(inner))
    }
}

impl<F: Fn(&Request<Body>) -> Key + Clone + Send + Sync + 'static> Peer for Resilience<F> {
    const NAME: &'static str = "tower-resilience-coalesce";

    fn call(&self, request: Request<Body>) -> impl Future<Output = Bytes> + Send + 'static {
        let answer = self.0.clone().oneshot(request);
        async move {
            let answer: Result<Answer, tower_resilience_coalesce::CoalesceError<Infallible>> =
                answer.await;
            work::read(answer.expect("an answer")).await
        }
    }
}
