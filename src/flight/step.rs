//! What a follower does about what it hears.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    error::FailureKind,
    id::FlightRef,
    store::{EndStatus, Joined, Pushed, StreamEnd},
    trace::TraceParent,
};

/// A flight that runs elsewhere, as a look has found it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sighting {
    pub(super) flight: FlightRef,
    /// What is left of its lease.
    pub(super) left: Duration,
    /// How many others waited before.
    pub(super) rank: u32,
    /// Pieces of its stream that are there.
    pub(super) pieces: u64,
    /// Where its owner is in its trace.
    pub(super) trace: Option<TraceParent>,
}

/// How the followed flight has failed, where a push tells that it has.
pub(super) fn failure_in(pushed: &Pushed, followed: FlightRef) -> Option<FailureKind> {
    match pushed {
        Pushed::Ended { flight, status, .. } if *flight == followed => match status {
            EndStatus::Failed => Some(FailureKind::OwnerFailed),
            EndStatus::TimedOut => Some(FailureKind::OwnerTimedOut),
            _ => None,
        },
        _ => None,
    }
}

/// What a follower does about something it heard.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing.
    Stay,
    /// Wait on: the followed flight stands so.
    Wait(Sighting),
    /// A piece came, or several from this one on.
    Piece { index: u64, piece: Option<Bytes> },
    /// The followed flight has ended, and had a stream.
    Ended(StreamEnd),
    /// It has ended well: its answer is in its stream.
    Streamed,
    /// It may have ended: its stream says so then.
    ReadOn,
    /// Wait on, though the record is lost.
    Lost,
    /// Deliver the followed flight's answer.
    Done(Option<Bytes>),
    /// Follow a newer owner's flight.
    Newer(Sighting),
    /// Take what a look found.
    Take(Joined),
    /// Ask what stands now, without asking to own.
    Look,
    /// Ask to own at once: the flight is over, or it is this process's turn.
    Elect,
    /// The lease has run out: ask to own, in line with the others.
    TakeOver,
}

impl Step {
    /// Whether it costs callers the answer that they wait for, who may have begun.
    pub(super) fn costs(&self, begun: bool) -> bool {
        match self {
            Self::Ended(end) => match end.status {
                EndStatus::Private | EndStatus::TooLarge => true,
                EndStatus::Failed => begun,
                _ => false,
            },
            Self::Take(_) => true,
            _ => false,
        }
    }

    /// Whether callers are to run alone, as what it tells of is not shared.
    pub(super) fn leaves_alone(&self) -> bool {
        matches!(
            self,
            Self::Ended(StreamEnd { status: EndStatus::Private | EndStatus::TooLarge, .. })
        )
    }

    pub(super) fn from_push(pushed: Pushed, followed: FlightRef) -> Self {
        match pushed {
            Pushed::Gap => Self::Look,
            Pushed::Watched { .. } => Self::Stay,
            Pushed::Piece { flight, index, piece } if flight == followed => {
                Self::Piece { index, piece }
            }
            Pushed::Piece { flight, .. } if flight.token < followed.token => Self::Stay,
            Pushed::Piece { .. } => Self::Look,
            Pushed::Ended { flight, .. } | Pushed::Released { flight }
                if flight.token < followed.token =>
            {
                Self::Stay
            }
            Pushed::Ended { flight, .. } | Pushed::Released { flight } if flight != followed => {
                Self::Look
            }
            Pushed::Released { .. } => Self::Elect,
            Pushed::Ended { flight, status: status @ EndStatus::Stopped, .. } => {
                Self::Take(Joined::Failed { flight, status, report: String::new() })
            }
            Pushed::Ended { status, seal: seal @ Some(_), .. } => {
                Self::Ended(StreamEnd { status, seal })
            }
            Pushed::Ended { status: EndStatus::Done, record, .. } => Self::Done(record),
            Pushed::Ended { status: status @ EndStatus::Failed, .. } => {
                Self::Ended(StreamEnd { status, seal: None })
            }
            Pushed::Ended {
                status: status @ (EndStatus::Private | EndStatus::TooLarge), ..
            } => Self::Ended(StreamEnd { status, seal: None }),
            Pushed::Ended { .. } => Self::Elect,
        }
    }

    pub(super) fn from_look(joined: Joined, followed: FlightRef) -> Self {
        match joined {
            // The look has renewed the mark of this process's wait.
            Joined::Follow { flight, left, rank, pieces, trace } => {
                let seen = Sighting { flight, left, rank, pieces, trace };
                if flight == followed { Self::Wait(seen) } else { Self::Newer(seen) }
            }
            Joined::Done { flight, streamed: true, .. } if flight == followed => Self::Streamed,
            // Nobody runs: ask to own, in line with the others.
            Joined::Lapsed => Self::TakeOver,
            // The data was lost: the owner, if it lives, owns again within a beat. If
            // not, the lease runs out as if nothing had been lost.
            Joined::Missing => Self::Lost,
            joined => Self::Take(joined),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{id::FlightId, store::Seal};

    fn pushes() -> impl Strategy<Value = Pushed> {
        let flight = (0_u64..4, 0_u128..3)
            .prop_map(|(token, id)| FlightRef { token, id: FlightId::from_u128(id) });
        let status = prop::sample::select(vec![
            EndStatus::Done,
            EndStatus::Failed,
            EndStatus::TimedOut,
            EndStatus::Private,
            EndStatus::TooLarge,
            EndStatus::Abandoned,
            EndStatus::Stopped,
        ]);
        let bytes = || proptest::option::of(Just(Bytes::from_static(b"x")));
        (0..4, flight, status, bytes(), bytes(), any::<u64>()).prop_map(
            |(kind, flight, status, record, proof, index)| match kind {
                0 => {
                    let seal = proof.map(|proof| Seal { pieces: index, proof });
                    Pushed::Ended { flight, status, record, seal }
                }
                1 => Pushed::Piece { flight, index, piece: record },
                2 => Pushed::Watched { flight },
                _ => Pushed::Released { flight },
            },
        )
    }

    proptest! {
        /// What is said of another flight ends nothing and gives nothing.
        #[test]
        fn pushes_of_other_flights_are_a_word_to_look_at_most(pushed in pushes()) {
            let followed = FlightRef { token: 2, id: FlightId::from_u128(1) };
            let of = match &pushed {
                Pushed::Ended { flight, .. }
                | Pushed::Piece { flight, .. }
                | Pushed::Watched { flight }
                | Pushed::Released { flight } => *flight,
                _ => followed,
            };
            let step = Step::from_push(pushed, followed);
            if of.token < followed.token {
                prop_assert!(matches!(step, Step::Stay), "{step:?}");
            } else if of != followed {
                prop_assert!(matches!(step, Step::Stay | Step::Look), "{step:?}");
            }
        }
    }
}
