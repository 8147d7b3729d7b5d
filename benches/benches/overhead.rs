//! What the layer costs one caller: in this process beside the bare service, and over
//! Redis beside the client alone.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use http::Method;
use tokio::runtime::Builder;
use tower_singleflight::{Config, HttpKey, KeyExtractor, key_fn};
use tower_singleflight_benches::{
    fleet::{Node, Poll, Raw, Server, Sketch, call},
    peers::{Bare, Ours, Peer},
    scenes::{
        fresh,
        hand_off::{Fleet, Way},
    },
    work::{Body, Inner, get, path},
};

fn in_process(c: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut group = c.benchmark_group("overhead");
    let mut one = |name: &str, peer: &dyn Fn() -> Box<dyn Fn() -> Call>| {
        let peer = peer();
        group.bench_function(name, |b| b.to_async(&runtime).iter(&peer));
    };
    one("request alone", &|| Box::new(|| Box::pin(async { drop(get("/a")) })));
    one("bare", &|| calls(Bare::new(Inner::new(64)), Method::GET));
    one("bypass", &|| calls(layer(HttpKey::new()), Method::PUT));
    one("lone, path as key", &|| calls(layer(key_fn(path)), Method::GET));
    one("lone, request as key", &|| calls(layer(HttpKey::new()), Method::GET));
    group.finish();
}

type Call = std::pin::Pin<Box<dyn Future<Output = ()>>>;

fn layer<K: KeyExtractor<http::Request<Body>>>(key: K) -> Ours<K> {
    Ours::new(Inner::new(64), key)
}

fn calls(peer: impl Peer, method: Method) -> Box<dyn Fn() -> Call> {
    Box::new(move || {
        let mut request = get("/a");
        *request.method_mut() = method.clone();
        let call = peer.call(request);
        Box::pin(async { drop(call.await) })
    })
}

fn over_redis(c: &mut Criterion) {
    let server = Server::start();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let minute = Duration::from_secs(60);
    let kept = Config::builder().retention(minute).reuse(minute).build().expect("settings");
    let (raw, sketch, poll, plain, one, other) = runtime.block_on(async {
        let url = server.url();
        let raw = Raw::connect(&url).await;
        raw.set("raw", &[b'a'; 1024]).await;
        (
            raw,
            Sketch::connect(&url).await,
            Poll::connect(&url).await,
            Node::connect(&url, Config::default()).await.around(Inner::new(1024)),
            Node::connect(&url, kept.clone()).await.around(Inner::new(1024)),
            Node::connect(&url, kept).await.around(Inner::new(1024)),
        )
    });
    let mut group = c.benchmark_group("redis, 1 KiB");
    group.bench_function("raw GET", |b| b.to_async(&runtime).iter(|| raw.get("raw")));
    group.bench_function("two-script sketch", |b| {
        b.to_async(&runtime).iter(|| async {
            let key = fresh();
            assert!(sketch.acquire(&key).await);
            sketch.complete(&key, &[b'a'; 1024]).await;
        });
    });
    group.bench_function("SET NX + poll, owner", |b| {
        b.to_async(&runtime).iter(|| async {
            poll.call(&fresh(), async { vec![b'a'; 1024] }).await;
        });
    });
    group.bench_function("owner", |b| b.to_async(&runtime).iter(|| call(&plain, &fresh())));
    let fleet = runtime.block_on(Fleet::new(&server.url(), 1024, Way::Short));
    group.bench_function("follower, from the end of the run", |b| {
        b.iter_custom(|calls| {
            let middle = runtime.block_on(fleet.fresh(u32::try_from(calls).expect("few calls")));
            Duration::from_nanos((middle * calls as f64) as u64)
        });
    });
    runtime.block_on(call(&one, "/kept"));
    group.bench_function("reuse hit, held here", |b| {
        b.to_async(&runtime).iter(|| call(&one, "/kept"));
    });
    // Another key each time: none is held here.
    group.bench_function("reuse hit, from Redis", |b| {
        b.iter_custom(|calls| {
            let paths: Vec<String> = (0..calls).map(|_| fresh()).collect();
            runtime.block_on(async {
                for path in &paths {
                    call(&one, path).await;
                }
                let since = std::time::Instant::now();
                for path in &paths {
                    call(&other, path).await;
                }
                since.elapsed()
            })
        });
    });
    group.finish();
}

fn settings() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
}

criterion_group! {
    name = benches;
    config = settings();
    targets = in_process, over_redis
}
criterion_main!(benches);
