//! What the store may do: one owner at a time, one end to a flight, tokens that grow.

use std::collections::{HashMap, HashSet};

use super::{Deed, Flight, History, Step, Time};

/// What came of each flight.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    records: HashMap<u64, Record>,
    /// Which record each token is of.
    pub(super) tokens: HashMap<u64, u64>,
    /// How and when each flight ended by its owner's word.
    pub(super) ends: HashMap<Flight, End>,
    /// The flight of each token.
    pub(super) flights: HashMap<u64, Flight>,
    /// Under which flight a run went on whose record was lost.
    heirs: HashMap<Flight, Flight>,
    /// Flights that were let go.
    let_go: HashSet<Flight>,
}

#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) at: Time,
    pub(super) how: String,
    pub(super) outcome: u64,
}

#[derive(Debug, Default)]
struct Record {
    owner: Option<Owner>,
    last_token: u64,
    /// Ids that were granted, with the last token of each.
    ids: HashMap<u128, u64>,
    /// Those whose flight ended, or was let go.
    over: HashSet<u128>,
    /// All data was lost since the last grant.
    lost: bool,
    /// Those who owned when data was lost, and have not owned again.
    lost_owners: Vec<(Flight, Who)>,
    /// Those whose flight was forgotten, which they hear of when they renew: until when
    /// they may.
    forgotten: Vec<(Flight, Who, Time)>,
}

/// A waiter's name and its process.
type Who = (u128, Option<usize>);

#[derive(Debug)]
struct Owner {
    flight: Flight,
    who: Who,
    until: Time,
    pieces: u64,
    over: bool,
}

pub(super) fn check(history: &History, faults: &mut Vec<String>) -> Ledger {
    let mut ledger = Ledger::default();
    for step in &history.steps {
        if let Err(fault) = ledger.take(step) {
            faults.push(format!("record {:x} at {} us: {fault}", step.record, step.at));
        }
    }
    ledger
}

impl Ledger {
    fn take(&mut self, step: &Step) -> Result<(), String> {
        let at = step.at;
        let record = self.records.entry(step.record).or_default();
        match &step.deed {
            Deed::Granted { asker, flight, until } => {
                self.tokens.insert(flight.token, step.record);
                self.flights.insert(flight.token, *flight);
                let owner = (asker.waiter, step.node);
                let same =
                    |before: &Who| before.0 == owner.0 || owner.1.is_some() && before.1 == owner.1;
                let back = record.lost_owners.extract_if(.., |(_, before)| same(before));
                self.heirs.extend(back.map(|(lost, _)| (lost, *flight)));
                record.grant(*flight, owner, asker.known, at, *until)
            }
            Deed::Renewed { flight, until } => {
                record.owned("renewed", *flight, at)?.until = *until;
                Ok(())
            }
            Deed::Added { flight, from, to } => {
                let owner = record.owned("added to", *flight, at)?;
                let there = std::mem::replace(&mut owner.pieces, *to);
                match there == *from {
                    true => Ok(()),
                    false => Err(format!("{flight:?} has pieces up to {there}, then {from} came")),
                }
            }
            Deed::Ended { flight, how, outcome } => {
                let end = End { at, how: how.clone(), outcome: *outcome };
                if let Some(before) = self.ends.insert(*flight, end) {
                    return Err(format!("{flight:?} ended as {how}, and before as {before:?}"));
                }
                record.owned("ended", *flight, at)?.over = true;
                Ok(())
            }
            Deed::Agreed { flight, how, outcome } => {
                if self.ends.contains_key(flight) || self.let_go.contains(flight) {
                    return Ok(());
                }
                let end = End { at, how: how.clone(), outcome: *outcome };
                self.ends.insert(*flight, end);
                record.owned("ended", *flight, at)?.over = true;
                Ok(())
            }
            Deed::LetGo { id } => {
                let owner = record.owner.as_mut().filter(|owner| owner.flight.id == *id);
                if let Some(owner) = owner.filter(|owner| !owner.over) {
                    owner.over = true;
                    self.let_go.insert(owner.flight);
                }
                Ok(())
            }
            Deed::Forgot => {
                if let Some(owner) = record.owner.as_mut().filter(|owner| !owner.over) {
                    owner.over = true;
                    record.forgotten.push((owner.flight, owner.who, owner.until));
                }
                Ok(())
            }
            Deed::Told { flight, how, outcome, .. } => self.same(*flight, Some(how), *outcome),
            Deed::Heard { flight, outcome: Some(outcome), .. } => {
                self.same(*flight, None, Some(*outcome))
            }
            Deed::DataLost => {
                for record in self.records.values_mut() {
                    record.lost = true;
                    // That it was forgotten is lost, too.
                    let forgotten = record.forgotten.drain(..).filter(|(.., until)| at < *until);
                    record.lost_owners.extend(forgotten.map(|(flight, who, _)| (flight, who)));
                    if let Some(owner) = record.owner.take().filter(|owner| !owner.over) {
                        record.lost_owners.push((owner.flight, owner.who));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The flight that a token's run came to its end under, as far as is known.
    pub(super) fn last_flight(&self, token: u64) -> Option<Flight> {
        let mut last = *self.flights.get(&token)?;
        while let Some(heir) = self.heirs.get(&last) {
            last = *heir;
        }
        Some(last)
    }

    /// What is told of a flight's end is the end that it had.
    fn same(
        &self,
        flight: Flight,
        how: Option<&String>,
        outcome: Option<u64>,
    ) -> Result<(), String> {
        match self.ends.get(&flight) {
            None => Err(format!("{flight:?} is said to have ended, and did not")),
            Some(end)
                if how.is_none_or(|how| end.how == *how)
                    && outcome.is_none_or(|outcome| end.outcome == outcome) =>
            {
                Ok(())
            }
            Some(end) => {
                Err(format!("{flight:?} ended as {end:?}, and is told to be {how:?} {outcome:?}"))
            }
        }
    }
}

impl Record {
    fn grant(
        &mut self,
        flight: Flight,
        who: Who,
        known: u64,
        at: Time,
        until: Time,
    ) -> Result<(), String> {
        if let Some(owner) = self.owner.as_mut().filter(|owner| !owner.over && at < owner.until) {
            if owner.flight != flight {
                return Err(format!("{flight:?} was granted while {owner:?} stood"));
            }
            // Asked again.
            owner.until = until;
            return Ok(());
        }
        let (last, lost) = (self.last_token, std::mem::take(&mut self.lost));
        let id = self.ids.insert(flight.id, flight.token);
        self.last_token = last.max(flight.token);
        let before = self.owner.replace(Owner { flight, who, until, pieces: 0, over: false });
        self.over.extend(before.filter(|owner| owner.over).map(|owner| owner.flight.id));
        if flight.token <= known {
            return Err(format!("{flight:?} was granted to one who knew {known}"));
        }
        match id {
            Some(token) if token == flight.token => Err(format!("{flight:?} was granted twice")),
            // Who had no answer asks again, and a lease may have run out meanwhile. But an
            // id whose flight has ended never owns again.
            Some(_) if self.over.contains(&flight.id) && !lost => {
                Err(format!("{flight:?} was granted twice"))
            }
            _ if flight.token <= last && !lost => Err(format!("{flight:?} came after {last}")),
            _ => Ok(()),
        }
    }

    /// The owner, where it is this one and its lease stands.
    fn owned(&mut self, what: &str, flight: Flight, at: Time) -> Result<&mut Owner, String> {
        let stands = |owner: &Owner| owner.flight == flight && !owner.over && at < owner.until;
        if !self.owner.as_ref().is_some_and(stands) {
            return Err(format!("{flight:?} was {what}, and what stood was {:?}", self.owner));
        }
        self.owner.as_mut().ok_or_else(String::new)
    }
}
