//! The real drivers on the memory store, overheard: under a paused clock, with faults at
//! random, each process's dealings with the store told as events of the table.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt, util::BoxCloneSyncService};

use super::{conduct::Event, overheard::Overheard};
use crate::{Config, HttpKey, MemoryStore, SingleFlight, SingleFlightLayer};

type Body = Full<Bytes>;
type Reply = UnsyncBoxBody<Bytes, io::Error>;
type Inner = BoxCloneSyncService<Request<Body>, Response<Reply>, Infallible>;

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What all processes of a run have between them.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) rng: StdRng,
    pub(super) events: Vec<(usize, Event)>,
    /// Small names for the long ones.
    pub(super) names: HashMap<u128, u8>,
    pub(super) sessions: u32,
    /// The first token that was seen.
    pub(super) first: Option<u64>,
    /// Callers of each process.
    pub(super) callers: Vec<u8>,
    /// No more faults.
    pub(super) calm: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Table(Arc<Mutex<Room>>);

impl Table {
    pub(super) fn room(&self) -> MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Strikes so many times in a hundred.
    pub(super) fn strikes(&self, percent: u32) -> bool {
        let mut room = self.room();
        !room.calm && room.rng.random_ratio(percent, 100)
    }

    fn below(&self, most: u64) -> u64 {
        self.room().rng.random_range(0..most)
    }
}

/// A caller, for as long as it is there.
struct Present(Table, usize);

impl Present {
    fn new(table: &Table, n: usize) -> Self {
        table.room().callers[n] += 1;
        Self(table.clone(), n)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.room().callers[self.1] -= 1;
    }
}

/// Answers whole or by and by, well or not.
fn inner(table: &Table) -> Inner {
    let table = table.clone();
    BoxCloneSyncService::new(tower::service_fn(move |_: Request<Body>| {
        let table = table.clone();
        async move {
            let long = table.below(4) == 0;
            sleep(ms(table.below(if long { 8000 } else { 1500 }))).await;
            let private = table.below(12) == 0;
            let breaks = table.below(8) == 0;
            let frames = table.below(2) * table.below(8) + u64::from(breaks);
            let state = (table, frames);
            let body = futures_util::stream::unfold(state, move |(table, left)| async move {
                if left == 0 {
                    return None;
                }
                sleep(ms(table.below(900))).await;
                let item = match breaks && left == 1 {
                    true => Err(io::Error::other("by the seed")),
                    false => Ok(Frame::data(Bytes::from_static(b"piece"))),
                };
                Some((item, (table, left - 1)))
            });
            let mut response = Response::new(match frames {
                0 => {
                    Full::new(Bytes::from_static(b"whole")).map_err(|no| match no {}).boxed_unsync()
                }
                _ => StreamBody::new(body).boxed_unsync(),
            });
            if private {
                let value = http::HeaderValue::from_static("no-store");
                response.headers_mut().insert("cache-control", value);
            }
            Ok(response)
        }
    }))
}

async fn call(service: SingleFlight<Inner, HttpKey>, table: Table, n: usize, patience: Duration) {
    let _present = Present::new(&table, n);
    let request = Request::get("http://a.test/a").body(Body::default()).unwrap();
    let reading = async {
        let response = service.oneshot(request).await.unwrap();
        let _ = response.into_body().collect().await;
    };
    let _ = timeout(patience, reading).await;
}

/// Some processes, some callers, one key; what went between them and the store.
pub(super) async fn overhear(seed: u64) -> Vec<(usize, Event)> {
    const NODES: usize = 3;
    let table = Table(Arc::new(Mutex::new(Room {
        rng: StdRng::seed_from_u64(seed),
        events: Vec::new(),
        names: HashMap::new(),
        sessions: 0,
        first: None,
        callers: vec![0; NODES],
        calm: false,
    })));
    let store = MemoryStore::new();
    let config = Config::builder()
        .lease(ms(3000))
        .idle_timeout(ms(2500))
        .hard_timeout(ms(7000))
        .build()
        .unwrap();
    let inner = inner(&table);
    let layers: Vec<_> = (0..NODES)
        .map(|n| {
            let store = Overheard::new(&store, &table, n);
            let layer = SingleFlightLayer::new(HttpKey::new()).store(store).namespace("test");
            layer.config(config.clone())
        })
        .collect();
    let services: Vec<_> = layers.iter().map(|layer| layer.layer(inner.clone())).collect();
    let mut calls = Vec::new();
    for _ in 0..table.below(8) + 1 {
        let n = table.below(NODES as u64) as usize;
        let patience = if table.below(3) == 0 { ms(table.below(4000)) } else { ms(120_000) };
        calls.push(tokio::spawn(call(services[n].clone(), table.clone(), n, patience)));
        sleep(ms(table.below(3) * table.below(2000))).await;
        match table.below(20) {
            0 | 1 => store.clear(),
            2 => {
                let request = Request::get("http://a.test/a").body(Body::default()).unwrap();
                let _ = layers[n].forget(&request).await;
            }
            _ => {}
        }
    }
    for call in calls {
        call.await.unwrap();
    }
    table.room().calm = true;
    // All is said by then.
    sleep(ms(30_000)).await;
    std::mem::take(&mut table.room().events)
}
