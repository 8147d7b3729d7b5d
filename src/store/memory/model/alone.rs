//! Whether a run goes on without a lease: mirrors `flight/alone.rs`.

use super::{
    node::{Alone, Doubt, Own, State, Step},
    rules::Rules,
    wire::{Found, Id, Lane, Lost, Purpose, Said},
    world::World,
};

impl World {
    /// Goes on without a lease, or gives the run up.
    pub(super) fn part(&mut self, n: usize, lost: Lost, rules: &Rules) {
        let wanted = self.nodes[n].callers > 0;
        let Some(own) = self.own_mut(n) else { return };
        own.lost = Some(lost);
        match lost {
            Lost::Forgotten if wanted => self.go_on_alone(n, Alone::Forgotten),
            Lost::Silence | Lost::Missing if own.live && wanted => {
                own.step = Step::Wondering(None);
                self.ask_join(n, Id::NONE, Purpose::Look);
            }
            _ => self.give_up(n, rules),
        }
    }

    pub(super) fn go_on_alone(&mut self, n: usize, why: Alone) {
        self.note("went on alone");
        self.forget_calls(n, |lane| lane != Lane::Errand);
        let Some(Own { flight, run: Some(run), .. }) = self.nodes[n].own().copied() else { return };
        self.release(n, flight);
        self.set_state(n, State::Local { run, why });
        if let Some(driver) = &mut self.nodes[n].driver {
            driver.decided = true;
            driver.subscribed = false;
            driver.inbox.clear();
        }
    }

    /// What a look has found, before a run goes on without a lease.
    pub(super) fn wondered(
        &mut self,
        n: usize,
        doubt: Option<Doubt>,
        said: Option<Said>,
        age: u8,
        rules: &Rules,
    ) {
        let mine = self.nodes[n].own().map_or(0, |own| own.flight.token);
        match said {
            Some(Said::Found(Found::Follow { flight, left, .. })) => {
                self.mark(n);
                self.know(n, flight);
                if flight.token > mine {
                    let rests = true;
                    let first = doubt.unwrap_or(Doubt { flight, left, rests });
                    if flight != first.flight || left.saturating_sub(age) > first.left {
                        return self.give_up(n, rules);
                    }
                    self.note("doubted");
                    self.set_step(n, Step::Wondering(Some(Doubt { rests, ..first })));
                    return self.settle(n, rules);
                }
            }
            Some(Said::Found(Found::Done { flight, .. })) => {
                self.know(n, flight);
                return self.give_up(n, rules);
            }
            Some(_) => {}
            // It may have come there all the same.
            None => self.mark(n),
        }
        if doubt.is_some() {
            self.note("was nobody's");
        }
        self.unmark(n, rules);
        if self.nodes[n].callers == 0 {
            self.give_up(n, rules);
        } else {
            self.go_on_alone(n, Alone::Lost);
        }
    }
}
