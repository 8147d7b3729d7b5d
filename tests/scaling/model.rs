//! The formulas of `SCALING.md`, over its tables.

use std::{collections::BTreeMap, ops::Add};

use crate::page::{Bytes, number, table};

/// What something costs the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) scripts: f64,
    /// All other commands, those in scripts among them.
    pub(crate) commands: f64,
    pub(crate) bytes_in: f64,
    pub(crate) bytes_out: f64,
    pub(crate) micros: f64,
}

impl Cost {
    pub(crate) fn times(self, n: f64) -> Self {
        Self {
            scripts: self.scripts * n,
            commands: self.commands * n,
            bytes_in: self.bytes_in * n,
            bytes_out: self.bytes_out * n,
            micros: self.micros * n,
        }
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            scripts: self.scripts + other.scripts,
            commands: self.commands + other.commands,
            bytes_in: self.bytes_in + other.bytes_in,
            bytes_out: self.bytes_out + other.bytes_out,
            micros: self.micros + other.micros,
        }
    }
}

/// A row of the table of steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    scripts: f64,
    commands: f64,
    bytes_in: Bytes,
    bytes_out: Bytes,
    heard: Bytes,
    micros: f64,
}

impl Step {
    /// With an answer or a piece of so many bytes, that so many processes hear of.
    pub(crate) fn cost(&self, body: f64, hearers: f64) -> Cost {
        Cost {
            scripts: self.scripts,
            commands: self.commands,
            bytes_in: self.bytes_in.with(body),
            bytes_out: self.bytes_out.with(body) + hearers * self.heard.with(body),
            micros: self.micros,
        }
    }
}

/// A number of the table of constants.
pub(crate) fn constant(name: &str) -> f64 {
    number(table("constants")[name][0])
}

pub(crate) struct Steps(BTreeMap<&'static str, Step>);

impl Steps {
    pub(crate) fn read() -> Self {
        let row = |(name, cells): (&'static str, Vec<&str>)| {
            let step = Step {
                scripts: number(cells[0]),
                commands: number(cells[1]),
                bytes_in: Bytes::read(cells[2]),
                bytes_out: Bytes::read(cells[3]),
                heard: Bytes::read(cells[4]),
                micros: number(cells[5]),
            };
            (name, step)
        };
        Self(table("steps").into_iter().map(row).collect())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Step> {
        self.0.get(name)
    }

    fn get(&self, name: &str) -> &Step {
        self.find(name).unwrap_or_else(|| panic!("no step {name}"))
    }

    /// One that nobody hears of, and that moves no answer.
    pub(crate) fn one(&self, name: &str) -> Cost {
        self.get(name).cost(0.0, 0.0)
    }

    /// A flight whose answer is given out whole: as it is stored it has `stored` bytes, and
    /// `others` processes follow it, of all flights this share is followed at all.
    pub(crate) fn whole(&self, stored: f64, others: f64, followed: f64) -> Cost {
        let (end, fetch) = match stored {
            ..=4096.0 => ("end, followed", 0.0),
            ..=20_480.0 => ("end, over 4 KiB", 0.0),
            _ => ("end, over 20 KiB", others),
        };
        let alone = if stored <= 3072.0 { "end" } else { "end, kept" };
        self.begin(others, followed)
            + self.get(alone).cost(stored, 0.0).times(1.0 - followed)
            + self.get(end).cost(stored, 0.0).times(followed)
            + self.heard(end, stored).times(others)
            + self.get("fetch").cost(stored, 0.0).times(fetch)
    }

    /// A flight whose answer is given out as it comes: `bytes` as they are stored, sent in so
    /// many steps, of which followers find this share there when they come.
    pub(crate) fn streamed(
        &self,
        (bytes, sent, there): (f64, f64, f64),
        others: f64,
        followed: f64,
    ) -> Cost {
        let step = Cost { bytes_in: bytes / sent, ..self.one("append") };
        let base = self.one("append").bytes_in;
        let appends = Cost { bytes_in: base + step.bytes_in, ..step }.times(sent);
        let pushed = self.heard("append", 0.0).times(sent) + out(bytes * (1.0 - there));
        let read = self.get("read").cost(bytes * there, 0.0);
        self.begin(others, followed)
            + self.one("listen")
            + self.one("end, kept").times(1.0 - followed)
            + (appends + self.one("seal")).times(followed)
            + (pushed + self.heard("seal", 0.0) + read).times(others)
            // What fell between the first one's `join` and its subscription.
            + self.one("look").times(followed)
    }

    /// What all flights begin with that last longer than 10 ms.
    fn begin(&self, others: f64, followed: f64) -> Cost {
        self.one("own")
            + self.one("hear")
            + self.one("follow").times(others)
            + self.get("first").cost(0.0, 1.0).times(followed)
    }

    fn heard(&self, step: &str, body: f64) -> Cost {
        out(self.get(step).heard.with(body))
    }

    /// One beat of a flight whose answer comes whole.
    pub(crate) fn beat(&self, others: f64, followed: f64) -> Cost {
        self.one("renew").times(1.0 - followed)
            + self.one("renew, followed").times(followed)
            + self.one("watch").times(others)
    }
}

fn out(bytes: f64) -> Cost {
    Cost { bytes_out: bytes, ..Cost::default() }
}
