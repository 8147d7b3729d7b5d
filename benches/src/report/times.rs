//! Reads what criterion measured.

use std::{fs, path::Path};

use serde_json::Value;

/// The middle of what one bench function took.
#[derive(Debug)]
pub struct Time {
    pub name: String,
    pub nanos: f64,
}

impl Time {
    /// All below criterion's folder, by name.
    pub fn read(folder: &Path) -> Vec<Self> {
        let mut times = Vec::new();
        search(folder, &mut times);
        times.sort_by(|a, b| a.name.cmp(&b.name));
        times
    }

    /// In a unit that suits it.
    pub fn human(&self) -> String {
        human(self.nanos)
    }
}

pub(super) fn human(nanos: f64) -> String {
    match nanos {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.2} us", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

fn search(folder: &Path, times: &mut Vec<Time>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.map(|entry| entry.expect("an entry").path()) {
        if !entry.is_dir() {
            continue;
        }
        if entry.file_name().is_some_and(|name| name == "new") {
            times.extend(one(&entry));
        } else {
            search(&entry, times);
        }
    }
}

fn one(folder: &Path) -> Option<Time> {
    let read = |name: &str| -> Option<Value> {
        serde_json::from_str(&fs::read_to_string(folder.join(name)).ok()?).ok()
    };
    let name = read("benchmark.json")?["full_id"].as_str()?.to_owned();
    let nanos = read("estimates.json")?["median"]["point_estimate"].as_f64()?;
    Some(Time { name, nanos })
}
