//! What one would write whose run must not end with its first caller: a task for each
//! key in the air, and a channel that tells all callers.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::Request;
use tokio::sync::watch;
use tower_singleflight::{Key, KeyExtractor};

use super::{Answer, Peer, key_of, run};
use crate::work::{self, Body, Inner};

#[derive(Clone)]
pub struct Spawn<K> {
    inner: Inner,
    key: K,
    flights: Arc<Mutex<HashMap<Key, watch::Receiver<Option<Answer>>>>>,
}

impl<K> Spawn<K> {
    pub fn new(inner: Inner, key: K) -> Self {
        Self { inner, key, flights: Arc::default() }
    }
}

impl<K: KeyExtractor<Request<Body>>> Peer for Spawn<K> {
    const NAME: &'static str = "spawn per key";

    fn call(&self, request: Request<Body>) -> impl Future<Output = Bytes> + Send + 'static {
        let Self { inner, key, flights } = self.clone();
        async move {
            let key = key_of(&key, &request);
            let mut told = {
                let mut table = flights.lock().expect("a lock");
                if let Some(told) = table.get(&key) {
                    told.clone()
                } else {
                    let (tell, told) = watch::channel(None);
                    table.insert(key.clone(), told.clone());
                    let flights = Arc::clone(&flights);
                    tokio::spawn(async move {
                        let answer = run(inner, request).await;
                        flights.lock().expect("a lock").remove(&key);
                        tell.send_replace(Some(answer));
                    });
                    told
                }
            };
            let answer = told.wait_for(Option::is_some).await.expect("an answer").clone();
            work::read(answer.expect("an answer")).await
        }
    }
}
