//! Whether servers answer that have left: maps that disagree name one again and again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::map::MOST_NODES;
use crate::store::redis::{address::Place, gate::Gate};

/// For so long it is remembered.
const MEMORY: Duration = Duration::from_secs(30);

/// The gates of servers that have left, of those that left last.
#[derive(Debug, Default)]
pub(super) struct Departed(Mutex<HashMap<Place, (Instant, Arc<Gate>)>>);

impl Departed {
    /// These have left now.
    pub(super) fn keep(&self, left: impl Iterator<Item = (Place, Arc<Gate>)>, now: Instant) {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|_, (since, _)| now.duration_since(*since) < MEMORY);
        for (place, gate) in left {
            gate.leave();
            gates.insert(place, (now, gate));
        }
        let over = gates.len().saturating_sub(MOST_NODES);
        if over > 0 {
            let mut since: Vec<_> = gates.values().map(|(since, _)| *since).collect();
            since.sort_unstable();
            // As many that left at the same moment go with the last of them.
            gates.retain(|_, (left, _)| *left > since[over - 1]);
        }
    }

    /// The gate of one that comes back.
    pub(super) fn take(&self, place: &Place, now: Instant) -> Option<Arc<Gate>> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, gate) = gates.remove(place)?;
        (now.duration_since(since) < MEMORY).then(|| {
            gate.come_back();
            gate
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(n: u16) -> (Place, Arc<Gate>) {
        let gate = Gate::new(Duration::from_secs(1), format!("h:{n}"), Arc::default());
        (place(n), Arc::new(gate))
    }

    fn place(n: u16) -> Place {
        ("h".to_owned(), n)
    }

    #[test]
    fn it_is_remembered_for_a_while() {
        let (departed, now) = (Departed::default(), Instant::now());
        departed.keep([gate(1), gate(2)].into_iter(), now);
        assert!(departed.take(&place(3), now).is_none());
        assert!(departed.take(&place(1), now + MEMORY - Duration::from_millis(1)).is_some());
        assert!(departed.take(&place(1), now).is_none(), "it has come back");
        assert!(departed.take(&place(2), now + MEMORY).is_none());
    }

    #[test]
    fn not_more_are_remembered_than_a_cluster_has() {
        let (departed, start) = (Departed::default(), Instant::now());
        for n in 0..8 {
            let quarter = MOST_NODES as u16 / 4;
            let left = (n * quarter + 1..=(n + 1) * quarter).map(gate);
            departed.keep(left, start + Duration::from_secs(n.into()));
        }
        let now = start + Duration::from_secs(8);
        let kept = (1..=2 * MOST_NODES as u16).filter(|n| departed.take(&place(*n), now).is_some());
        let kept: Vec<_> = kept.collect();
        assert_eq!(kept, (MOST_NODES as u16 + 1..=2 * MOST_NODES as u16).collect::<Vec<_>>());
        departed.keep((1..=3 * MOST_NODES as u16).map(gate), now);
        assert!(departed.0.lock().expect("no panic").len() <= MOST_NODES);
    }
}
