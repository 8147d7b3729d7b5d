//! What happened in a fleet, as plain data, and whether it may have.
//!
//! The steps are those of the store, in its own order, whoever tells of them: a wrapper
//! around a store in memory, or what a server's monitor shows. The verdict is a list of
//! faults; none is the answer that is hoped for.
//!
//! Of tokens that are given out after all data was lost the protocol promises less:
//! such a one may be no greater than an earlier one, but names no flight twice.

mod bodies;
mod ledger;
mod waits;

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

/// Microseconds since some beginning.
pub(crate) type Time = u64;

pub(crate) const MS: Time = 1000;
pub(crate) const SECOND: Time = 1_000_000;

/// A token and a random id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    pub(crate) token: u64,
    pub(crate) id: u128,
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:.8}", self.token, format!("{:032x}", self.id))
    }
}

/// One step of the store.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at: Time,
    /// The process that asked, where it is known.
    pub(crate) node: Option<usize>,
    /// Whose record it is about.
    pub(crate) record: u64,
    pub(crate) deed: Deed,
}

/// Who asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) waiter: u128,
    /// The greatest token that it says it knows.
    pub(crate) known: u64,
    /// Its keeper asked for it, who knows what it knew when its wait began.
    pub(crate) watch: bool,
}

/// What the store did, or said. Not every source of a history tells all of it.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "each test binary has its own source")]
pub(crate) enum Deed {
    /// A lease was granted.
    Granted { asker: Asker, flight: Flight, until: Time },
    /// A lease was renewed.
    Renewed { flight: Flight, until: Time },
    /// Pieces were added to a flight's stream: those from one number on, up to another.
    Added { flight: Flight, from: u64, to: u64 },
    /// A flight ended by its owner's word, for the first time. `outcome` stands for all
    /// that others can have of it.
    Ended { flight: Flight, how: String, outcome: u64 },
    /// An owner was told that its word stands: it ends the flight, or that was over.
    Agreed { flight: Flight, how: String, outcome: u64 },
    /// A flight was let go, if it was there to be let go: by its owner, or its keeper.
    LetGo { id: u128 },
    /// The running flight was forgotten, if there was one.
    Forgot,
    /// Somebody was told to wait for this flight.
    Followed { asker: Asker, flight: Flight },
    /// Somebody was told of the end of a flight: in an answer, which may not say all.
    Told { asker: Asker, flight: Flight, how: String, outcome: Option<u64> },
    /// A push came: whether it was of a flight's end, and of which where that was its
    /// owner's.
    Heard { waiter: u128, flight: Flight, over: bool, outcome: Option<u64> },
    /// Somebody asked, and had another answer or none; whether it waits on.
    Looked { asker: Asker, waits: bool },
    /// A wait is over.
    Left { waiter: u128 },
    /// All records are gone.
    DataLost,
}

/// One run of inner.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) key: u64,
    pub(crate) node: usize,
    /// None for a run without a lease.
    pub(crate) token: Option<u64>,
    /// All that it says, if it comes to that.
    pub(crate) text: String,
    /// Whether it came to its end.
    pub(crate) whole: bool,
    /// When it had ended, or was dropped.
    pub(crate) over: Option<Time>,
}

/// One caller.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) key: u64,
    pub(crate) node: usize,
    pub(crate) asked: Time,
    /// When it had the head of an answer.
    pub(crate) head: Option<Time>,
    pub(crate) got: Got,
}

/// What a caller got.
#[derive(Clone, Debug)]
pub(crate) enum Got {
    /// A body with a clean end.
    Whole(String),
    /// A body without one: it broke off, or its caller left.
    Part(String),
    /// No answer of any run.
    Nothing,
}

/// When a process stood still or was cut off; nobody expects anything of it then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) node: usize,
    pub(crate) from: Time,
    pub(crate) to: Time,
}

/// All that happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) steps: Vec<Step>,
    pub(crate) runs: HashMap<u64, Run>,
    pub(crate) callers: Vec<Caller>,
    pub(crate) outages: Vec<Outage>,
    pub(crate) end: Time,
    /// What was there when all should have been over.
    pub(crate) left: Vec<String>,
    /// What was seen without an end to its time.
    pub(crate) endless: Vec<String>,
}

/// What is allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Nobody who waits sleeps longer without a look or a word.
    pub(crate) sleep: Time,
    /// So long after its end a flight may still be the one that a process waits for.
    pub(crate) stale: Time,
    /// So long after the end of its run a flight may be in the air in its own process.
    pub(crate) here: Time,
    /// The clocks of callers and processes are the store's, and what it answered came.
    pub(crate) exact: bool,
}

impl History {
    /// Whether this process, or some process, stood still at any time between these.
    fn stood_still(&self, node: Option<usize>, from: Time, to: Time) -> bool {
        self.outages.iter().any(|outage| {
            node.is_none_or(|node| node == outage.node) && outage.from < to && from < outage.to
        })
    }
}

/// All faults; at most so many that they can be read.
pub(crate) fn faults(history: &History, rules: Rules) -> Vec<String> {
    let mut faults = Vec::new();
    let ledger = ledger::check(history, &mut faults);
    waits::check(history, rules, &mut faults);
    bodies::check(history, &ledger, rules, &mut faults);
    faults.extend(history.left.iter().map(|left| format!("left behind: {left}")));
    faults.extend(history.endless.iter().map(|key| format!("without an end: {key}")));
    faults.truncate(20);
    faults
}

/// All steps of the records that these faults name, or flights of theirs, to be read by
/// people.
pub(crate) fn story(history: &History, faults: &[String]) -> String {
    let faults = faults.join("\n");
    let of = |step: &&Step| match &step.deed {
        Deed::Granted { flight, .. } => {
            faults.contains(&format!("record {:x}", step.record))
                || faults.contains(&format!("{flight:?}"))
        }
        _ => false,
    };
    let told: HashSet<u64> = history.steps.iter().filter(of).map(|step| step.record).collect();
    let steps = history.steps.iter();
    let steps =
        steps.filter(|step| told.contains(&step.record) || matches!(step.deed, Deed::DataLost));
    let lines = steps.map(|step| {
        let (at, record, node) = (step.at, step.record, step.node.unwrap_or(99));
        format!("{at:>10} us, {record:x}, node {node}: {:?}\n", step.deed)
    });
    lines.collect()
}
