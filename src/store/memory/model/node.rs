//! A node: one process, and what its driver is about.

use super::wire::{Close, Id, Lost, Name, Push, With};
use crate::store::EndStatus;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Health {
    Up,
    /// For so many ticks.
    Paused(u8),
    Down,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Node {
    pub(super) health: Health,
    /// Was paused, and its time has not moved on since.
    pub(super) stalled: bool,
    /// Wait for the driver's flight.
    pub(super) callers: u8,
    /// Came after its outcome: they wait for the next driver.
    pub(super) queued: u8,
    pub(super) to_come: u8,
    /// Ticks that callers have waited, where they lose patience.
    pub(super) waited: u8,
    /// Ticks for which it does not reach the store.
    pub(super) cut: u8,
    /// Flight ids that were used up.
    pub(super) ids: u8,
    pub(super) driver: Option<Driver>,
}

/// The driver of one flight of this process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Driver {
    pub(super) waiter: Id,
    /// The store has a mark of its wait that no follower keeps: from a look.
    pub(super) marked: bool,
    pub(super) known: u8,
    /// The place among all granted flights of the newest that it followed or owned.
    pub(super) newest: u8,
    pub(super) failed: u8,
    /// The flight that it followed has failed, as a push tells.
    pub(super) failed_there: Option<Name>,
    pub(super) late: u8,
    /// Its callers have their outcome, or need none.
    pub(super) decided: bool,
    /// It hears the key's pushes.
    pub(super) subscribed: bool,
    pub(super) inbox: Vec<Push>,
    pub(super) body: Option<Body>,
    /// How much came of the flight that it followed last, should that go on.
    pub(super) inflow: Option<(Name, u8)>,
    pub(super) state: State,
}

/// What callers have begun with: the run it is of, and how much of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Body {
    pub(super) source: Id,
    pub(super) pieces: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum State {
    /// `join` is on its way.
    Asking {
        id: Id,
    },
    Own(Own),
    Follow(Follow),
    /// Reads a stored record.
    Fetching {
        flight: Name,
        tries: u8,
    },
    /// Reads a stored stream.
    Reading {
        flight: Name,
        next: u8,
        tries: u8,
    },
    /// Runs without a lease.
    Local {
        run: Run,
        why: Alone,
    },
}

/// Why a run has no lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Alone {
    /// The store is away.
    Away,
    /// It was lost, and its callers have begun with it.
    Lost,
    /// Its users have forgotten it: the key is another flight's.
    Forgotten,
}

/// The inner service at work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Run {
    pub(super) id: Id,
    pub(super) pieces: u8,
    pub(super) ticks: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Own {
    pub(super) flight: Name,
    /// Ticks for which the lease stands by our own clock.
    pub(super) deadline: u8,
    pub(super) waiters: u8,
    /// Ticks to the next renewal.
    pub(super) beat: Option<u8>,
    pub(super) missed: bool,
    pub(super) lost: Option<Lost>,
    pub(super) step: Step,
    pub(super) run: Option<Run>,
    /// Of a run that has ended.
    pub(super) made: u8,
    /// Its callers have begun with it.
    pub(super) live: bool,
    pub(super) feed: Feed,
}

/// What others get while the run goes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Feed {
    /// Pieces that the store has.
    pub(super) stored: u8,
    pub(super) begun: bool,
    pub(super) busy: bool,
    /// Until time moves on.
    pub(super) rests: bool,
    pub(super) over: bool,
}

/// What an owner is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Step {
    /// Inner runs. In the other steps it is not polled, or over.
    Running,
    Abandoning,
    Reclaiming {
        id: Id,
    },
    /// Whether the run goes on without a lease.
    Wondering(Option<Doubt>),
    Finishing(Ending),
    /// The store has lost the record of a run that has ended: asks for it anew.
    Again {
        id: Id,
    },
}

/// A newer flight that may be nobody's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Doubt {
    pub(super) flight: Name,
    /// Ticks until its lease is over, if it is not renewed.
    pub(super) left: u8,
    /// Until time moves on.
    pub(super) rests: bool,
}

/// What the store is told of an end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ending {
    pub(super) status: EndStatus,
    pub(super) wanted: bool,
    pub(super) with: With,
    /// How often it was told, but for those times when it was not heard.
    pub(super) tries: u8,
    /// It was not heard the last time.
    pub(super) unheard: bool,
    /// It was not answered once, and may have been heard.
    pub(super) doubted: bool,
    /// There is an answer, for which the flight is owned again where it is lost.
    pub(super) offer: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Follow {
    pub(super) flight: Name,
    /// Of the attempt that was told to follow: watches carry it.
    pub(super) id: Id,
    /// Ticks until the lease that is followed is over.
    pub(super) due: u8,
    /// The record was missing once.
    pub(super) lost: bool,
    /// It has let others take over first, once.
    pub(super) patient: bool,
    /// In line to take over.
    pub(super) in_line: bool,
    /// Ticks to the next watch.
    pub(super) beat: Option<u8>,
    pub(super) missed: bool,
    /// The piece that is wanted next.
    pub(super) next: u8,
    pub(super) step: Wait,
}

impl Follow {
    pub(super) fn new(flight: Name, id: Id, due: u8, beat: u8, next: u8) -> Self {
        let (beat, step) = (Some(beat), Wait::Waiting);
        let (lost, patient, in_line, missed) = Default::default();
        Self { flight, id, due, lost, patient, in_line, beat, missed, next, step }
    }
}

/// What a follower is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Wait {
    Waiting,
    Looking {
        /// After a push that told of an answer, which is not there.
        ended: bool,
    },
    /// Whether the flight runs on that a push has told the end of.
    Confirming(Close),
    /// Asks for the record that a push has told of.
    Fetching {
        tries: u8,
    },
    Reading {
        goal: Goal,
        tries: u8,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Goal {
    /// So many pieces.
    Enough(u8),
    /// All before an end that was heard of.
    End(Close),
    /// A stream that is known to have ended.
    Whole,
}

/// What callers are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// A whole answer of this run; of this flight, where it came from elsewhere.
    Whole(Id, Option<Name>),
    Failed(Option<Name>),
    Alone,
    Broken,
}

impl Ending {
    pub(super) fn new(status: EndStatus, wanted: bool) -> Self {
        let offer = status == EndStatus::Done;
        let (unheard, doubted) = (false, false);
        Self { status, wanted, with: With::Nothing, tries: 0, unheard, doubted, offer }
    }
}

impl Node {
    pub(super) fn new(callers: u8) -> Self {
        Self {
            health: Health::Up,
            stalled: false,
            callers: 0,
            queued: 0,
            to_come: callers,
            waited: 0,
            cut: 0,
            ids: 0,
            driver: None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.health == Health::Up
    }

    pub(super) fn own(&self) -> Option<&Own> {
        match &self.driver.as_ref()?.state {
            State::Own(own) => Some(own),
            _ => None,
        }
    }

    pub(super) fn follow(&self) -> Option<&Follow> {
        match &self.driver.as_ref()?.state {
            State::Follow(follow) => Some(follow),
            _ => None,
        }
    }

    pub(super) fn run(&self) -> Option<&Run> {
        match &self.driver.as_ref()?.state {
            State::Own(Own { run, .. }) => run.as_ref(),
            State::Local { run, .. } => Some(run),
            _ => None,
        }
    }

    pub(super) fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.driver.as_mut()?.state {
            State::Own(Own { run, .. }) => run.as_mut(),
            State::Local { run, .. } => Some(run),
            _ => None,
        }
    }
}
