//! What a measurement says, a line each: read by `report`.

use std::fmt;

/// A goal, and what was measured.
#[derive(Debug)]
pub struct Goal<'a> {
    pub group: &'a str,
    pub what: &'a str,
    /// What it is measured in, and against whom.
    pub of: &'a str,
    pub most: Bound,
    pub measured: f64,
    /// What lies behind the ratio.
    pub detail: String,
}

#[derive(Clone, Copy, Debug)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Exactly(f64),
    /// Told, and no goal.
    None,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "<= {most}"),
            Self::AtLeast(least) => write!(f, ">= {least}"),
            Self::Exactly(value) => write!(f, "= {value}"),
            Self::None => f.write_str("-"),
        }
    }
}

impl Goal<'_> {
    pub fn print(&self) {
        let Self { group, what, of, most, measured, detail } = self;
        println!("goal\t{group}\t{what}\t{of}\t{most}\t{measured}\t{detail}");
    }
}

/// A bar, or a point of a line, of a plot.
pub fn point(plot: &str, series: &str, x: impl fmt::Display, value: f64) {
    println!("point\t{plot}\t{series}\t{x}\t{value}");
}
