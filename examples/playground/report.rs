//! What a node tells the playground of itself. Plain data, one line of JSON each.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tower_singleflight::{FlightPhase, SingleFlightLayer, store::StoreState};

/// What callers ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Given out when it is whole.
    Answer,
    /// Given out word by word, as it comes.
    Stream,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Answer, Self::Stream];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Stream => "stream",
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The first of all.
    Listening(SocketAddr),
    State(State),
    /// Inner was called.
    Began(Run),
    /// Inner's run is over: given whole, or dropped before.
    Ended {
        run: Run,
        whole: bool,
    },
}

/// All that a node knows of itself, several times a second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) store: String,
    pub(crate) flights: Vec<Flight>,
    pub(crate) runs: Vec<Run>,
    pub(crate) counts: Counts,
}

/// One of `SingleFlightLayer::flights`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Flight {
    pub(crate) digest: String,
    pub(crate) phase: String,
    pub(crate) token: Option<u64>,
    pub(crate) callers: usize,
    pub(crate) age_ms: u64,
}

/// A run of inner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// None for a run without a lease.
    pub(crate) token: Option<u64>,
    /// How many of its pieces it has given.
    pub(crate) pieces: usize,
    pub(crate) of: usize,
    pub(crate) elapsed_ms: u64,
}

/// From `SingleFlightLayer::stats`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) own: u64,
    pub(crate) shared_here: u64,
    pub(crate) shared_elsewhere: u64,
    pub(crate) alone: u64,
    pub(crate) failed: u64,
    pub(crate) takeovers: u64,
    pub(crate) leases_lost: u64,
    pub(crate) fenced: u64,
}

impl State {
    /// What the layer says, and the runs of inner below it.
    pub(crate) fn of<K: Clone, C: Clone>(layer: &SingleFlightLayer<K, C>, runs: Vec<Run>) -> Self {
        let stats = layer.stats();
        let store = match layer.store_state() {
            StoreState::Ok => "ok",
            StoreState::Memory => "memory",
            _ => "degraded",
        };
        let flights = layer.flights();
        let flights = flights.iter().map(|flight| Flight {
            digest: flight.key.to_string(),
            phase: phase(flight.phase).to_owned(),
            token: flight.token,
            callers: flight.callers,
            age_ms: flight.age.as_millis() as u64,
        });
        Self {
            store: store.to_owned(),
            flights: flights.collect(),
            runs,
            counts: Counts {
                own: stats.owner,
                shared_here: stats.follower_local,
                shared_elsewhere: stats.follower_remote,
                alone: stats.bypass,
                failed: stats.failed,
                takeovers: stats.takeovers,
                leases_lost: stats.leases_lost,
                fenced: stats.fenced,
            },
        }
    }
}

fn phase(phase: FlightPhase) -> &'static str {
    match phase {
        FlightPhase::Joining => "joining",
        FlightPhase::Owning => "owning",
        FlightPhase::Following => "following",
        FlightPhase::Local => "local",
        _ => "ending",
    }
}
