//! Leaving the fleet in order.

use std::time::Duration;

use tokio::sync::watch;

use crate::{core::Core, flights::FlightPhase};

/// Whether a process takes leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It does.
    Open,
    /// It takes no more; those it has it keeps.
    Draining,
    /// It has given up those it had.
    Drained,
}

/// A process's standing, and who waits for it to change.
#[derive(Debug)]
pub(crate) struct Drain(watch::Sender<Standing>);

impl Default for Drain {
    fn default() -> Self {
        Self(watch::Sender::new(Standing::Open))
    }
}

impl Drain {
    pub(crate) fn standing(&self) -> Standing {
        *self.0.borrow()
    }

    /// Waits until leases are to be given up. Cancel-safe.
    pub(crate) async fn drained(&self) {
        let mut standing = self.0.subscribe();
        // The sender lives as long as this borrow of it.
        let _ = standing.wait_for(|standing| *standing == Standing::Drained).await;
    }

    fn set(&self, standing: Standing) {
        self.0.send_replace(standing);
    }
}

/// Takes no more leases, waits for the runs under way, gives up what is left after
/// the grace, and sees to it that the store hears of it.
pub(crate) async fn drain(core: &Core, grace: Duration) {
    core.drain.set(Standing::Draining);
    // Over or not: what is left is given up.
    let _ = tokio::time::timeout(grace, no_lease_held(core)).await;
    core.drain.set(Standing::Drained);
    let handed_over = async {
        no_lease_held(core).await;
        core.keeper.quiet().await;
    };
    // A store that is away does not hear it; the leases then end by themselves.
    let _ = tokio::time::timeout(core.config.lease(), handed_over).await;
}

async fn no_lease_held(core: &Core) {
    let held = |phase| matches!(phase, FlightPhase::Owning | FlightPhase::Ending);
    loop {
        let moved = core.flights.moved();
        if !core.flights.list().iter().any(|flight| held(flight.info().phase)) {
            return;
        }
        moved.await;
    }
}
