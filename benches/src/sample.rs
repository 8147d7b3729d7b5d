//! Numbers of many tries.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

/// Of values in order, the one that this share of them does not exceed.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().checked_sub(1).expect("some values");
    sorted[(last as f64 * share).round() as usize]
}

/// How long all threads of this process have worked.
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("nanoseconds"))
}

pub fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}
