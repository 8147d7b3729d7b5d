//! Holding what came of a flight, for those who come after.

use super::Driver;
use crate::{drain::Standing, id::FlightRef, log::SharedRun};

impl Driver {
    /// This answer came of the flight.
    pub(super) fn found(&mut self, flight: FlightRef, run: &SharedRun) {
        if self.core.holdings.is_some() {
            self.found = Some(Box::new((flight, run.clone())));
        }
    }

    /// Holds the answer, if the store says that it is what a fresh caller would get. The
    /// key is free meanwhile: nobody waits for this.
    pub(super) async fn hold(&mut self) {
        let Some((flight, run)) = self.found.take().map(|found| *found) else { return };
        let Some(holdings) = &self.core.holdings else { return };
        let is_staying = self.core.drain.standing() == Standing::Open;
        if !is_staying || !holdings.takes(run.log.data_bytes()) {
            return;
        }
        self.flight.settle();
        let name = self.flight.name();
        let since = holdings.since(name);
        let session = self.session.open();
        session.deafen();
        let config = &self.core.config;
        // Where the store cannot say, each use asks it.
        if let Ok(Some(held)) = session.hold(flight, config.heartbeat).await {
            holdings.put(name, since, (flight.token, &run), held, config.reuse);
        }
    }
}
