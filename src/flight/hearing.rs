//! Who comes to wait elsewhere, as the owner hears of it.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::line::Line;
use crate::{
    id::FlightRef,
    lease::Lease,
    store::{Pushed, Session},
};

/// A run that is over before does without: it need not know who waits, since few can.
const AFTER: Duration = Duration::from_millis(10);

/// The owner's ear. What it hears it has an answer ready for, which then goes along with
/// the end: else it is asked for, and that takes a trip more.
///
/// It is closed while somebody is known to wait: what is published for those who do would
/// come here too.
pub(super) struct Hearing {
    due: Option<Instant>,
    /// The flight that is listened for.
    flight: Option<FlightRef>,
    /// How many had come to which flight by the last word.
    joins: Option<(FlightRef, u32)>,
}

impl Hearing {
    /// Where the store is in memory there is no trip to be saved.
    pub(super) fn new(is_remote: bool) -> Self {
        Self { due: is_remote.then(|| Instant::now() + AFTER), flight: None, joins: None }
    }

    /// Keeps the lease's count of waiters up until something else happens. Never ready;
    /// cancel-safe.
    pub(super) async fn hear(&mut self, line: &mut Line, lease: &Lease) {
        let Some(due) = self.due else { return std::future::pending().await };
        if self.flight.is_none() {
            sleep_until(due).await;
        }
        let session = line.open();
        loop {
            let news = lease.news();
            if lease.waiters() > 0 {
                // Also where listening was cut short.
                self.flight = None;
                session.deafen();
                news.await;
                continue;
            }
            if self.flight != Some(lease.flight()) {
                self.listen(session, lease).await;
                continue;
            }
            let pushed = tokio::select! {
                pushed = session.pushed() => pushed,
                () = news => continue,
            };
            match pushed {
                Pushed::Watched { flight } if flight == lease.flight() => {
                    lease.set_waiters(lease.waiters().max(1));
                }
                // Asked again, with some time for whatever it was.
                Pushed::Gap => {
                    self.due = Some(Instant::now() + AFTER);
                    self.flight = None;
                    sleep_until(Instant::now() + AFTER).await;
                }
                _ => {}
            }
        }
    }

    async fn listen(&mut self, session: &mut dyn Session, lease: &Lease) {
        let flight = lease.flight();
        let heard = session.hear(flight).await;
        // What cannot be asked now is said at the next renewal.
        self.flight = Some(flight);
        let Ok(joins) = heard else { return };
        // Those who were heard of before may have left.
        let before = self.joins.replace((flight, joins)).filter(|(of, _)| *of == flight);
        if joins > before.map_or(0, |(_, joins)| joins) {
            lease.set_waiters(lease.waiters().max(1));
        }
    }
}
