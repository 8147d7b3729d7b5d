//! Runs scenes: `measure SCENE... [--quick]`.

use tower_singleflight_benches::scenes::{self, Effort, hand_off::Way};

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let before = args.len();
    args.retain(|arg| arg != "--quick");
    let effort = Effort { quick: args.len() < before };
    // What scenes run of this program.
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["owner", url] => return scenes::herd::owner(url),
        ["calls", name, key, calls] => {
            return scenes::instructions::calls(name, key, calls.parse().expect("a number"));
        }
        ["crowd", name, _, calls] => {
            return scenes::instructions::crowd(name, calls.parse().expect("a number"));
        }
        _ => {}
    }
    for scene in &args {
        match scene.as_str() {
            "lone" => scenes::lone::run(effort),
            "instructions" => scenes::instructions::run(effort),
            "hot" => scenes::hot::run(effort),
            "cost" => scenes::cost::run(effort),
            "trips" => scenes::trips::run(effort),
            "server" => scenes::server::run(effort),
            "hand-off-trips" => scenes::hand_off::run(effort, Way::Long),
            "hand-off-pinned" => scenes::hand_off::run(effort, Way::Short),
            "throughput" => scenes::throughput::run(effort),
            "herd" => scenes::herd::run(effort),
            other => panic!("no such scene: {other}"),
        }
    }
}
