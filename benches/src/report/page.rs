//! Writes the part of the page that a run makes, and its plots.

use std::{fmt::Write as _, fs, path::Path};

use super::{Results, Time, read::Point, svg};

const BEGIN: &str = "<!-- measured: begin -->\n";
const END: &str = "<!-- measured: end -->";

enum Kind {
    /// The series are the bars.
    Bars,
    /// Named along the bottom, and up the side.
    Lines(&'static str, &'static str),
}

/// The plots, where there is something to show: name, title, kind.
const PLOTS: [(&str, &str, Kind); 11] = [
    ("lone", "A call that nobody shares: time", Kind::Bars),
    ("instructions", "A call that nobody shares: instructions", Kind::Bars),
    ("hot-cpu", "10,000 callers of one key: CPU a caller", Kind::Bars),
    ("hot-wait", "10,000 callers that wait for 500 ms: CPU a caller", Kind::Bars),
    ("hot-bytes", "10,000 callers that wait: memory a caller", Kind::Bars),
    ("owner-cpu", "A call over Redis that nobody shares, 1 KiB: time on one core", Kind::Bars),
    ("server", "What a flight costs the server: time in commands", Kind::Bars),
    (
        "hand-off-trips",
        "From the end of a run to a follower elsewhere, 2 ms away",
        Kind::Lines("size of the answer", "publish trips"),
    ),
    (
        "hand-off-pinned",
        "From the end of a run to a follower elsewhere, on one core",
        Kind::Lines("size of the answer", "publish trips"),
    ),
    (
        "herd-commands",
        "An owner dies: commands for each process that waits",
        Kind::Lines("processes that wait", "commands a process"),
    ),
    (
        "herd-time",
        "An owner dies: time to the next run",
        Kind::Lines("processes that wait", "seconds"),
    ),
];

/// Puts the results between the markers of the page, and the plots into a folder.
pub fn write(page: &Path, plots: &Path, results: &Results, times: &[Time]) {
    let before = fs::read_to_string(page).expect("the page");
    let (head, rest) = before.split_once(BEGIN).expect("where the results begin");
    let (_, tail) = rest.split_once(END).expect("where the results end");
    let names = draw(plots, results);
    // As seen from the page.
    let folder = Path::new("benches").join(plots);
    let mut text = machine(results);
    text.push_str(&table(results));
    for why in &results.skipped {
        let _ = writeln!(text, "* Left out: {why}");
    }
    if !results.skipped.is_empty() {
        text.push('\n');
    }
    for (name, title) in names {
        let _ = writeln!(text, "![{title}]({}/{name}.svg)\n", folder.display());
    }
    text.push_str(&absolute(times));
    fs::write(page, format!("{head}{BEGIN}\n{text}{END}{tail}")).expect("the page is written");
}

fn machine(results: &Results) -> String {
    let facts: Vec<String> =
        results.machine.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("Measured on {}.\n\n", facts.join("; "))
}

fn table(results: &Results) -> String {
    let verdicts: Vec<bool> = results.goals.iter().filter_map(super::read::Goal::is_met).collect();
    let met = verdicts.iter().filter(|met| **met).count();
    let mut text = format!("{met} of {} goals are met.\n\n", verdicts.len());
    text.push_str("| what | measured as | goal | measured | met | |\n");
    text.push_str("|---|---|---:|---:|---|---|\n");
    for group in results.groups() {
        let _ = writeln!(text, "| **{group}** | | | | | |");
        for goal in results.goals.iter().filter(|goal| goal.group == group) {
            let met = match goal.is_met() {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "",
            };
            let bound = match goal.bound.split_once(' ') {
                Some(("<=", bound)) => format!("at most {bound}"),
                Some((">=", bound)) => format!("at least {bound}"),
                Some(("=", bound)) => bound.to_owned(),
                _ => String::new(),
            };
            let measured = human(goal.measured);
            let (what, of, detail) = (&goal.what, &goal.of, &goal.detail);
            let _ = writeln!(text, "| {what} | {of} | {bound} | {measured} | {met} | {detail} |");
        }
    }
    text.push('\n');
    text
}

fn human(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn draw(folder: &Path, results: &Results) -> Vec<(&'static str, &'static str)> {
    fs::create_dir_all(folder).expect("the plots' folder");
    let mut drawn = Vec::new();
    for (name, title, kind) in &PLOTS {
        let points = results.plot(name);
        let Some(first) = points.first() else { continue };
        let plot = match kind {
            Kind::Bars => {
                let bars: Vec<_> = points.iter().map(|p| (p.x.as_str(), p.value)).collect();
                svg::bars(title, &first.series, &bars)
            }
            Kind::Lines(x, y) => svg::lines(title, x, y, &series(&points)),
        };
        fs::write(folder.join(name).with_extension("svg"), plot).expect("a plot is written");
        drawn.push((*name, *title));
    }
    drawn
}

fn series<'a>(points: &[&'a Point]) -> Vec<(&'a str, Vec<(&'a str, f64)>)> {
    let mut series: Vec<(&str, Vec<(&str, f64)>)> = Vec::new();
    for point in points {
        let at = series.iter().position(|one| one.0 == point.series).unwrap_or_else(|| {
            series.push((&point.series, Vec::new()));
            series.len() - 1
        });
        series[at].1.push((&point.x, point.value));
    }
    series
}

fn absolute(times: &[Time]) -> String {
    let mut text = String::from(
        "<details><summary>Times of the criterion benches, which move with the machine</summary>\n\n\
         | bench | median |\n|---|---:|\n",
    );
    for time in times {
        let _ = writeln!(text, "| {} | {} |", time.name, time.human());
    }
    text.push_str("\n</details>\n");
    text
}
