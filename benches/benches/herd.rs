//! An owner is killed while so many processes wait for it: the time to the next
//! run, which holds a lease of 3 s.

use std::time::Duration;

use criterion::{Criterion, criterion_group};
use tower_singleflight_benches::scenes::herd;

fn deaths(c: &mut Criterion) {
    let mut group = c.benchmark_group("herd");
    for size in [2, 50] {
        group.bench_function(format!("{size} processes wait"), |b| {
            b.iter_custom(|deaths| {
                (0..deaths).map(|_| Duration::from_secs_f64(herd::death(size).seconds)).sum()
            });
        });
    }
    group.finish();
}

fn settings() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(1))
        .measurement_time(Duration::from_millis(1))
}

criterion_group! {
    name = benches;
    config = settings();
    targets = deaths
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // The process that is killed is this program, too.
    if let ["owner", url] = args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return herd::owner(url);
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
