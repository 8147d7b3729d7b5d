//! A layer's series, each with its handle, so that an event costs no look-up.

use std::{sync::Arc, time::Duration};

use metrics::{Counter, Gauge, Histogram, counter, describe_counter, gauge, histogram};

use super::Ending;
use crate::{counts::Event, key::Bypass, store::StoreState};

const ROLES: [&str; 5] = ["owner", "follower_local", "follower_remote", "reused", "failed"];
pub(super) struct Handles {
    events: Vec<Counter>,
    bypasses: Vec<Counter>,
    waits: [Histogram; ROLES.len()],
    runs: [Histogram; Ending::ALL.len()],
    runs_avoided: Counter,
    time_avoided: Counter,
    published: Counter,
    in_air: Gauge,
    degraded: Gauge,
}

impl Handles {
    pub(super) fn new(layer: &Arc<str>) -> Self {
        describe();
        let of = |name: &'static str| counter!(name, "layer" => Arc::clone(layer));
        let histogram = |name: &'static str, label: &'static str, value: &'static str| histogram!(name, "layer" => Arc::clone(layer), label => value);
        let event = |event: &Event| match event.role() {
            Some(role) => {
                let layer = Arc::clone(layer);
                counter!("single_flight_requests_total", "layer" => layer, "role" => role)
            }
            None => {
                let name = format!("single_flight_{}_total", event.name());
                counter!(name, "layer" => Arc::clone(layer))
            }
        };
        let bypass = |why: &Bypass| {
            let layer = Arc::clone(layer);
            counter!("single_flight_bypasses_total", "layer" => layer, "reason" => why.name())
        };
        Self {
            events: Event::ALL.iter().map(event).collect(),
            bypasses: Bypass::ALL.iter().map(bypass).collect(),
            waits: ROLES.map(|role| histogram("single_flight_wait_seconds", "role", role)),
            runs: Ending::ALL
                .map(|end| histogram("single_flight_run_seconds", "outcome", end.name())),
            runs_avoided: of("single_flight_runs_avoided_total"),
            time_avoided: of("single_flight_run_milliseconds_avoided_total"),
            published: of("single_flight_published_bytes_total"),
            in_air: gauge!("single_flight_in_flight", "layer" => Arc::clone(layer)),
            degraded: gauge!("single_flight_store_degraded", "layer" => Arc::clone(layer)),
        }
    }

    pub(super) fn count(&self, event: usize) {
        self.events.get(event).into_iter().for_each(|counter| counter.increment(1));
    }

    pub(super) fn bypassed(&self, why: Bypass) {
        self.bypasses.get(why as usize).into_iter().for_each(|counter| counter.increment(1));
    }

    pub(super) fn waited(&self, role: &str, time: Duration) {
        let series = ROLES.iter().zip(&self.waits).find(|(known, _)| **known == role);
        series.into_iter().for_each(|(_, histogram)| histogram.record(time));
    }

    pub(super) fn ran(&self, ending: Ending, time: Duration) {
        self.runs[ending as usize].record(time);
    }

    pub(super) fn avoided(&self, time: Duration) {
        self.runs_avoided.increment(1);
        self.time_avoided.increment(u64::try_from(time.as_millis()).unwrap_or(0));
    }

    pub(super) fn published(&self, bytes: u64) {
        self.published.increment(bytes);
    }

    pub(super) fn in_air(&self, more: bool) {
        if more { self.in_air.increment(1) } else { self.in_air.decrement(1) }
    }

    pub(super) fn store(&self, state: StoreState) {
        self.degraded.set(f64::from(u8::from(state == StoreState::Degraded)));
    }
}

fn describe() {
    describe_counter!("single_flight_requests_total", "Callers, by how they were answered.");
    describe_counter!("single_flight_bypasses_total", "Callers that ran alone, by the reason.");
    describe_counter!("single_flight_runs_avoided_total", "Callers answered by another's run.");
}

impl std::fmt::Debug for Handles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handles").finish_non_exhaustive()
    }
}
