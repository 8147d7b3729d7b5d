//! The least that one could write: a map of cells, and whoever fills one takes it out.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::Request;
use tokio::sync::OnceCell;
use tower_singleflight::{Key, KeyExtractor};

use super::{Answer, Peer, key_of, run};
use crate::work::{self, Body, Inner};

#[derive(Clone)]
pub struct Floor<K> {
    inner: Inner,
    key: K,
    cells: Arc<Mutex<HashMap<Key, Arc<OnceCell<Answer>>>>>,
}

impl<K> Floor<K> {
    pub fn new(inner: Inner, key: K) -> Self {
        Self { inner, key, cells: Arc::default() }
    }
}

impl<K: KeyExtractor<Request<Body>>> Peer for Floor<K> {
    const NAME: &'static str = "30-line floor";

    fn call(&self, request: Request<Body>) -> impl Future<Output = Bytes> + Send + 'static {
        let Self { inner, key, cells } = self.clone();
        async move {
            let key = key_of(&key, &request);
            let cell = Arc::clone(cells.lock().expect("a lock").entry(key.clone()).or_default());
            let answer = cell.get_or_init(|| async {
                let answer = run(inner, request).await;
                cells.lock().expect("a lock").remove(&key);
                answer
            });
            work::read(answer.await.clone()).await
        }
    }
}
