//! What the layer costs one caller: bypass, lone caller, follower, and owner over
//! Redis, beside the bare service and a raw GET.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use bb8_redis::redis;
use criterion::{Criterion, criterion_group, criterion_main};
use futures_util::future::join_all;
use tokio::{runtime::Runtime, sync::Notify};
use tower::{Layer, ServiceExt};
use tower_singleflight::{Config, HttpKey, RedisStore, SingleFlightLayer};

mod support;

use support::{Inner, get, redis_server::RedisServer};

fn in_process(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let mut group = c.benchmark_group("overhead");
    group.bench_function("bare", |b| {
        b.to_async(&runtime).iter(|| Inner::default().oneshot(get("/a")));
    });
    let service = SingleFlightLayer::new(HttpKey::new()).layer(Inner::default());
    group.bench_function("bypass", |b| {
        b.to_async(&runtime).iter(|| {
            let mut request = get("/a");
            *request.method_mut() = http::Method::PUT;
            service.clone().oneshot(request)
        });
    });
    group.bench_function("lone", |b| {
        b.to_async(&runtime).iter(|| service.clone().oneshot(get("/a")));
    });
    // One caller of a flight of a thousand, from its call to its answer.
    group.bench_function("follower", |b| {
        b.to_async(&runtime).iter_custom(|iterations| async move {
            let gate = Arc::new(Notify::new());
            let service = SingleFlightLayer::new(HttpKey::new()).layer(Inner::gated(&gate));
            let mut left = iterations;
            let started = Instant::now();
            while left > 0 {
                let callers = left.min(1000);
                left -= callers;
                let calls = (0..callers).map(|_| service.clone().oneshot(get("/a")));
                let calls = join_all(calls);
                let (answers, ()) = tokio::join!(calls, async { gate.notify_one() });
                assert!(answers.iter().all(Result::is_ok));
            }
            started.elapsed()
        });
    });
    group.finish();
}

fn over_redis(c: &mut Criterion) {
    let server = RedisServer::start();
    let runtime = Runtime::new().expect("a runtime");
    let (store, raw) = runtime.block_on(async {
        let store = RedisStore::connect(&server.url()).await.expect("a store");
        let client = redis::Client::open(server.url()).expect("a client");
        (store, client.get_multiplexed_async_connection().await.expect("a connection"))
    });
    let config = Config::default();
    let service =
        SingleFlightLayer::new(HttpKey::new()).store(store).config(config).layer(Inner::default());
    let mut group = c.benchmark_group("redis");
    group.bench_function("raw_get", |b| {
        b.to_async(&runtime).iter(|| {
            let mut raw = raw.clone();
            async move {
                let value: redis::RedisResult<Option<String>> =
                    redis::cmd("GET").arg("nothing").query_async(&mut raw).await;
                value.expect("an answer")
            }
        });
    });
    let nth = AtomicU64::new(0);
    group.bench_function("owner", |b| {
        b.to_async(&runtime).iter(|| {
            let path = format!("/{}", nth.fetch_add(1, Ordering::Relaxed));
            service.clone().oneshot(get(&path))
        });
    });
    group.finish();
}

criterion_group!(benches, in_process, over_redis);
criterion_main!(benches);
