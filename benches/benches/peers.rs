//! The peers in one process: a call that nobody shares, and a thousand callers of one
//! key.

use std::{sync::Arc, time::Duration};

use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use futures_util::future::join_all;
use tokio::{
    runtime::{Builder, Runtime},
    sync::Semaphore,
};
use tower_singleflight::key_fn;
use tower_singleflight_benches::{
    peers::{self, Peer, Visit},
    work::{Inner, get, path},
};

struct Lone<'a>(BenchmarkGroup<'a, WallTime>, Runtime);

impl Visit for Lone<'_> {
    fn visit<P: Peer>(&mut self, peer: P) {
        self.0.bench_function(P::NAME, |b| b.to_async(&self.1).iter(|| peer.call(get("/a"))));
    }
}

struct Crowd<'a>(BenchmarkGroup<'a, WallTime>, Runtime, Arc<Semaphore>);

impl Visit for Crowd<'_> {
    fn visit<P: Peer>(&mut self, peer: P) {
        if P::NAME == "bare service" {
            return;
        }
        self.0.bench_function(P::NAME, |b| {
            b.to_async(&self.1).iter(|| {
                let calls: Vec<_> = (0..1000).map(|_| tokio::spawn(peer.call(get("/a")))).collect();
                let gate = Arc::clone(&self.2);
                async move {
                    // On one thread: all wait when the first one goes on.
                    tokio::task::yield_now().await;
                    gate.add_permits(1);
                    for answer in join_all(calls).await {
                        answer.expect("an answer");
                    }
                }
            });
        });
    }
}

fn in_process(c: &mut Criterion) {
    let runtime = || Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut lone = Lone(c.benchmark_group("lone caller"), runtime());
    peers::each(&key_fn(path), || Inner::new(64), &mut lone);
    drop(lone);
    let gate = Arc::new(Semaphore::new(0));
    let mut crowd = Crowd(c.benchmark_group("1,000 callers"), runtime(), Arc::clone(&gate));
    peers::each(&key_fn(path), || Inner::new(64).behind(&gate), &mut crowd);
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
    targets = in_process
}
criterion_main!(benches);
