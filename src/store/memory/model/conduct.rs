//! How the drivers of one process may behave towards the store: one table of rules, to
//! which the node rules of this model and the real drivers are both held.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    moves::{self, Move},
    wire::{Ask, Id, Name, Purpose, Push, Said, With},
};

/// Who in a process speaks to the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Voice {
    /// The driver with this number.
    Driver(u32),
    /// What it has for its stream.
    Feed,
    Keeper,
}

/// Something that goes between a process and the store.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// With so many callers in the process.
    Asked(Voice, Ask, u8),
    /// The answer, or that there is none.
    Heard(Voice, Ask, Option<Said>),
    Pushed(Voice, Push),
    /// That somebody has come to wait for a flight.
    Watched(Name),
}

/// A flight that this process was granted.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Held {
    pub(super) finished: bool,
    pub(super) fed: bool,
    pub(super) renewed: bool,
    pub(super) abandoned: bool,
    pub(super) released: bool,
    /// Somebody elsewhere is known to wait.
    pub(super) wanted: bool,
    /// The store has lost it.
    pub(super) missing: bool,
    /// It was asked for again.
    pub(super) reclaimed: bool,
    /// For a run that had ended.
    pub(super) again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Free,
    Owns(Name),
    /// Had an answer when the store had lost the record: may own again for it.
    Ended(Name),
    Follows(Name),
    /// Takes an answer that is stored.
    Takes,
    /// Has no more to ask.
    Gone,
}

#[derive(Debug)]
pub(super) struct Driver {
    pub(super) mode: Mode,
    pub(super) known: u8,
    pub(super) waiter: Option<Id>,
    /// A look or a watch has found this flight, or its answer.
    pub(super) found: Option<Name>,
    /// It has lost its lease, and seen a newer flight.
    pub(super) doubts: bool,
    /// It took its wait back.
    pub(super) renamed: bool,
    pub(super) asks: bool,
    pub(super) finishes: u8,
    /// Times in a row that no end was heard.
    pub(super) unheard: u8,
    /// An end of its flight may have been heard.
    pub(super) doubted: bool,
    pub(super) last: String,
}

/// What one process has said and heard.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    pub(super) drivers: BTreeMap<u32, Driver>,
    pub(super) held: BTreeMap<(u8, u8), Held>,
    /// Flight ids of attempts.
    pub(super) used: BTreeSet<u8>,
    /// Waits that were ended.
    pub(super) left: BTreeSet<u8>,
    /// Waits that owners left marks of, and that nobody keeps.
    pub(super) marks: BTreeSet<u8>,
    /// What the keeper has asked and not heard of.
    pub(super) keeper_asks: u8,
    pub(super) moves: BTreeSet<Move>,
}

const AT_ONCE: &str = "a driver asks one thing at a time";
const GONE: &str = "a driver that is done, or has no store, asks nothing";
const NEW_ID: &str = "each attempt to own has a new flight id";
const NEW_WAIT: &str = "nobody waits under a name whose wait was ended";
const ONE_WAIT: &str = "a driver keeps the name of its wait until it takes it back, and then not";
const KNOWN: &str = "what a driver knows never goes down";
pub(super) const ABOVE: &str = "a grant is above all that its driver knows";
const LOOK: &str = "who looks follows for somebody, or has lost its lease";
const WATCH: &str = "who watches has been told to follow";
pub(super) const NOT_ITS: &str = "a process speaks of flights that it was granted";
const FENCED: &str = "nothing more is said where the store has said that it is over";
const LET_GO: &str = "nothing is said of a flight once it is let go";
const UNASKED: &str = "no answer is sent that nobody is known to want";
const TOO_OFTEN: &str = "an end is told a few times at most";
const ABANDON: &str = "a run that somebody here wants is not given up, and none is twice";
const READS: &str = "who reads follows, or was told that there is something";
const LEFT_BEHIND: &str = "each flight that was granted is ended or let go";
const MARKED: &str = "who does not follow takes the mark of its look away";

/// How often an end is told at most, where it is heard, and how often where it is not.
const TRIES: u8 = 4;
const UNHEARD: u8 = 12;

pub(super) fn key(flight: Name) -> (u8, u8) {
    (flight.token, flight.id.0)
}

impl Conduct {
    pub(super) fn take(&mut self, event: &Event) -> Result<(), &'static str> {
        match event {
            Event::Asked(Voice::Driver(n), ask, callers) => self.driver_asks(*n, *ask, *callers),
            Event::Asked(voice, ask, _) => {
                self.keeper_asks += u8::from(*voice == Voice::Keeper);
                self.asks(*voice == Voice::Keeper, *ask)
            }
            Event::Heard(Voice::Driver(n), ask, said) => {
                self.hears(false, *ask, said.as_ref());
                self.driver_hears(*n, *ask, said.as_ref())
            }
            Event::Heard(voice, ask, said) => {
                let keeper = u8::from(*voice == Voice::Keeper);
                self.keeper_asks = self.keeper_asks.saturating_sub(keeper);
                self.hears(*voice == Voice::Keeper, *ask, said.as_ref());
                Ok(())
            }
            Event::Pushed(Voice::Driver(n), push) => {
                if let Some(driver) = self.drivers.get_mut(n) {
                    driver.last = moves::after_push(*push);
                }
                Ok(())
            }
            Event::Watched(flight) => {
                if let Some(held) = self.held.get_mut(&key(*flight)) {
                    held.wanted = true;
                }
                Ok(())
            }
            Event::Pushed(..) => Ok(()),
        }
    }

    /// At the end of all: nothing is left that others would have to wait for.
    pub(super) fn end(&self) -> Result<(), &'static str> {
        let over = |held: &Held| held.finished || held.abandoned || held.released;
        // What is over in the store need not be let go, nor can be.
        let ends = |held: &Held| over(held) || held.missing || held.renewed;
        if !self.marks.is_empty() {
            return Err(MARKED);
        }
        self.held.values().all(ends).then_some(()).ok_or(LEFT_BEHIND)
    }

    fn held(&mut self, flight: Name) -> Result<&mut Held, &'static str> {
        let held = self.held.get_mut(&key(flight)).ok_or(NOT_ITS)?;
        if held.released { Err(LET_GO) } else { Ok(held) }
    }

    fn driver_asks(&mut self, n: u32, ask: Ask, callers: u8) -> Result<(), &'static str> {
        let driver = self.drivers.entry(n).or_insert_with(|| Driver {
            mode: Mode::Free,
            known: 0,
            waiter: None,
            found: None,
            doubts: false,
            renamed: false,
            asks: false,
            finishes: 0,
            unheard: 0,
            doubted: false,
            last: "start".into(),
        });
        if std::mem::replace(&mut driver.asks, true) {
            return Err(AT_ONCE);
        }
        if driver.mode == Mode::Gone {
            return Err(GONE);
        }
        self.moves.insert((driver.last.clone(), moves::asked(ask)));
        match ask {
            Ask::Join { id, waiter, known, purpose } => {
                let same = driver.waiter.is_none_or(|last| last == waiter);
                if same == std::mem::take(&mut driver.renamed) {
                    return Err(ONE_WAIT);
                }
                if known < driver.known {
                    return Err(KNOWN);
                }
                (driver.waiter, driver.known) = (Some(waiter), known);
                if self.left.contains(&waiter.0) {
                    return Err(NEW_WAIT);
                }
                if purpose == Purpose::Own {
                    // With the run that it has, once, where the store has lost the record.
                    let ended = matches!(driver.mode, Mode::Ended(_));
                    let lost = match driver.mode {
                        Mode::Owns(flight) | Mode::Ended(flight) => self.held.get_mut(&key(flight)),
                        _ => None,
                    };
                    let reclaims = lost.is_some_and(|held| {
                        let may = held.missing && (!held.finished || ended) && !held.released;
                        may && !std::mem::replace(&mut held.reclaimed, true)
                    });
                    if ended && !reclaims {
                        return Err(GONE);
                    }
                    if !reclaims {
                        (driver.mode, driver.doubts) = (Mode::Free, false);
                        // Who follows keeps it.
                        self.marks.remove(&waiter.0);
                    }
                    return if self.used.insert(id.0) { Ok(()) } else { Err(NEW_ID) };
                }
                match driver.mode {
                    Mode::Follows(_) if callers > 0 => Ok(()),
                    Mode::Owns(_) => Ok(()),
                    _ => Err(LOOK),
                }
            }
            Ask::Read { flight, .. } => match driver.mode {
                Mode::Follows(followed) if followed == flight => Ok(()),
                Mode::Takes => Ok(()),
                Mode::Follows(_) if driver.found == Some(flight) => Ok(()),
                _ => Err(READS),
            },
            Ask::Fetch => match driver.mode {
                Mode::Follows(_) | Mode::Takes => Ok(()),
                _ => Err(READS),
            },
            Ask::Finish { flight, with, .. } => {
                if driver.mode != Mode::Owns(flight) {
                    return Err(NOT_ITS);
                }
                if driver.finishes >= TRIES || driver.unheard >= UNHEARD {
                    return Err(TOO_OFTEN);
                }
                let held = self.held(flight)?;
                if held.finished || held.abandoned {
                    return Err(FENCED);
                }
                if with != With::Nothing && !held.wanted { Err(UNASKED) } else { Ok(()) }
            }
            Ask::Abandon(flight) => {
                let owns = driver.mode == Mode::Owns(flight);
                let held = self.held(flight)?;
                if callers > 0 || held.finished || held.abandoned {
                    return Err(ABANDON);
                }
                if owns { Ok(()) } else { Err(NOT_ITS) }
            }
            _ => Err(NOT_ITS),
        }
    }

    /// The keeper, or the feed.
    fn asks(&mut self, keeper: bool, ask: Ask) -> Result<(), &'static str> {
        match ask {
            Ask::Renew(flight) => match self.held(flight)?.renewed {
                true if keeper => Err(FENCED),
                _ => Ok(()),
            },
            Ask::Append { flight, .. } => match self.held(flight)? {
                Held { fed: true, .. } | Held { finished: true, .. } => Err(FENCED),
                Held { wanted: false, .. } => Err(UNASKED),
                _ => Ok(()),
            },
            Ask::Join { waiter, .. } => {
                if self.left.contains(&waiter.0) {
                    return Err(NEW_WAIT);
                }
                let mut drivers = self.drivers.values();
                let follows = |driver: &Driver| {
                    let mode = matches!(driver.mode, Mode::Follows(_) | Mode::Takes);
                    mode && driver.waiter == Some(waiter)
                };
                if drivers.any(follows) { Ok(()) } else { Err(WATCH) }
            }
            Ask::Release { id, .. } => {
                if !self.used.contains(&id.0) {
                    return Err(NOT_ITS);
                }
                let held = self.held.iter_mut().filter(|((_, of), _)| *of == id.0);
                held.for_each(|(_, held)| held.released = true);
                Ok(())
            }
            Ask::Leave(waiter) => {
                self.left.insert(waiter.0);
                self.marks.remove(&waiter.0);
                Ok(())
            }
            _ => Err(NOT_ITS),
        }
    }
}
