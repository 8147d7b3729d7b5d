//! One run, many callers: small answers, large bodies, streams.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use http_body_util::BodyExt;
use tokio::{
    runtime::Builder,
    sync::{Notify, Semaphore},
};
use tower::{Layer, ServiceExt};
use tower_singleflight::{HttpKey, SingleFlightLayer};
use tower_singleflight_benches::{
    fleet::call,
    scenes::Streaming,
    work::{Inner, get},
};

fn callers(c: &mut Criterion) {
    // On one thread all callers are there before the first run begins.
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut group = c.benchmark_group("fan_out");
    for (callers, bytes, name) in [
        (1_000, 64, "1,000 callers, 64 bytes"),
        (10_000, 64, "10,000 callers, 64 bytes"),
        (1_000, 64 << 10, "1,000 callers, 64 KiB"),
        (1_000, 1 << 20, "1,000 callers, 1 MiB"),
    ] {
        let gate = Arc::new(Semaphore::new(0));
        let inner = Inner::new(bytes).behind(&gate);
        let service = SingleFlightLayer::new(HttpKey::new()).layer(inner);
        group.throughput(Throughput::Elements(callers));
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.to_async(&runtime).iter(|| {
                let calls: Vec<_> =
                    (0..callers).map(|_| tokio::spawn(call(&service, "/a"))).collect();
                let gate = Arc::clone(&gate);
                async move {
                    gate.add_permits(1);
                    for answer in join_all(calls).await {
                        assert_eq!(answer.expect("an answer").len(), bytes);
                    }
                }
            });
        });
    }
    group.finish();
}

fn streams(c: &mut Criterion) {
    const READERS: usize = 1_000;
    const FRAMES: usize = 1_000;
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let layer = SingleFlightLayer::new(HttpKey::new());
    let mut group = c.benchmark_group("fan_out");
    group.throughput(Throughput::Elements((READERS * FRAMES) as u64));
    group.sample_size(10);
    group.bench_function("1,000 frames to 1,000 readers", |b| {
        b.to_async(&runtime).iter(|| async {
            let (inner, mut sender) = Streaming::new();
            let service = layer.layer(inner);
            let begun = Arc::new(Notify::new());
            let readers: Vec<_> = (0..READERS)
                .map(|_| {
                    let (answer, begun) = (service.clone().oneshot(get("/s")), begun.clone());
                    tokio::spawn(async move {
                        begun.notify_one();
                        let mut body = answer.await.expect("an answer").into_body();
                        let mut frames = 0;
                        while let Some(frame) = body.frame().await {
                            frame.expect("no error");
                            frames += 1;
                        }
                        frames
                    })
                })
                .collect();
            begun.notified().await;
            for _ in 0..FRAMES {
                sender.send_data(Bytes::from_static(&[b'a'; 64])).await.expect("a reader");
            }
            drop(sender);
            for reader in readers {
                assert_eq!(reader.await.expect("an answer"), FRAMES);
            }
        });
    });
    group.finish();
}

fn settings() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! {
    name = benches;
    config = settings();
    targets = callers, streams
}
criterion_main!(benches);
