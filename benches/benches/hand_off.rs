//! From the end of a run to a follower in another process, and the raw message beside
//! it.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tokio::runtime::Builder;
use tower_singleflight_benches::{
    fleet::Server,
    scenes::hand_off::{Fleet, Way, notify, publish},
};

fn hand_off(c: &mut Criterion) {
    let server = Server::start();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut group = c.benchmark_group("hand_off");
    for (size, name) in [(1 << 10, "1 KiB"), (16 << 10, "16 KiB"), (64 << 10, "64 KiB")] {
        // Each gives the middle of so many tries, in nanoseconds.
        let whole = |middle: f64, tries: u64| Duration::from_nanos((middle * tries as f64) as u64);
        let count = |tries: u64| u32::try_from(tries).expect("few tries");
        group.bench_function(format!("raw message, {name}"), |b| {
            b.iter_custom(|tries| {
                let url = server.url();
                let middle = runtime.block_on(async {
                    if size > 16 << 10 {
                        notify(&url, size, count(tries), Way::Short).await
                    } else {
                        publish(&url, size, count(tries), Way::Short).await
                    }
                });
                whole(middle, tries)
            });
        });
        let fleet = runtime.block_on(Fleet::new(&server.url(), size, Way::Short));
        group.bench_function(format!("follower, {name}"), |b| {
            b.iter_custom(|tries| whole(runtime.block_on(fleet.fresh(count(tries))), tries));
        });
    }
    group.finish();
}

fn settings() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
}

criterion_group! {
    name = benches;
    config = settings();
    targets = hand_off
}
criterion_main!(benches);
