//! What a follower does about what it hears: mirrors `flight/step.rs`.

use super::{
    rules::{Mutant, Rules},
    wire::{Close, Found, Name, Push, Tag},
};
use crate::store::EndStatus;

/// What a follower does about something it heard.
pub(super) enum Heard {
    Stay,
    Wait {
        left: u8,
        pieces: u8,
    },
    Piece {
        index: u8,
        piece: Option<Tag>,
    },
    Ended(Close),
    Streamed,
    Lost,
    Done(Option<Name>),
    Newer {
        flight: Name,
        left: u8,
        pieces: u8,
    },
    Take(Found),
    /// Whether after a push that told of an answer, which is not there.
    Look {
        ended: bool,
    },
    Elect,
    TakeOver,
}

impl Heard {
    pub(super) fn from_push(push: Push, followed: Name, rules: &Rules) -> Self {
        let about = match push {
            Push::Ended { flight, .. } | Push::Piece { flight, .. } | Push::Released(flight) => {
                flight
            }
            Push::Gap => return Self::Look { ended: false },
        };
        if about.token < followed.token && !rules.is(Mutant::OlderPush) {
            return Self::Stay;
        }
        if about != followed && !rules.is(Mutant::OlderPush) {
            return Self::Look { ended: false };
        }
        match push {
            Push::Piece { index, piece, .. } => Self::Piece { index, piece },
            Push::Ended { status, seal: Some(seal), .. } => Self::Ended((status, Some(seal))),
            Push::Ended { status: EndStatus::Done, record, .. } => Self::Done(record),
            Push::Ended {
                status: status @ (EndStatus::Failed | EndStatus::Private | EndStatus::TooLarge),
                ..
            } => Self::Ended((status, None)),
            _ => Self::Elect,
        }
    }

    pub(super) fn from_look(found: Found, followed: Name) -> Self {
        match found {
            Found::Follow { flight, left, pieces } if flight == followed => {
                Self::Wait { left, pieces }
            }
            Found::Done { flight, streamed: true, .. } if flight == followed => Self::Streamed,
            Found::Follow { flight, left, pieces } => Self::Newer { flight, left, pieces },
            Found::Lapsed => Self::TakeOver,
            Found::Missing => Self::Lost,
            found => Self::Take(found),
        }
    }
}
