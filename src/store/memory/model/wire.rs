//! What goes between nodes and the store, in a form that can be compared.

use super::conduct::Voice;
use crate::{
    id::{FlightId, FlightRef, WaiterId},
    store::{EndStatus, Loss},
};

/// The name of a flight or of a wait. Which one it is says nothing, only where it is the
/// same: a fingerprint takes the names in the order in which it comes upon them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Id(pub(super) u8);

impl Id {
    /// Never given to anybody.
    pub(super) const NONE: Self = Self(0);

    pub(super) fn flight(self) -> FlightId {
        FlightId::from_u128(self.0.into())
    }

    pub(super) fn waiter(self) -> WaiterId {
        WaiterId::from_u128(self.0.into())
    }
}

impl From<FlightId> for Id {
    fn from(id: FlightId) -> Self {
        Self(byte(id.as_u128()))
    }
}

/// A flight: its token and its id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Name {
    pub(super) token: u8,
    pub(super) id: Id,
}

impl Name {
    pub(super) fn full(self) -> FlightRef {
        FlightRef { token: self.token.into(), id: self.id.flight() }
    }
}

pub(super) fn byte<T: TryInto<u8>>(number: T) -> u8 {
    number.try_into().unwrap_or(u8::MAX)
}

impl From<FlightRef> for Name {
    fn from(flight: FlightRef) -> Self {
        Self { token: byte(flight.token), id: flight.id.into() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Purpose {
    Own,
    Look,
    Watch,
}

/// What goes along with `finish`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum With {
    Nothing,
    Record,
    Seal(u8),
}

/// A request to the store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Ask {
    Join { id: Id, waiter: Id, known: u8, purpose: Purpose },
    Renew(Name),
    Release { id: Id, token: Option<u8>, status: EndStatus },
    Leave(Id),
    Finish { flight: Name, status: EndStatus, with: With },
    Abandon(Name),
    Append { flight: Name, first: u8, to: u8 },
    Read { flight: Name, from: u8 },
    Fetch,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Lost {
    Missing,
    Forgotten,
    Superseded,
    /// By the owner's own clock.
    Silence,
}

impl From<Loss> for Lost {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Missing => Self::Missing,
            Loss::Forgotten => Self::Forgotten,
            Loss::Superseded { .. } => Self::Superseded,
            Loss::Stopped => unreachable!("nobody stops flights here"),
        }
    }
}

/// An answer to `join`. A record is the name of the flight that it is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Found {
    Own(u8),
    Follow { flight: Name, left: u8, pieces: u8 },
    Done { flight: Name, streamed: bool, record: Option<Name> },
    Failed(Name),
    Private,
    Ended,
    Quarantined,
    Lapsed,
    Missing,
}

/// A piece of a stream: the id of its flight, and its number.
pub(super) type Tag = (Id, u8);
/// How a stream ends, and how many pieces it has.
pub(super) type Close = (EndStatus, Option<u8>);

/// Whether such an end costs callers their answer, who may have begun.
pub(super) fn costs(status: EndStatus, begun: bool) -> bool {
    match status {
        EndStatus::Private | EndStatus::TooLarge => true,
        EndStatus::Failed => begun,
        _ => false,
    }
}

/// An answer of the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Said {
    Found(Found),
    Renewed(u8),
    Over,
    Lost(Lost),
    Accepted,
    Wanted,
    Gap(u8),
    Pieces { first: u8, pieces: Vec<Tag>, end: Option<Close> },
    Record(Option<Name>),
    Next(u8),
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Push {
    Ended { flight: Name, status: EndStatus, record: Option<Name>, seal: Option<u8> },
    Piece { flight: Name, index: u8, piece: Option<Tag> },
    Released(Name),
    Gap,
}

/// Which of a node's lines a request went down; each holds one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Lane {
    /// The driver's session.
    Driver,
    /// The keeper: a renewal or a watch.
    Beat,
    /// The publisher's session.
    Feed,
    /// The keeper: something to be said once, by whomever.
    Errand,
}

/// A request on its way, or its answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Call {
    pub(super) node: u8,
    pub(super) lane: Lane,
    pub(super) ask: Ask,
    pub(super) said: Option<Said>,
    /// Ticks since it was sent.
    pub(super) age: u8,
    /// Nobody waits for the answer any more.
    pub(super) orphan: bool,
    /// By a fault: it may arrive much later. Any other arrives before time moves on.
    pub(super) late: bool,
}

impl From<Lane> for Voice {
    /// A node of the model has one driver at a time.
    fn from(lane: Lane) -> Self {
        match lane {
            Lane::Driver => Self::Driver(0),
            Lane::Feed => Self::Feed,
            Lane::Beat | Lane::Errand => Self::Keeper,
        }
    }
}
