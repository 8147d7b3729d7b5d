//! The tables of `SCALING.md`, as numbers.

use std::collections::BTreeMap;

const PAGE: &str = include_str!("../../SCALING.md");

/// The rows of the table after this mark: each a name and what stands beside it.
pub(crate) fn table(mark: &str) -> BTreeMap<&'static str, Vec<&'static str>> {
    let (_, rest) = PAGE.split_once(&format!("<!-- {mark} -->")).expect("a table on the page");
    let lines = rest.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells = rows.map(|line| line.trim_matches('|').split('|').map(str::trim));
    cells.map(|mut row| (row.next().unwrap_or_default(), row.collect())).collect()
}

/// A number as the page has it: `1,234`.
pub(crate) fn number(cell: &str) -> f64 {
    cell.replace(',', "").parse().unwrap_or_else(|_| panic!("{cell} is no number"))
}

/// So many bytes, and where they are with it, those of the answer or of the piece.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bytes {
    own: f64,
    with_body: bool,
}

impl Bytes {
    pub(crate) fn read(cell: &str) -> Self {
        let (own, with_body) = match cell.split_once(" + B") {
            Some((own, _)) => (own, true),
            None => (cell, false),
        };
        Self { own: number(own), with_body }
    }

    pub(crate) fn with(self, body: f64) -> f64 {
        self.own + if self.with_body { body } else { 0.0 }
    }
}
