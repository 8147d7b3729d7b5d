//! The callers of a burst and of those that joined it, and what became of them.

use std::collections::HashSet;

use serde::Serialize;

use crate::report::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Waiting,
    /// The answer has begun.
    Receiving,
    Answered,
    /// The connection broke, or what came was an error.
    Lost,
}

#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) node: usize,
    pub(crate) stage: Stage,
    pub(crate) text: String,
    /// By its `cache-status`: another caller's run answered.
    pub(crate) shared: bool,
}

/// All callers of one kind, from the first until nobody waits any more.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) number: u64,
    pub(crate) began_ms: u64,
    pub(crate) callers: Vec<Caller>,
    pub(crate) runs: u64,
    pub(crate) takeovers: u64,
    pub(crate) open: bool,
}

/// The callers of one kind at one node.
#[derive(Debug, Serialize)]
pub(crate) struct Crowd {
    kind: Kind,
    /// When the round began.
    began_ms: u64,
    waiting: usize,
    receiving: usize,
    answered: usize,
    lost: usize,
    /// What the first of them has got so far.
    text: String,
}

impl Round {
    /// Adds a caller, to a new round where the last is over; its number.
    pub(crate) fn add(&mut self, now: u64, node: usize) -> usize {
        if !self.open {
            *self = Self { number: self.number + 1, began_ms: now, open: true, ..Self::default() };
        }
        let (stage, text) = (Stage::Waiting, String::new());
        self.callers.push(Caller { node, stage, text, shared: false });
        self.callers.len() - 1
    }

    pub(crate) fn count(&self, stage: Stage) -> usize {
        self.callers.iter().filter(|caller| caller.stage == stage).count()
    }

    pub(crate) fn shared(&self) -> usize {
        self.callers.iter().filter(|c| c.stage == Stage::Answered && c.shared).count()
    }

    /// Whether nobody waits any more; true once.
    pub(crate) fn is_over(&mut self) -> bool {
        let over = self.open
            && self.callers.iter().all(|c| matches!(c.stage, Stage::Answered | Stage::Lost));
        self.open &= !over;
        over
    }

    pub(crate) fn crowd(&self, kind: Kind, node: usize) -> Crowd {
        let here = || self.callers.iter().filter(|caller| caller.node == node);
        let count = |stage| here().filter(|caller| caller.stage == stage).count();
        Crowd {
            kind,
            began_ms: self.began_ms,
            waiting: count(Stage::Waiting),
            receiving: count(Stage::Receiving),
            answered: count(Stage::Answered),
            lost: count(Stage::Lost),
            text: here().map(|caller| caller.text.as_str()).next().unwrap_or_default().to_owned(),
        }
    }

    /// What became of them all, in plain words.
    pub(crate) fn outcome(&self, kind: Kind) -> String {
        let (all, answered) = (self.callers.len(), self.count(Stage::Answered));
        let answers = self.callers.iter().filter(|caller| caller.stage == Stage::Answered);
        let different = answers.map(|caller| &caller.text).collect::<HashSet<_>>().len();
        let runs = match self.runs {
            1 => "one run was enough".to_owned(),
            runs => format!("{runs} runs were begun"),
        };
        let same = match different {
            0 => return format!("None of the {all} callers got {}: {runs}.", kind.words()),
            1 => "all the same".to_owned(),
            different => format!("{different} different ones"),
        };
        let who = match all - answered {
            0 => format!("All {all} callers have {}", kind.words()),
            lost => format!(
                "{answered} of {all} callers have {}, {lost} lost {}",
                kind.words(),
                if lost == 1 { "its connection" } else { "their connections" },
            ),
        };
        format!("{who}, {same}: {runs}.")
    }
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Self::Answer => "their answer",
            Self::Stream => "the whole stream",
        }
    }
}
