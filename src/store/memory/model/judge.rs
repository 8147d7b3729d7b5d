//! The steps of the store, and the rules that are seen at them.

use super::{
    node::{Body, Own, State, Step, Verdict},
    rules::{Mutant, Rules},
    shop,
    wire::{Ask, Found, Lane, Name, Purpose, Said, Tag},
    world::{Granted, World},
};
use crate::store::{EndStatus, Pushed};

pub(super) const TOKENS: &str = "the tokens of a key grow";
pub(super) const TWO_OWNERS: &str = "an owner has stopped its run before another is granted";
pub(super) const ONE_OUTCOME: &str = "one outcome for a flight, and nothing after it";
pub(super) const WANTED: &str = "a run that a live waiter wants is not abandoned";
pub(super) const HANDED_ON: &str = "nothing is handed on once another owns";
pub(super) const OLDER: &str = "who followed a flight gets no outcome of an older one";
pub(super) const MIXED: &str = "no body holds bytes of two runs, a hole or a repeat";
pub(super) const SHORT: &str = "no short body ends well";
pub(super) const ONE_RUN: &str = "without faults a flight is one run, and all get its answer";

impl World {
    /// The store takes in a request; one that comes twice stays on its way.
    pub(super) fn serve(&mut self, at: usize, rules: &Rules, twice: bool) {
        let call = self.calls[at].clone();
        let n = usize::from(call.node);
        let now = self.instant(rules);
        let (said, pushed) = self.shop.serve(call.ask, rules, now);
        self.judge(n, call.ask, &said, pushed.as_ref(), rules);
        self.publish(pushed.as_ref());
        let follows = matches!(said, Said::Found(Found::Follow { .. }));
        if follows
            && !call.orphan
            && call.lane == Lane::Driver
            && let Some(driver) = &mut self.nodes[n].driver
        {
            driver.subscribed = true;
        }
        if call.orphan || call.lane == Lane::Errand {
            self.calls.remove(at);
        } else {
            self.calls[at].said = Some(said);
        }
        if twice {
            self.calls.push(super::wire::Call { orphan: true, late: true, ..call });
        }
    }

    pub(super) fn publish(&mut self, pushed: Option<&Pushed>) {
        let Some(pushed) = pushed else { return };
        if let Some((flight, _)) = shop::ends(pushed) {
            let known = self.granted.iter_mut().find(|granted| granted.flight == flight);
            known.into_iter().for_each(|granted| granted.ended = true);
        }
        let Some(push) = shop::push(pushed) else { return };
        for node in self.nodes.iter_mut().filter(|node| node.cut == 0) {
            if let Some(driver) = node.driver.as_mut().filter(|driver| driver.subscribed) {
                driver.inbox.push(push);
            }
        }
    }

    fn judge(&mut self, n: usize, ask: Ask, said: &Said, pushed: Option<&Pushed>, rules: &Rules) {
        match (ask, said) {
            (Ask::Join { id, purpose: Purpose::Own, .. }, Said::Found(Found::Own(token))) => {
                self.granted(n, Name { token: *token, id }, rules);
            }
            (Ask::Renew(flight), Said::Renewed(_)) if self.has_ended(flight) => {
                self.blame(ONE_OUTCOME);
            }
            _ => {}
        }
        match pushed {
            Some(Pushed::Piece { flight, .. }) if self.has_ended((*flight).into()) => {
                self.blame(ONE_OUTCOME);
            }
            Some(Pushed::Piece { flight, .. }) if !matches!(ask, Ask::Append { flight: asked, .. } if asked.full() == *flight) =>
            {
                self.blame(ONE_OUTCOME);
            }
            Some(Pushed::Piece { .. }) => {}
            Some(pushed) => {
                if let Some((flight, status)) = shop::ends(pushed) {
                    self.ended(ask, flight, status, rules);
                }
            }
            None => {}
        }
        let seen = match said {
            Said::Wanted => "wanted",
            Said::Gap(_) => "gap",
            Said::Over => "over",
            Said::Lost(super::wire::Lost::Missing) => "missing",
            Said::Lost(super::wire::Lost::Forgotten) => "forgotten",
            Said::Lost(_) => "fenced",
            Said::Found(Found::Ended) => "late duplicate",
            Said::Found(Found::Failed(_)) => "failed twice",
            Said::Found(Found::Private) => "private",
            Said::Found(Found::Quarantined) => "quarantined",
            Said::Found(Found::Missing) => "look missing",
            Said::Found(Found::Lapsed) => "look lapsed",
            Said::Found(Found::Done { streamed: true, .. }) => "stream found",
            Said::Found(Found::Done { .. }) => "record found",
            _ => return,
        };
        self.note(seen);
    }

    fn granted_as(&self, flight: Name) -> Option<&Granted> {
        self.granted.iter().find(|granted| granted.flight == flight)
    }

    /// Whether nothing has come between this flight's owner and its right to run.
    fn is_sound(&self, flight: Name) -> bool {
        self.granted_as(flight).is_some_and(|granted| !granted.shaken)
    }

    /// Its place among all flights.
    fn place(&self, flight: Name) -> Option<usize> {
        self.granted.iter().position(|granted| granted.flight == flight)
    }

    fn has_ended(&self, flight: Name) -> bool {
        self.granted_as(flight).is_some_and(|granted| granted.ended)
    }

    fn granted(&mut self, n: usize, flight: Name, rules: &Rules) {
        if self.has_ended(flight) {
            self.blame(ONE_OUTCOME);
        }
        if self.granted_as(flight).is_some() {
            // Asked again, as long as nothing happened in between.
            self.note("asked again");
            return;
        }
        let last = self.granted.last().map_or(0, |last| last.flight.token);
        if !rules.forgets_tokens && last >= flight.token {
            self.blame(TOKENS);
        }
        let mut others = self.nodes.iter().enumerate().filter(|(other, _)| *other != n);
        let two = others.any(|(_, node)| {
            let sound = node.is_up() && !node.stalled;
            sound
                && node
                    .own()
                    .is_some_and(|own| own.step == Step::Running && self.is_sound(own.flight))
        });
        if two {
            self.blame(TWO_OWNERS);
        }
        if !self.granted.is_empty() {
            self.note("granted again");
        }
        self.granted.push(Granted { flight, ended: false, shaken: false });
    }

    /// A flight has ended in the store.
    fn ended(&mut self, ask: Ask, flight: Name, status: EndStatus, rules: &Rules) {
        if self.has_ended(flight) {
            self.blame(ONE_OUTCOME);
        }
        let own_word = match ask {
            Ask::Finish { flight: asked, .. } | Ask::Abandon(asked) => asked == flight,
            Ask::Release { id, .. } => id == flight.id,
            _ => true,
        };
        if !own_word {
            self.blame(ONE_OUTCOME);
        }
        let given_up = match ask {
            Ask::Abandon(_) => true,
            Ask::Finish { .. } => status == EndStatus::Abandoned,
            _ => false,
        };
        if !given_up {
            return;
        }
        self.note("abandoned");
        let waits = self.nodes.iter().enumerate().any(|(n, node)| {
            let heard = self.calls.iter().any(|call| {
                let found = matches!(call.said, Some(Said::Found(Found::Follow { flight: found, .. }))
                    if found == flight);
                usize::from(call.node) == n && call.lane == Lane::Driver && found
            });
            let follows = node.follow().is_some_and(|follow| follow.flight == flight);
            // Who does not reach the store cannot keep its mark.
            let missed = node.follow().is_some_and(|follow| follow.missed);
            let silent = node.cut > 0 || missed && rules.faults > 1;
            node.is_up() && !node.stalled && !silent && node.callers > 0 && (heard || follows)
        });
        if waits && self.is_sound(flight) {
            self.blame(WANTED);
        }
    }

    /// An owner hands a piece on to callers of its own process.
    pub(super) fn judge_handing_on(&mut self, own: &Own) {
        let place = self.place(own.flight);
        if self.is_sound(own.flight) && place.is_some_and(|place| place + 1 < self.granted.len()) {
            self.blame(HANDED_ON);
        }
    }

    /// A run begins.
    pub(super) fn judge_start(&mut self, n: usize, flight: Name, rules: &Rules) {
        let last = self.place(flight).is_none_or(|place| place + 1 == self.granted.len());
        if !last && self.is_sound(flight) {
            self.blame(TWO_OWNERS);
        }
        let others =
            self.nodes.iter().enumerate().any(|(other, node)| other != n && node.run().is_some());
        let newest = self.nodes[n].driver.as_ref().map_or(0, |driver| usize::from(driver.newest));
        if newest > 0 {
            self.note("taken over");
        }
        // A push may be so late that the key has seen yet another flight meanwhile.
        let again = newest > 0 && newest + 1 == self.granted.len();
        if rules.is_fair() && (others || again) {
            self.blame(ONE_RUN);
        }
    }

    /// The driver has to do with this flight from now on.
    pub(super) fn know(&mut self, n: usize, flight: Name) {
        let place = self.place(flight);
        if let Some(driver) = &mut self.nodes[n].driver {
            driver.known = driver.known.max(flight.token);
            let place = place.map_or(0, |place| super::wire::byte(place + 1));
            driver.newest = driver.newest.max(place);
        }
    }

    /// A follower hands a piece on.
    pub(super) fn take_piece(&mut self, n: usize, flight: Name, tag: Tag, rules: &Rules) {
        let Some(driver) = &mut self.nodes[n].driver else { return };
        let next = match &mut driver.state {
            State::Follow(follow) => &mut follow.next,
            State::Reading { next, .. } => next,
            _ => return,
        };
        let fits = tag == (flight.id, *next);
        *next += 1;
        let next = *next;
        let body = driver.body.get_or_insert(Body { source: flight.id, pieces: 0 });
        let same = body.source == flight.id;
        body.pieces = body.pieces.max(next);
        if !fits {
            self.blame(MIXED);
        }
        if !same {
            self.decide(n, Verdict::Broken, rules);
        }
    }

    /// Gives the callers their outcome.
    pub(super) fn decide(&mut self, n: usize, verdict: Verdict, rules: &Rules) {
        let Some(driver) = &mut self.nodes[n].driver else { return };
        driver.decided |= verdict != Verdict::Broken;
        let (newest, body) = (driver.newest, driver.body);
        let callers = std::mem::take(&mut self.nodes[n].callers);
        self.nodes[n].waited = 0;
        if callers == 0 {
            return;
        }
        let (source, flight) = match verdict {
            Verdict::Whole(source, flight) => (Some(source), flight),
            Verdict::Failed(flight) => (None, flight),
            Verdict::Alone | Verdict::Broken => (None, None),
        };
        let place = flight.and_then(|flight| self.place(flight));
        if flight.is_some() && place.is_none_or(|place| place + 1 < newest.into()) {
            self.blame(OLDER);
        }
        if let (Some(source), Some(body)) = (source, body)
            && body.source != source
        {
            // Begun with another run: a body error.
            self.note("another run");
        }
        if rules.is_fair() && source.is_none() {
            self.blame(ONE_RUN);
        }
        self.note(match verdict {
            Verdict::Whole(_, None) => "answered by its own run",
            Verdict::Whole(..) => "answered by another's run",
            Verdict::Failed(_) => "answered with a failure",
            Verdict::Alone => "left alone",
            Verdict::Broken => "body broken",
        });
    }

    /// A stream ends well for those who read it.
    pub(super) fn close(
        &mut self,
        n: usize,
        flight: Name,
        next: u8,
        seal: u8,
        rules: &Rules,
    ) -> bool {
        let whole = seal == next || rules.is(Mutant::ShortBody);
        if whole && next != rules.pieces {
            self.blame(SHORT);
        }
        if whole {
            self.decide(n, Verdict::Whole(flight.id, Some(flight)), rules);
        }
        whole
    }
}
