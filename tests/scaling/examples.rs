//! The worked examples: what the formulas make of these loads is what stands on the page.

use std::collections::BTreeMap;

use crate::{
    model::{Steps, constant},
    page::{Bytes, number, table},
};

/// A column of the table of loads.
struct Load {
    processes: f64,
    requests: f64,
    duplicates: f64,
    seconds: f64,
    /// Of an answer, or of a second of it where it is given out as it comes.
    bytes: f64,
    groups: f64,
    masters: f64,
}

/// The default settings.
const BEAT: f64 = 1.0;
const RETENTION: f64 = 30.0;

impl Load {
    fn read(column: usize) -> Self {
        let loads = table("loads");
        let of = |row: &str| number(loads[row][column].trim_end_matches(" %"));
        Self {
            processes: of("processes"),
            requests: of("requests a second"),
            duplicates: of("of them find their flight in the air") / 100.0,
            seconds: of("seconds that a run takes"),
            bytes: of("bytes of an answer"),
            groups: of("groups a second"),
            masters: of("masters"),
        }
    }

    /// What they come to, as the page writes it.
    fn figures(&self) -> BTreeMap<&'static str, String> {
        let (steps, memory) = (Steps::read(), table("memory"));
        let taken = |name: &str, bytes: f64| Bytes::read(memory[name][0]).with(bytes);
        let Self { processes, requests, duplicates, seconds, bytes, groups, masters } = *self;
        let flights = requests * (1.0 - duplicates);
        // Callers beyond the first of a flight come at random to any process.
        let more = duplicates / (1.0 - duplicates);
        let others = (processes - 1.0) * (1.0 - (-more / processes).exp());
        let followed = 1.0 - (-more * (processes - 1.0) / processes).exp();
        let streamed = groups > 0.0;
        // Who follows comes at any moment, half way through on an average.
        let (there, beats) = (0.5, (seconds / BEAT).floor());
        let sent = 1.0 + groups.min(100.0) * seconds * (1.0 - there);
        let stored = bytes + if streamed { constant("piece") * sent } else { constant("answer") };
        let flight = match streamed {
            true => steps.streamed((stored, sent, there), others, followed),
            false => steps.whole(stored, others, followed),
        };
        let owner = if streamed { "renew, streamed" } else { "renew, followed" };
        let beat = steps.one("renew").times(1.0 - followed)
            + steps.one(owner).times(followed)
            + steps.one("watch").times(others * there);
        let counter = if masters > 1.0 { steps.one("count") } else { Default::default() };
        let all = (flight + beat.times(beats) + counter).times(flights);
        let kept = match streamed {
            true => {
                let pieces = taken("a stream", 0.0) + taken("a piece", stored / sent) * sent;
                followed * pieces
            }
            false if stored <= 3072.0 => taken("an answer", stored),
            false => followed * taken("an answer", stored),
        };
        // The owner listens until somebody comes, and each who follows does.
        let waits = followed * taken("the first wait", 0.0)
            + (others - followed).max(0.0) * taken("each more wait", 0.0)
            + (1.0 + others) * taken("the first that listens", 0.0);
        let (air, record) = (flights * seconds, taken("a record", 0.0));
        let half = if streamed { air * kept * there } else { 0.0 };
        let lies = air * (record + waits) + half + flights * RETENTION * (record + kept);
        let links = number(table("connections")["one server"][0]) * processes;
        let moved =
            all.bytes_in * constant("us for a KB in") + all.bytes_out * constant("us for a KB out");
        let load = (all.micros + moved / 1e3) / 1e6 / masters;
        BTreeMap::from([
            ("flights a second", round(flights)),
            ("flights in the air", round(air)),
            ("processes that follow a flight, on an average", format!("{others:.2}")),
            ("flights that anybody follows", format!("{:.0} %", followed * 100.0)),
            ("scripts a second", round(all.scripts)),
            ("all other commands a second", round(all.commands)),
            ("MB a second to the server", format!("{:.1}", all.bytes_in / 1e6)),
            ("MB a second from it", format!("{:.1}", all.bytes_out / 1e6)),
            ("MB in its memory", round(lies / 1e6)),
            ("connections to each master", round(links)),
            ("of a core of each master", format!("{:.0} %", load * 100.0)),
        ])
    }
}

/// To two digits.
fn round(n: f64) -> String {
    let digits = 10_f64.powf(n.abs().max(1.0).log10().floor() - 1.0);
    let n = ((n / digits).round() * digits).round() as u64;
    let text = n.to_string();
    let head = text.len() % 3;
    let mut parts: Vec<&str> = (head..text.len()).step_by(3).map(|at| &text[at..at + 3]).collect();
    if head > 0 {
        parts.insert(0, &text[..head]);
    }
    parts.join(",")
}

#[test]
fn the_examples_are_what_the_formulas_say() {
    let page = table("examples");
    let columns = table("loads")["processes"].len();
    let figures: Vec<_> = (0..columns).map(|column| Load::read(column).figures()).collect();
    for row in figures[0].keys() {
        let cells: Vec<_> = figures.iter().map(|figures| figures[row].as_str()).collect();
        println!("| {row} | {} |", cells.join(" | "));
    }
    for (row, cells) in &page {
        let told: Vec<_> = figures.iter().map(|figures| figures[row].as_str()).collect();
        assert_eq!(*cells, told, "{row}");
    }
    assert_eq!(page.len(), figures[0].len());
}

#[test]
fn a_server_is_full_where_the_steps_say() {
    let steps = Steps::read();
    for (row, cells) in table("full") {
        let micros: f64 = row.split(" + ").map(|step| steps.one(step).micros).sum();
        assert_eq!(cells[1..], [micros.to_string(), round(0.7e6 / micros)], "{row}");
    }
}
