//! A thousand callers on one key.

use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use tokio::{runtime::Builder, sync::Notify};
use tower::{Layer, ServiceExt};
use tower_singleflight::{HttpKey, SingleFlightLayer};

mod support;

use support::{Inner, get};

const CALLERS: usize = 1000;

fn fan_out(c: &mut Criterion) {
    // On one thread all callers are there before the first run begins.
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let gate = Arc::new(Notify::new());
    let service = SingleFlightLayer::new(HttpKey::new()).layer(Inner::gated(&gate));
    let mut group = c.benchmark_group("fan_out");
    group.throughput(Throughput::Elements(CALLERS as u64));
    group.bench_function("1000_tasks_one_key", |b| {
        b.to_async(&runtime).iter(|| {
            let calls: Vec<_> =
                (0..CALLERS).map(|_| tokio::spawn(service.clone().oneshot(get("/a")))).collect();
            let gate = Arc::clone(&gate);
            async move {
                gate.notify_one();
                for answer in join_all(calls).await {
                    assert!(answer.is_ok_and(|answer| answer.is_ok()));
                }
            }
        });
    });
    group.finish();
}

criterion_group!(benches, fan_out);
criterion_main!(benches);
