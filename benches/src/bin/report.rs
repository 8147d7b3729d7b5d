//! Makes the page: `report RESULTS CRITERION PAGE PLOTS`, and prints its table.

use std::path::PathBuf;

use tower_singleflight_benches::report::{self, Results, Time};

fn main() {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [results, criterion, page, plots] = &args[..] else {
        panic!("report RESULTS CRITERION PAGE PLOTS");
    };
    let results = Results::read(results);
    report::write(page, plots, &results, &Time::read(criterion));
    for goal in &results.goals {
        let met = match goal.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        let (what, bound, measured, of) = (&goal.what, &goal.bound, goal.measured, &goal.of);
        println!("{met:7}{what}: {measured:.2} ({bound} {of})");
    }
}
