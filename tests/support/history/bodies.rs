//! What callers may get: the bytes of one run of their own key, of a flight that was in
//! the air when they asked.

use std::collections::HashMap;

use super::{Caller, Deed, Got, History, Rules, Run, Time, ledger::Ledger};

struct Bodies<'a> {
    history: &'a History,
    ledger: &'a Ledger,
    rules: Rules,
    /// When each process was told to follow which token, or knew of it, by record.
    followed: HashMap<(usize, u64), Vec<(Time, u64)>>,
}

pub(super) fn check(history: &History, ledger: &Ledger, rules: Rules, faults: &mut Vec<String>) {
    let mut runs = HashMap::<u64, Vec<&Run>>::new();
    for run in history.runs.values() {
        runs.entry(run.key).or_default().push(run);
    }
    let mut followed = HashMap::<_, Vec<_>>::new();
    for step in &history.steps {
        if let (Deed::Followed { asker, flight }, Some(node)) = (&step.deed, step.node) {
            // What a keeper is told comes to its driver later: so far that knows what the
            // watch says.
            let token = if asker.watch { asker.known } else { flight.token };
            followed.entry((node, step.record)).or_default().push((step.at, token));
        }
    }
    let bodies = Bodies { history, ledger, rules, followed };
    for caller in &history.callers {
        let runs = runs.get(&caller.key).map_or(&[][..], |runs| runs);
        if let Err(fault) = bodies.check(caller, runs) {
            let Caller { key, node, asked, head, .. } = caller;
            faults.push(format!(
                "caller of key {key} at node {node}, asked at {asked} us, head {head:?}: {fault}"
            ));
        }
    }
}

/// The run that a caller's bytes are of, where it is one and no other.
fn source<'a>(caller: &Caller, runs: &[&'a Run]) -> Result<Option<&'a Run>, String> {
    let (mut of, text): (Vec<&Run>, _) = match &caller.got {
        Got::Nothing => return Ok(None),
        Got::Whole(text) => {
            (runs.iter().filter(|run| run.whole && run.text == *text).copied().collect(), text)
        }
        Got::Part(text) => {
            (runs.iter().filter(|run| run.text.starts_with(text)).copied().collect(), text)
        }
    };
    match of.pop() {
        Some(run) => Ok(of.is_empty().then_some(run)),
        None => {
            let whole = if matches!(caller.got, Got::Whole(_)) { "whole " } else { "" };
            let line = text.lines().next().unwrap_or_default();
            let bytes = text.len();
            Err(format!("no run's {whole}text: {bytes} bytes, beginning with {line:?}"))
        }
    }
}

impl Bodies<'_> {
    fn check(&self, caller: &Caller, runs: &[&Run]) -> Result<(), String> {
        match source(caller, runs)? {
            Some(run) if run.node == caller.node => self.is_of_here(caller, run),
            Some(run) => self.is_of_elsewhere(caller, run),
            None => Ok(()),
        }
    }

    /// Whether a caller asked so long after the end of what it got.
    fn is_late(&self, caller: &Caller, end: Time, limit: Time) -> bool {
        let Caller { node, asked, .. } = *caller;
        asked > end + limit && !self.history.stood_still(Some(node), end, asked)
    }

    /// When a process was told to follow what of a token's record.
    fn told(&self, node: usize, token: u64) -> impl Iterator<Item = &(Time, u64)> {
        let record = self.ledger.tokens.get(&token).copied().unwrap_or(0);
        self.followed.get(&(node, record)).into_iter().flatten()
    }

    fn is_of_here(&self, caller: &Caller, run: &Run) -> Result<(), String> {
        let Some(over) = run.over else { return Ok(()) };
        if !self.is_late(caller, over, self.rules.here) {
            return Ok(());
        }
        // An owner that the store did not hear of its end follows itself for a while, under
        // the token that it had last.
        let flight = run.token.and_then(|token| self.ledger.last_flight(token));
        let mut tokens = run.token.into_iter().chain(flight.map(|flight| flight.token));
        let told =
            |token: u64| self.told(caller.node, token).any(|(at, of)| *of == token && *at > over);
        if tokens.any(told) {
            return Ok(());
        }
        Err(format!("a run here that was over at {over} us, of {flight:?}"))
    }

    fn is_of_elsewhere(&self, caller: &Caller, run: &Run) -> Result<(), String> {
        let Some(token) = run.token else {
            return Err("a run of another process, without a lease".to_owned());
        };
        let Some(flight) = self.ledger.last_flight(token) else {
            return Err(format!("token {token} was never granted"));
        };
        let head = caller.head.unwrap_or(0);
        let newer = self.told(caller.node, flight.token).find(|(at, of)| {
            self.rules.exact && caller.asked < *at && *at < head && *of > flight.token
        });
        if let Some((at, newer)) = newer {
            return Err(format!("its process followed {newer} at {at} us, it got {flight:?}"));
        }
        match self.ledger.ends.get(&flight) {
            Some(end) if self.is_late(caller, end.at, self.rules.stale) => {
                Err(format!("{flight:?}, which was over at {} us", end.at))
            }
            Some(end) if end.how == "done" => Ok(()),
            _ if matches!(caller.got, Got::Part(_)) => Ok(()),
            end => Err(format!("the whole of {flight:?}, whose end was {end:?}")),
        }
    }
}
