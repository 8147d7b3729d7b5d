//! The checker finds each kind of fault, and none where there is none.

use crate::history::{
    Asker, Caller, Deed, Flight, Got, History, MS, Outage, Rules, Run, SECOND, Step, Time, faults,
};

const RULES: Rules = Rules { sleep: 4 * SECOND, stale: 4 * SECOND, here: 0, exact: true };
const LEASE: Time = 3 * SECOND;
const ONE: Flight = Flight { token: 10, id: 1 };
const TWO: Flight = Flight { token: 20, id: 2 };
/// A driver of node 0 and one of node 1.
const OWNER: u128 = 100;
const WAITER: u128 = 200;

fn step(at: Time, node: usize, deed: Deed) -> Step {
    Step { at: at * MS, node: Some(node), record: 7, deed }
}

fn asker(waiter: u128, known: u64) -> Asker {
    Asker { waiter, known, watch: false }
}

fn granted(flight: Flight, waiter: u128, known: u64, at: Time) -> Deed {
    Deed::Granted { asker: asker(waiter, known), flight, until: at * MS + LEASE }
}

fn renewed(flight: Flight, at: Time) -> Deed {
    Deed::Renewed { flight, until: at * MS + LEASE }
}

fn ended(flight: Flight) -> Deed {
    Deed::Ended { flight, how: "done".to_owned(), outcome: flight.token }
}

fn told(waiter: u128, flight: Flight) -> Deed {
    let (how, outcome) = ("done".to_owned(), Some(flight.token));
    Deed::Told { asker: asker(waiter, flight.token), flight, how, outcome }
}

fn followed(flight: Flight) -> Deed {
    Deed::Followed { asker: asker(WAITER, 0), flight }
}

fn run(token: u64, node: usize, over: Time) -> Run {
    let text = format!("the text of {token}");
    Run { key: 1, node, token: Some(token), text, whole: true, over: Some(over * MS) }
}

fn caller(node: usize, asked: Time, token: u64) -> Caller {
    let got = Got::Whole(format!("the text of {token}"));
    Caller { key: 1, node, asked: asked * MS, head: Some(9000 * MS), got }
}

/// One owner is lost after 1 s, another takes over and answers.
fn good() -> History {
    let steps = vec![
        step(0, 0, granted(ONE, OWNER, 0, 0)),
        step(10, 1, followed(ONE)),
        step(1000, 0, renewed(ONE, 1000)),
        step(1010, 1, Deed::Looked { asker: asker(WAITER, 10), waits: true }),
        step(4000, 1, granted(TWO, WAITER, 10, 4000)),
        step(4010, 0, Deed::Followed { asker: asker(OWNER, 10), flight: ONE }),
        step(4020, 0, Deed::Followed { asker: asker(OWNER, 10), flight: TWO }),
        step(5000, 1, Deed::Added { flight: TWO, from: 0, to: 2 }),
        step(5010, 1, Deed::Added { flight: TWO, from: 2, to: 3 }),
        step(5020, 1, ended(TWO)),
        step(5030, 0, told(OWNER, TWO)),
    ];
    let runs = [(1, Run { whole: false, ..run(10, 0, 3500) }), (2, run(20, 1, 5000))].into();
    let callers = vec![caller(0, 0, 20), caller(1, 10, 20)];
    History { steps, runs, callers, end: 20 * SECOND, ..History::default() }
}

/// The only fault of a history that is good but for this.
#[track_caller]
fn fault(spoil: impl FnOnce(&mut History)) -> String {
    let mut history = good();
    spoil(&mut history);
    let found = faults(&history, RULES);
    assert!(!found.is_empty(), "no fault was found");
    found.join("\n")
}

#[track_caller]
fn finds(what: &str, spoil: impl FnOnce(&mut History)) {
    let found = fault(spoil);
    assert!(found.contains(what), "{found}");
}

/// Puts a step where its time is.
fn add(history: &mut History, at: Time, node: usize, deed: Deed) {
    let place = history.steps.partition_point(|step| step.at <= at * MS);
    history.steps.insert(place, step(at, node, deed));
}

#[test]
fn a_good_history_has_no_fault() {
    assert_eq!(faults(&good(), RULES), Vec::<String>::new());
}

#[test]
fn a_second_outcome_is_found() {
    finds("and before as", |history| add(history, 5025, 1, ended(TWO)));
    finds("is told to be", |history| {
        let other = Deed::Told {
            asker: asker(OWNER, 20),
            flight: TWO,
            how: "done".to_owned(),
            outcome: Some(9),
        };
        add(history, 5031, 0, other);
    });
    finds("and did not", |history| add(history, 5025, 0, told(OWNER, Flight { id: 9, ..TWO })));
}

#[test]
fn an_outcome_of_who_does_not_own_is_found() {
    finds("was ended", |history| add(history, 4500, 0, ended(ONE)));
    finds("was ended", |history| add(history, 6000, 0, ended(ONE)));
    // By its lease, and not by another owner.
    finds("was ended", |history| {
        history.steps.truncate(1);
        add(history, 3000, 0, ended(ONE));
    });
}

#[test]
fn what_comes_after_an_end_is_found() {
    finds("was added to", |history| {
        add(history, 5025, 1, Deed::Added { flight: TWO, from: 3, to: 4 });
    });
    finds("was renewed", |history| add(history, 5025, 1, renewed(TWO, 5025)));
    finds("was added to", |history| add(history, 5005, 1, Deed::LetGo { id: TWO.id }));
    // An owner is told so of a flight that was let go.
    let mut history = good();
    history.steps.truncate(9);
    add(&mut history, 5020, 1, Deed::LetGo { id: TWO.id });
    let agreed = Deed::Agreed { flight: TWO, how: "done".to_owned(), outcome: 20 };
    add(&mut history, 5021, 1, agreed);
    history.callers.clear();
    history.end = 6 * SECOND;
    assert_eq!(faults(&history, RULES), Vec::<String>::new());
}

#[test]
fn two_owners_at_once_are_found() {
    finds("stood", |history| {
        add(history, 3900, 1, granted(Flight { token: 15, id: 5 }, 300, 0, 3900));
    });
}

#[test]
fn tokens_that_do_not_grow_are_found() {
    finds("came after 20", |history| {
        add(history, 8000, 1, granted(Flight { token: 19, id: 5 }, 300, 0, 8000));
    });
    finds("to one who knew 30", |history| {
        add(history, 8000, 1, granted(Flight { token: 25, id: 5 }, 300, 30, 8000));
    });
    finds("granted twice", |history| {
        add(history, 8000, 1, granted(Flight { token: 25, id: TWO.id }, 300, 0, 8000));
    });
}

/// After a total loss a token may come again, and a flight may not.
#[test]
fn a_loss_of_all_data_allows_smaller_tokens() {
    let mut history = good();
    add(&mut history, 7000, 0, Deed::DataLost);
    add(&mut history, 8000, 1, granted(Flight { token: 19, id: 5 }, 300, 0, 8000));
    assert_eq!(faults(&history, RULES), Vec::<String>::new());
    finds("granted twice", |history| {
        add(history, 7000, 0, Deed::DataLost);
        add(history, 8000, 1, granted(TWO, 300, 0, 8000));
    });
    // One loss excuses one grant.
    add(&mut history, 12000, 1, granted(Flight { token: 18, id: 6 }, 300, 0, 12000));
    assert!(!faults(&history, RULES).is_empty());
}

#[test]
fn a_hole_or_a_repeat_in_a_stream_is_found() {
    for from in [1, 3] {
        finds("then", |history| history.steps[8].deed = Deed::Added { flight: TWO, from, to: 3 });
    }
}

#[test]
fn a_follower_that_sleeps_is_found() {
    finds("slept", |history| {
        history.steps.remove(3);
        history.steps[3] = step(4200, 1, granted(TWO, WAITER, 10, 4200));
    });
    finds("slept", |history| {
        add(history, 6000, 1, Deed::Followed { asker: asker(300, 0), flight: TWO });
    });
    // It stood still itself.
    let mut history = good();
    add(&mut history, 6000, 1, Deed::Followed { asker: asker(300, 0), flight: TWO });
    history.outages.push(Outage { node: 1, from: 6500 * MS, to: Time::MAX });
    assert_eq!(faults(&history, RULES), Vec::<String>::new());
}

#[test]
fn an_older_outcome_is_found() {
    finds("is told of 10", |history| {
        history.steps[1] = step(10, 1, followed(TWO));
        add(history, 20, 1, told(WAITER, ONE));
    });
    finds("asks as one who knows 0", |history| {
        add(history, 4030, 0, Deed::Looked { asker: asker(OWNER, 0), waits: true });
    });
    finds("its process followed 20", |history| {
        history.steps.insert(3, step(1005, 0, ended(ONE)));
        history.runs.insert(1, run(10, 3, 3500));
        history.callers[0] = caller(0, 1, 10);
    });
}

#[test]
fn an_outcome_from_before_the_question_is_found() {
    finds("which was over at 5020000", |history| history.callers.push(caller(0, 9100, 20)));
    finds("a run here that was over", |history| history.callers.push(caller(1, 5100, 20)));
}

/// The store did not hear that a run was over, and its process follows itself for a while,
/// also where it owned again after a loss of all data.
#[test]
fn a_process_that_follows_itself_is_no_fault() {
    let late = |token: u64| {
        let mut history = good();
        let flight = Flight { token, id: 7 };
        add(&mut history, 9000, 2, granted(Flight { token: 30, id: 3 }, 300, 0, 9000));
        add(&mut history, 9500, 2, Deed::DataLost);
        add(&mut history, 10000, 2, granted(Flight { token: 40, id: 4 }, 300, 30, 10000));
        add(&mut history, 12500, 2, Deed::Followed { asker: asker(400, 0), flight });
        add(&mut history, 12600, 2, Deed::Left { waiter: 400 });
        history.runs.insert(3, run(30, 2, 11000));
        history.callers.push(caller(2, 12500, 30));
        faults(&history, RULES)
    };
    assert_eq!([late(30), late(40)], [Vec::<String>::new(), Vec::new()]);
    assert!(late(41).join("").contains("a run here that was over"));
}

/// With all data it is lost, too, that a flight was forgotten: its owner owns again, and its
/// run is a newer flight's than that of who owned meanwhile.
#[test]
fn a_forgotten_run_that_is_owned_again_is_no_older_one() {
    let after = |lost: Time| {
        let mut history = good();
        let flight = |token: u64| Flight { token, id: token.into() };
        add(&mut history, 9000, 2, granted(flight(30), 300, 0, 9000));
        add(&mut history, 9100, 2, Deed::Forgot);
        add(&mut history, 9200, 3, granted(flight(40), 400, 0, 9200));
        add(&mut history, lost, 3, Deed::DataLost);
        add(&mut history, 12800, 2, granted(flight(50), 300, 30, 12800));
        add(&mut history, 12850, 1, Deed::Followed { asker: asker(500, 0), flight: flight(50) });
        add(&mut history, 12900, 2, ended(flight(50)));
        add(&mut history, 12900, 1, told(500, flight(50)));
        history.runs.insert(3, run(30, 2, 12900));
        history.callers.push(Caller { head: Some(12950 * MS), ..caller(1, 12840, 30) });
        faults(&history, RULES).join("")
    };
    assert_eq!(after(9300), "");
    assert!(after(12500).contains("its process followed 50"), "{}", after(12500));
}

/// What a keeper has found is on its way to its driver, which may hand an older flight's
/// answer on meanwhile, and knows of it when it says so.
#[test]
fn a_keeper_knows_more_than_its_driver() {
    let before = |known: u64| {
        let mut history = good();
        let asker = Asker { waiter: OWNER, known, watch: true };
        add(&mut history, 4015, 0, Deed::Followed { asker, flight: TWO });
        history.steps.insert(3, step(1005, 0, ended(ONE)));
        history.steps.retain(|step| {
            !matches!(&step.deed, Deed::Followed { asker, flight }
            if asker.waiter == OWNER && !asker.watch && *flight == TWO)
        });
        history.runs.insert(1, run(10, 3, 3500));
        history.callers[0] = caller(0, 1, 10);
        faults(&history, RULES).join("")
    };
    assert!(!before(10).contains("its process followed"), "{}", before(10));
    assert!(before(20).contains("its process followed 20"), "{}", before(20));
}

#[test]
fn bytes_of_two_runs_and_short_bodies_are_found() {
    finds("no run's whole text", |history| {
        history.callers[0].got = Got::Whole("the text of 20the text of 20".to_owned());
    });
    finds("no run's whole text", |history| {
        history.callers[0].got = Got::Whole("the text of".to_owned());
    });
    finds("no run's text", |history| {
        history.callers[0].got = Got::Part("the text of 10 and more".to_owned());
    });
    // Its run was dropped before it came to its end.
    finds("no run's whole text", |history| {
        history.callers[0].got = Got::Whole("the text of 10".to_owned());
    });
    // Of another key.
    finds("no run's whole text", |history| history.callers[0].key = 2);
}

#[test]
fn an_answer_that_the_store_never_took_is_found() {
    finds("whose end was None", |history| {
        history.steps.retain(|step| !matches!(step.deed, Deed::Ended { .. } | Deed::Told { .. }));
    });
    finds("without a lease", |history| history.runs.get_mut(&2).unwrap().token = None);
}

#[test]
fn what_is_left_is_found() {
    finds("left behind: a mark", |history| history.left.push("a mark".to_owned()));
    finds("without an end: a key", |history| history.endless.push("a key".to_owned()));
}
