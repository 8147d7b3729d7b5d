//! What happened, in plain words.

use std::collections::VecDeque;

use serde::Serialize;

/// The oldest lines go when there are more.
const MOST: usize = 200;

/// What kind of thing a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tone {
    /// What the one at the page did.
    You,
    /// As it goes every day.
    Run,
    /// Something was lost or is amiss.
    Fault,
    /// Another node goes on.
    Takeover,
    /// All are answered.
    Done,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) id: u64,
    pub(crate) at_ms: u64,
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

#[derive(Debug, Default)]
pub(crate) struct Story {
    lines: VecDeque<Line>,
    told: u64,
}

impl Story {
    pub(crate) fn tell(&mut self, at_ms: u64, tone: Tone, text: impl Into<String>) {
        self.told += 1;
        self.lines.push_back(Line { id: self.told, at_ms, tone, text: text.into() });
        if self.lines.len() > MOST {
            self.lines.pop_front();
        }
    }

    /// The lines after this one.
    pub(crate) fn after(&self, id: u64) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.id > id)
    }
}
