//! What documents say that can be checked: RELIABILITY.md names tests, which are there,
//! and SECURITY.md asks for the rights of the guide, which other tests hold to.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

/// Each row of a table that is `shown by` tests names at least one, and only such as are.
#[test]
fn every_test_that_the_table_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests: HashSet<String> =
        ["src", "tests"].iter().flat_map(|folder| tests(&root.join(folder))).collect();
    let text = fs::read_to_string(root.join("RELIABILITY.md")).expect("RELIABILITY.md");
    let (mut rows, mut missing) = (0, Vec::new());
    let mut shown = false;
    for line in text.lines() {
        if !line.starts_with('|') {
            shown = false;
            continue;
        }
        if line.ends_with("| shown by |") {
            shown = true;
            continue;
        }
        if !shown || line.starts_with("|--") {
            continue;
        }
        rows += 1;
        let last = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "nothing shows it: {line}");
        missing.extend(names.into_iter().filter(|&name| !tests.contains(name)).map(str::to_owned));
    }
    assert!(rows > 20, "{rows} rows");
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}

#[test]
fn the_rights_in_security_md_are_those_of_the_guide() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rights = |file: &str| {
        let text = fs::read_to_string(root.join(file)).expect(file);
        let (_, rule) = text.split_once("ACL SETUSER flight ").expect("a rule");
        let (rule, _) = rule.split_once("```").expect("the end of the rule");
        rule.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rights("SECURITY.md"), rights("docs/operations.md"));
}

/// The names of all tests in the sources below a folder; each rule that stores are held to
/// is one.
fn tests(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path: PathBuf = entry.expect("an entry").path();
        if path.is_dir() {
            names.extend(tests(&path));
        } else if path.ends_with("conformance/rules.rs") {
            let text = fs::read_to_string(&path).expect("a source");
            names.extend(text.lines().map(str::trim).filter(|line| is_name(line)).map(Into::into));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(tests_of(&fs::read_to_string(&path).expect("a source")));
        }
    }
    names
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b == b'_' || b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// The functions of a source that are marked as tests: others may have any name.
fn tests_of(source: &str) -> Vec<String> {
    let (mut names, mut marked) = (Vec::new(), false);
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[") || line.starts_with("//") {
            marked |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            continue;
        }
        let function = line.split_once("fn ").and_then(|(_, rest)| rest.split(['(', '<']).next());
        names.extend(function.filter(|_| marked).map(str::to_owned));
        marked = false;
    }
    names
}

#[test]
fn only_what_is_marked_is_a_test() {
    let source = "#[test]\nfn a() {}\nfn b() {}\n\
        #[tokio::test(start_paused = true)]\n// Why.\n#[cfg(x)]\nasync fn c() {}\n\
        #[cfg(test)]\nfn d() {}\n#[test]\nconst E: u8 = 0;\nfn f() {}";
    assert_eq!(tests_of(source), ["a", "c"]);
}
