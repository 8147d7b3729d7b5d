//! What a process has heard, for the table of rules.

use super::{
    conduct::{ABOVE, Conduct, Held, Mode, NOT_ITS, key},
    moves,
    wire::{Ask, Found, Lost, Name, Purpose, Said},
};
use crate::store::EndStatus;

impl Conduct {
    /// What the store says of a flight of this process, or to one of its watches.
    pub(super) fn hears(&mut self, keeper: bool, ask: Ask, said: Option<&Said>) {
        if let (true, Ask::Join { waiter, .. }) = (keeper, ask)
            && let Some(Said::Found(Found::Done { flight, .. } | Found::Follow { flight, .. })) =
                said
        {
            let mut drivers = self.drivers.values_mut();
            let waits = drivers.find(|driver| driver.waiter == Some(waiter));
            waits.into_iter().for_each(|driver| driver.found = Some(*flight));
        }
        let (Ask::Renew(flight)
        | Ask::Append { flight, .. }
        | Ask::Finish { flight, .. }
        | Ask::Abandon(flight)) = ask
        else {
            return;
        };
        let Some(held) = self.held.get_mut(&key(flight)) else { return };
        match (ask, said) {
            (Ask::Renew(_), Some(Said::Renewed(waiters))) => held.wanted |= *waiters > 0,
            (Ask::Renew(_), Some(Said::Lost(lost))) => {
                held.renewed |= keeper;
                held.missing |= *lost == Lost::Missing;
            }
            (Ask::Renew(_), Some(_)) => held.renewed |= keeper,
            (_, Some(Said::Wanted)) => held.wanted = true,
            (Ask::Append { .. }, Some(Said::Lost(_) | Said::Over)) => held.fed = true,
            (Ask::Finish { .. }, Some(Said::Accepted)) => held.finished = true,
            (Ask::Finish { .. }, Some(Said::Lost(lost))) => {
                held.finished = true;
                held.missing |= *lost == Lost::Missing;
            }
            // Not asked again, whatever became of it.
            (Ask::Abandon(_), _) => held.abandoned = true,
            _ => {}
        }
    }

    pub(super) fn driver_hears(
        &mut self,
        n: u32,
        ask: Ask,
        said: Option<&Said>,
    ) -> Result<(), &'static str> {
        let Some(driver) = self.drivers.get_mut(&n) else { return Err(NOT_ITS) };
        driver.asks = false;
        // What it cannot say for a while it does not say any more: marks end by themselves.
        let keeper_is_free = self.keeper_asks == 0;
        // It looks whether a push that told of an end said the truth, and may read the rest.
        let confirms = driver.last.starts_with("push Ended");
        driver.last = moves::after(ask, said);
        let owns = matches!(driver.mode, Mode::Owns(_));
        let ended = matches!(driver.mode, Mode::Ended(_));
        if let Ask::Finish { .. } = ask {
            (driver.finishes, driver.unheard) = match said {
                Some(_) => (driver.finishes + 1, 0),
                None => (driver.finishes, driver.unheard + 1),
            };
            driver.doubted |= said.is_none();
        }
        if let (Ask::Join { .. }, Some(Said::Found(Found::Follow { flight, .. }))) = (ask, said) {
            driver.known = driver.known.max(flight.token);
            driver.found = Some(*flight);
        }
        match (ask, said) {
            (Ask::Join { purpose: Purpose::Own, .. }, None) => {
                driver.renamed = true;
                if !owns {
                    driver.mode = Mode::Gone;
                }
            }
            (Ask::Join { id, waiter, purpose: Purpose::Own, known }, Some(Said::Found(found))) => {
                match found {
                    Found::Own(token) => {
                        if *token <= known {
                            return Err(ABOVE);
                        }
                        let old = match driver.mode {
                            Mode::Owns(old) | Mode::Ended(old) => Some(old),
                            _ => None,
                        };
                        let flight = Name { token: *token, id };
                        (driver.mode, driver.known) = (Mode::Owns(flight), *token);
                        (driver.finishes, driver.unheard, driver.doubted) = (0, 0, false);
                        // With the same run, where the store had lost it.
                        let old = old.and_then(|old| self.held.get(&key(old)));
                        let wanted = old.is_some_and(|old| old.missing && old.wanted) || ended;
                        let held = Held { wanted, again: ended, ..Held::default() };
                        self.held.insert(key(flight), held);
                    }
                    Found::Follow { flight, .. } => {
                        // Else somebody else was faster: it asks anew, or is done.
                        if ended && keeper_is_free {
                            self.marks.insert(waiter.0);
                        }
                        driver.mode = match ended {
                            true => Mode::Gone,
                            false => Mode::Follows(*flight),
                        };
                    }
                    _ if ended => driver.mode = Mode::Gone,
                    _ if owns => driver.mode = Mode::Free,
                    found => driver.mode = taken(*found),
                }
            }
            (Ask::Join { purpose: Purpose::Look, waiter, .. }, None) if owns => {
                (driver.renamed, driver.doubts) = (true, false);
                if keeper_is_free {
                    self.marks.insert(waiter.0);
                }
            }
            (Ask::Join { waiter, .. }, Some(Said::Found(found))) if owns => match found {
                Found::Follow { flight, .. } => {
                    // Nobody owns but itself: it goes on alone.
                    driver.renamed =
                        matches!(driver.mode, Mode::Owns(own) if flight.token <= own.token);
                    driver.doubts = !driver.renamed;
                    if keeper_is_free {
                        self.marks.insert(waiter.0);
                    }
                }
                Found::Done { flight, .. } => {
                    driver.known = driver.known.max(flight.token);
                    driver.doubts = false;
                }
                // What it saw before is gone: it goes on alone too.
                _ => driver.renamed = std::mem::take(&mut driver.doubts),
            },
            (Ask::Join { .. }, Some(Said::Found(found))) => match found {
                Found::Follow { .. } | Found::Lapsed | Found::Missing => {}
                Found::Failed(_) | Found::Private | Found::Quarantined if confirms => {}
                found => driver.mode = taken(*found),
            },
            (Ask::Finish { flight, status, .. }, Some(Said::Accepted | Said::Lost(_)))
                if !matches!(status, EndStatus::Failed | EndStatus::TimedOut) =>
            {
                let lost = said == Some(&Said::Lost(Lost::Missing));
                let answer = matches!(status, EndStatus::Done | EndStatus::TooLarge);
                // Once, and where nobody can have owned since.
                let held = self.held.get(&key(flight));
                let may = held.is_some_and(|held| !held.again) && !driver.doubted;
                driver.mode = if lost && answer && may { Mode::Ended(flight) } else { Mode::Gone };
            }
            _ => {}
        }
        Ok(())
    }
}

/// How it goes on after an answer that asks for no run here.
fn taken(found: Found) -> Mode {
    match found {
        Found::Done { record: Some(_), .. } => Mode::Free,
        Found::Done { .. } => Mode::Takes,
        Found::Failed(_) | Found::Private | Found::Quarantined => Mode::Gone,
        _ => Mode::Free,
    }
}
