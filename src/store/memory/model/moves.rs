//! What a driver does next after what it heard: the same for the node rules and the real
//! drivers.

use super::wire::{Ask, Found, Push, Said, With};

/// What a driver did next after something it heard.
pub(super) type Move = (String, String);

/// What is asked, without names and numbers.
pub(super) fn asked(ask: Ask) -> String {
    match ask {
        Ask::Join { purpose, .. } => format!("{purpose:?}"),
        Ask::Finish { status, with, .. } => match with {
            With::Seal(_) => format!("Finish {status:?} Seal"),
            with => format!("Finish {status:?} {with:?}"),
        },
        ask => first_word(&ask),
    }
}

/// What was heard, without names and numbers.
pub(super) fn after(ask: Ask, said: Option<&Said>) -> String {
    let said = match said {
        None => "nothing".into(),
        Some(Said::Found(Found::Done { streamed, record, .. })) => {
            format!(
                "Done {}",
                if *streamed {
                    "streamed"
                } else if record.is_some() {
                    "here"
                } else {
                    "there"
                }
            )
        }
        Some(Said::Found(found)) => first_word(&found),
        Some(Said::Record(record)) => format!("Record {}", record.is_some()),
        Some(Said::Pieces { end, pieces, .. }) => {
            format!(
                "{} {:?}",
                if pieces.is_empty() { "none" } else { "some" },
                end.map(|end| end.0)
            )
        }
        Some(said) => first_word(&said),
    };
    format!("{} -> {said}", asked(ask))
}

pub(super) fn after_push(push: Push) -> String {
    match push {
        Push::Ended { status, seal, .. } => format!("push Ended {status:?} {}", seal.is_some()),
        push => format!("push {}", first_word(&push)),
    }
}

fn first_word(said: &impl std::fmt::Debug) -> String {
    format!("{said:?}").split([' ', '(']).next().unwrap_or_default().to_owned()
}
