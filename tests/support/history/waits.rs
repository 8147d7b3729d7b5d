//! What those who wait may be told, and how long they may sleep.

use std::collections::HashMap;

use super::{Asker, Deed, History, Rules, Step, Time};

#[derive(Debug)]
struct Wait {
    node: Option<usize>,
    record: u64,
    /// The greatest token that it knows.
    known: u64,
    /// When it last looked or heard; none where it waits no more.
    since: Option<Time>,
}

pub(super) fn check(history: &History, rules: Rules, faults: &mut Vec<String>) {
    let mut waits = HashMap::<u128, Wait>::new();
    let slept = |waiter: u128, wait: &Wait, now: Time| {
        let since = wait.since.filter(|since| now.saturating_sub(*since) > rules.sleep)?;
        let excused = history.stood_still(wait.node, since.saturating_sub(rules.sleep), now);
        let who = format!("record {:x}: waiter {waiter:032x} of node {:?}", wait.record, wait.node);
        (!excused).then(|| format!("{who} slept from {since} us to {now} us"))
    };
    for step in &history.steps {
        let Some((waiter, asked, told)) = about(step) else { continue };
        let first = Wait { node: step.node, record: step.record, known: 0, since: None };
        let wait = waits.entry(waiter).or_insert(first);
        faults.extend(slept(waiter, wait, step.at));
        faults.extend(wait.learn(asked, told, rules.exact).map(|fault| {
            format!("record {:x}: waiter {waiter:032x} at {} us: {fault}", step.record, step.at)
        }));
        wait.since = match &step.deed {
            Deed::Followed { asker, .. } if !asker.watch => Some(step.at),
            // Of an older flight it is nothing.
            Deed::Heard { flight, .. } if flight.token < wait.known => wait.since,
            // Who does not wait does not begin to by asking, or by hearing.
            Deed::Looked { waits: true, .. }
            | Deed::Heard { over: false, .. }
            | Deed::Followed { .. } => wait.since.map(|_| step.at),
            _ => None,
        };
    }
    for (waiter, wait) in &waits {
        faults.extend(slept(*waiter, wait, history.end));
    }
}

/// Whom a step is about, what it asked and which token it was told.
fn about(step: &Step) -> Option<(u128, Option<Asker>, Option<u64>)> {
    Some(match &step.deed {
        Deed::Granted { asker, flight, .. }
        | Deed::Followed { asker, flight }
        | Deed::Told { asker, flight, .. } => (asker.waiter, Some(*asker), Some(flight.token)),
        Deed::Looked { asker, .. } => (asker.waiter, Some(*asker), None),
        Deed::Heard { waiter, .. } | Deed::Left { waiter } => (*waiter, None, None),
        _ => return None,
    })
}

impl Wait {
    /// Where answers are not known to have come, only what it asks says what it knows.
    fn learn(&mut self, asked: Option<Asker>, told: Option<u64>, came: bool) -> Option<String> {
        let asker = asked?;
        // What a keeper hears is dropped where its driver knows better.
        let known = if asker.watch { asker.known } else { self.known.max(asker.known) };
        let fault = match told.filter(|told| *told < known) {
            Some(told) => Some(format!("is told of {told}, and knew {known}")),
            None if asker.known < known => {
                Some(format!("asks as one who knows {}, and knew {known}", asker.known))
            }
            None => None,
        };
        if !asker.watch {
            self.known = known.max(told.filter(|_| came).unwrap_or(0));
        }
        fault
    }
}
