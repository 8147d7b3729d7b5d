//! `examples/tower.rs`.

use crate::program::{Program, cargo_run, documented};

#[test]
fn tower() {
    let docs = documented("tower.rs");
    let [line] = &docs[..] else { panic!("one line: {docs:?}") };
    let (example, args) = cargo_run(line).expect("how to run it");
    let lines = Program::start(example, &args).lines_to_the_end();
    let (last, callers) = lines.split_last().expect("it says something");
    assert_eq!(callers.len(), 10, "{lines:#?}");
    // A machine that is held up for half a second lets some callers come too late to
    // share: how many runs there are is not for this test.
    let all = |what: &str| callers.iter().filter(|line| line.contains(what)).count();
    assert_eq!(all("own run: ") + all("shared with caller "), 7, "{lines:#?}");
    assert_eq!(all("nothing is known of 2077"), 3, "{lines:#?}");
    assert!(all("own error: ") >= 1, "{lines:#?}");
    assert!(last.contains(" runs; "), "{last}");
}
