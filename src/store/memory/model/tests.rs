//! What is searched, and what must be found where a rule is broken on purpose.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    env,
};

use super::{
    checker::{self, Model, NEVER, Report},
    conduct::Conduct,
    judge,
    moves::Move,
    print, real,
    rules::{
        Fault::{
            self, Crash, Cut, Depart, Failover, Forget, Loss, LostPush, Pause, Silence, Twice,
        },
        Mutant, Rules,
    },
    walk,
    world::{Action, World},
};
use crate::store::EndStatus::{Done, Failed, Private, TimedOut};

/// No search is meant to be larger.
const MOST: usize = 100_000_000;
const ALL: &[Fault] =
    &[Silence, Twice, LostPush, Pause, Cut, Crash, Loss, Failover, Forget, Depart];

struct Protocol {
    rules: Rules,
    seen: RefCell<BTreeSet<&'static str>>,
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn start(&self) -> World {
        World::new(&self.rules)
    }

    fn actions(&self, state: &World, out: &mut Vec<Action>) {
        state.actions(&self.rules, out);
    }

    fn step(&self, state: &World, action: Action) -> Result<World, &'static str> {
        let mut next = state.clone();
        next.act(&self.rules, action);
        self.seen.borrow_mut().extend(next.notes.drain(..));
        next.broken.map_or(Ok(next), Err)
    }

    fn fingerprint(&self, state: &World) -> u64 {
        print::fingerprint(state, &self.rules)
    }

    fn is_onward(&self, action: Action) -> bool {
        action.is_onward()
    }

    fn is_good(&self, state: &World) -> bool {
        state.is_good(&self.rules)
    }

    fn describe(&self, state: &World, action: Action) -> String {
        use Action::{Answer, Fail, Serve, Silence, Twice};
        match action {
            Serve(at) | Answer(at) | Silence(at) | Twice(at) | Fail(at) => {
                let call = &state.calls[at];
                format!("{action:?} of {}: {:?} -> {:?}", call.node, call.ask, call.said)
            }
            action => format!("{action:?}"),
        }
    }
}

fn is_large() -> bool {
    env::var("MODEL").is_ok_and(|size| size == "large")
}

fn search(rules: Rules) -> (Report, BTreeSet<&'static str>) {
    let protocol = Protocol { rules, seen: RefCell::default() };
    let report = checker::check(&protocol, MOST);
    (report, protocol.seen.into_inner())
}

/// All that can happen keeps the rules; it is at least so many states, and these are
/// among what happens.
fn holds(rules: Rules, least: usize, happens: &[&str]) {
    let what = format!(
        "{} nodes, {} pieces, {:?} x {}",
        rules.nodes, rules.pieces, rules.kinds, rules.faults
    );
    let (report, seen) = search(rules);
    println!("{what}: {} states, {} steps: {seen:?}", report.states, report.steps);
    if let Some((rule, trace)) = report.broken {
        panic!("{what}: {rule}\n{trace}");
    }
    assert!(report.states >= least, "{what}: only {} states", report.states);
    let missed = happens.iter().find(|what| !seen.contains(*what));
    assert_eq!(missed, None, "{what}: does not happen");
}

fn small(pieces: u8, faults: u8, kinds: &'static [Fault]) -> Rules {
    Rules { pieces, faults, kinds, ..Rules::small() }
}

/// Runs take a tick at most.
fn brief(pieces: u8, faults: u8, kinds: &'static [Fault]) -> Rules {
    Rules { longest: 1, ..small(pieces, faults, kinds) }
}

/// Minutes, and gigabytes: `MODEL=large cargo test --release --lib model::`.
#[test]
fn the_large_models_hold() {
    if !is_large() {
        return;
    }
    holds(small(0, 1, ALL), 500_000, &["granted too late"]);
    holds(brief(1, 1, ALL), 400_000, &["another run"]);
    let pairs: [&'static [Fault]; 10] = [
        &[Silence, Loss],
        &[Silence, LostPush],
        &[Silence, Crash],
        &[Silence, Forget],
        &[Silence, Failover],
        &[Twice, Loss],
        &[Twice, Crash],
        &[Loss, Pause],
        &[Crash, Failover],
        &[LostPush, Crash, Loss, Depart],
    ];
    for kinds in pairs {
        holds(brief(0, 2, kinds), 20_000, &[]);
    }
    let ends = &[Done, Failed, TimedOut, Private];
    holds(Rules { ends, ..brief(1, 0, &[]) }, 300_000, &["private"]);
    holds(Rules { ends, ..brief(0, 1, &[LostPush]) }, 100_000, &[]);
    holds(Rules { nodes: 3, pieces: 2, ..Rules::small() }, 5_000, &[]);
}

#[test]
fn without_faults_a_flight_is_one_run() {
    let happens = ["answered by its own run", "answered by another's run", "wanted"];
    holds(Rules { callers: 2, ..Rules::small() }, 18_000, &happens);
    holds(Rules { nodes: 3, ..Rules::small() }, 25_000, &happens);
    holds(Rules { pieces: 2, ..Rules::small() }, 5_000, &happens);
}

#[test]
fn the_rules_hold_with_one_fault_of_any_kind() {
    let happens = [
        "abandoned",
        "asked again",
        "failed over",
        "fenced",
        "forgotten",
        "late duplicate",
        "look lapsed",
        "look missing",
        "owned again",
        "reclaimed",
        "taken over",
        "went on for others",
        "without the store",
    ];
    holds(brief(0, 1, ALL), 150_000, &happens);
}

#[test]
fn some_pairs_of_faults_hold() {
    holds(brief(0, 2, &[Silence, Depart]), 30_000, &["without the store", "abandoned"]);
    holds(brief(0, 2, &[Crash, LostPush]), 1_500, &["taken over"]);
    let one = Rules { nodes: 1, ..brief(0, 2, &[Loss, Pause]) };
    holds(one, 500, &["owned again too late"]);
}

#[test]
fn streams_hold_with_one_fault() {
    let happens = ["another run", "body broken", "taken over"];
    holds(brief(2, 1, &[LostPush, Crash, Loss, Depart]), 30_000, &happens);
}

/// Paused beyond its lease, an owner finds a newer flight.
#[test]
fn an_owner_doubts_a_newer_flight() {
    let rules = Rules { pause: 3, ..brief(1, 1, &[Pause]) };
    holds(rules, 180_000, &["doubted", "went on alone", "taken over"]);
}

#[test]
fn runs_that_fail_hold() {
    let ends = &[Done, Failed, TimedOut, Private];
    holds(
        Rules { ends, ..brief(0, 0, &[]) },
        42_000,
        &["failed elsewhere", "private", "timed out"],
    );
    holds(Rules { ends: &[Done, Failed], ..brief(0, 1, &[Crash]) }, 21_000, &["taken over"]);
}

#[test]
fn runs_that_never_end_are_given_up() {
    let rules = Rules { endless: true, ..brief(0, 1, &[Silence, LostPush, Crash]) };
    holds(rules, 9_000, &["abandoned", "went on for others"]);
}

/// After a failover or a loss, with nothing but the record to tell old from new.
#[test]
fn a_store_that_forgets_its_tokens_mixes_no_outcomes() {
    let rules = Rules { forgets_tokens: true, ..brief(0, 1, &[Loss, Failover]) };
    holds(rules, 18_000, &["failed over", "owned again", "reclaimed"]);
}

/// Each rule that is broken on purpose is found, by what it leads to.
#[test]
fn a_broken_rule_is_found() {
    let rules = Rules::small;
    let one = |kinds| Rules { faults: 1, kinds, ..rules() };
    let streamed = |kinds| Rules { pieces: 2, ..one(kinds) };
    let cases = [
        (Mutant::FinishByAnyone, one(&[Loss]), judge::ONE_OUTCOME),
        (Mutant::FinishAgain, one(&[Twice]), judge::ONE_OUTCOME),
        (Mutant::AppendByAnyone, streamed(&[Loss]), judge::ONE_OUTCOME),
        (Mutant::ReleaseAnyone, one(&[Loss]), judge::ONE_OUTCOME),
        (Mutant::GrantTooEarly, rules(), judge::TWO_OWNERS),
        (Mutant::GrantAgain, one(&[Twice]), judge::TWO_OWNERS),
        (Mutant::AbandonWanted, one(&[Depart]), judge::WANTED),
        (Mutant::DeadMark, rules(), judge::WANTED),
        (Mutant::SameToken, Rules { callers: 2, ..rules() }, judge::TOKENS),
        (Mutant::Ignorant, rules(), judge::ONE_RUN),
        (Mutant::OlderPush, Rules { callers: 2, ..one(&[Loss]) }, judge::OLDER),
        (Mutant::NoMargin, Rules { longest: 4, ..one(&[Cut]) }, judge::TWO_OWNERS),
        (Mutant::NoDeadline, streamed(&[Pause]), judge::HANDED_ON),
        (Mutant::LateGrant, one(&[Pause]), judge::TWO_OWNERS),
        (Mutant::Hole, streamed(&[LostPush]), judge::MIXED),
        (Mutant::ShortBody, streamed(&[LostPush]), judge::SHORT),
        (Mutant::NeverLooks, one(&[LostPush]), NEVER),
        (Mutant::NeverTakesOver, one(&[Crash]), NEVER),
        (Mutant::SameWaiter, Rules { faults: 2, ..one(&[Loss, Silence]) }, judge::WANTED),
    ];
    let mut missed = Vec::new();
    for (mutant, rules, rule) in cases {
        let (report, _) = search(Rules { mutant: Some(mutant), ..rules });
        let found = report.broken.as_ref().map(|(rule, _)| *rule);
        println!("{mutant:?}: {} states: {found:?}", report.states);
        if let Some((_, trace)) = report.broken.filter(|_| env::var("TRACE").is_ok()) {
            println!("{trace}");
        }
        if found != Some(rule) {
            missed.push((mutant, found));
        }
    }
    assert_eq!(missed, []);
}

fn walked(walks: u64) -> BTreeSet<Move> {
    let mut moves = BTreeSet::new();
    let ends: &[_] = &[Done, Failed, TimedOut, Private];
    let few = &[Silence, LostPush, Crash, Depart];
    let some = &[Silence, LostPush, Loss, Forget];
    let long: &[Fault] = &[Silence, Pause];
    let all = [(0, 3, ALL), (1, 3, few), (3, 3, few), (3, 4, some), (1, 2, long)];
    for (pieces, faults, kinds) in all {
        let rules =
            Rules { ends, nodes: 3, longest: 3, callers: 2, ..small(pieces, faults, kinds) };
        walk::walk(&rules, walks, &mut moves).unwrap_or_else(|broken| panic!("{broken}"));
    }
    moves
}

/// The real drivers do what the table allows, and nothing that the node rules do not do.
#[test]
fn the_real_drivers_do_what_the_node_rules_do() {
    let runs = env::var("RUNS").map_or(500, |runs| runs.parse().expect("a number"));
    let mut real = BTreeSet::new();
    for seed in 0..runs {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let events = runtime.block_on(real::overhear(seed));
        let mut conducts: BTreeMap<usize, Conduct> = BTreeMap::new();
        for (n, event) in &events {
            let broken = conducts.entry(*n).or_default().take(event);
            broken.unwrap_or_else(|rule| panic!("{rule} (seed {seed})\n{}", walk::told(&events)));
        }
        for (_, mut conduct) in conducts {
            let end = conduct.end();
            end.unwrap_or_else(|rule| panic!("{rule} (seed {seed})\n{}", walk::told(&events)));
            real.append(&mut conduct.moves);
        }
    }
    // What is rare there is rare here too.
    let model = walked(runs * 16);
    let (alone, common): (Vec<_>, Vec<_>) = real.iter().partition(|seen| !model.contains(*seen));
    println!("{} moves in common, {} of the model alone", common.len(), model.len() - common.len());
    alone.iter().for_each(|alone| println!("{alone:?}"));
    assert!(alone.is_empty(), "the node rules do not do what the real driver does: {alone:?}");
    assert!(common.len() > 40, "{common:#?}");
}

/// What is broken on purpose breaks the table too.
#[test]
fn a_name_that_was_taken_back_breaks_the_table() {
    let rules = Rules {
        longest: 4,
        callers: 2,
        mutant: Some(Mutant::SameWaiter),
        ..small(0, 3, &[Loss, Silence])
    };
    let broken = walk::walk(&rules, 4_000, &mut BTreeSet::new()).unwrap_err();
    assert!(broken.contains("keeps the name of its wait"), "{broken}");
}
