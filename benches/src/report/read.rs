//! Reads what the scenes printed.

use std::{fs, path::Path};

/// All of a run.
#[derive(Debug, Default)]
pub struct Results {
    /// What it ran on, as name and value.
    pub machine: Vec<(String, String)>,
    pub goals: Vec<Goal>,
    pub points: Vec<Point>,
    /// What was left out, and why.
    pub skipped: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Goal {
    pub group: String,
    pub what: String,
    pub of: String,
    /// As `<= 1.2`; a dash where there is none.
    pub bound: String,
    pub measured: f64,
    pub detail: String,
}

#[derive(Clone, Debug)]
pub struct Point {
    pub plot: String,
    pub series: String,
    pub x: String,
    pub value: f64,
}

impl Goal {
    /// Whether it is met; none where it is no goal.
    pub fn is_met(&self) -> Option<bool> {
        let (relation, bound) = self.bound.split_once(' ')?;
        let bound: f64 = bound.parse().ok()?;
        match relation {
            "<=" => Some(self.measured <= bound),
            ">=" => Some(self.measured >= bound),
            "=" => Some((self.measured - bound).abs() < 0.005),
            _ => None,
        }
    }
}

impl Results {
    /// Of all files in a folder, in the order of their names.
    pub fn read(folder: &Path) -> Self {
        let mut files: Vec<_> = fs::read_dir(folder)
            .expect("the results' folder")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|end| end == "tsv"))
            .collect();
        files.sort();
        let mut results = Self::default();
        for file in files {
            for line in fs::read_to_string(file).expect("results").lines() {
                results.add(line);
            }
        }
        results
    }

    fn add(&mut self, line: &str) {
        let fields: Vec<&str> = line.split('\t').collect();
        let own = |text: &str| text.to_owned();
        let number = |text: &str| text.parse().expect("a number");
        match fields[..] {
            ["machine", name, value] => self.machine.push((own(name), own(value))),
            ["skipped", why] => self.skipped.push(own(why)),
            ["goal", group, what, of, bound, measured, detail] => self.goals.push(Goal {
                group: own(group),
                what: own(what),
                of: own(of),
                bound: own(bound),
                measured: number(measured),
                detail: own(detail),
            }),
            ["point", plot, series, x, value] => self.points.push(Point {
                plot: own(plot),
                series: own(series),
                x: own(x),
                value: number(value),
            }),
            _ => eprintln!("not understood: {line}"),
        }
    }

    /// The groups of goals, in the order in which they came.
    pub fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for goal in &self.goals {
            if !groups.contains(&goal.group.as_str()) {
                groups.push(&goal.group);
            }
        }
        groups
    }

    /// The points of one plot.
    pub fn plot(&self, name: &str) -> Vec<&Point> {
        self.points.iter().filter(|point| point.plot == name).collect()
    }
}
