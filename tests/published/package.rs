//! What is in the package, and what comes with it.

use std::{collections::HashSet, fs, process::Command};

use serde_json::Value;

use crate::{cargo, root};

/// The library's own dependencies with all features, and theirs, on this machine.
fn dependencies() -> Vec<Value> {
    let rustc = Command::new("rustc").arg("-vV").output().expect("rustc");
    let about = String::from_utf8(rustc.stdout).expect("text");
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).expect("the host");
    let metadata = cargo(|cargo| {
        cargo.args(["metadata", "--format-version", "1", "--all-features", "--locked"]);
        cargo.args(["--filter-platform", host])
    });
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    let nodes = metadata["resolve"]["nodes"].as_array().expect("nodes");
    let mut next = vec![&metadata["resolve"]["root"]];
    let mut seen = HashSet::new();
    while let Some(id) = next.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = nodes.iter().find(|node| node["id"] == *id).expect("a node");
        let deps = node["deps"].as_array().expect("dependencies").iter();
        let is_for_tests = |kind: &Value| kind["kind"] == "dev";
        next.extend(
            deps.filter(|dep| {
                !dep["dep_kinds"].as_array().expect("kinds").iter().all(is_for_tests)
            })
            .map(|dep| &dep["pkg"]),
        );
    }
    let packages = metadata["packages"].as_array().expect("packages").iter();
    packages.filter(|package| seen.contains(&package["id"])).cloned().collect()
}

fn version(text: &str) -> Vec<u32> {
    text.split('.').take(2).map(|part| part.parse().expect("a number")).collect()
}

#[test]
fn no_dependency_asks_for_a_newer_compiler() {
    let dependencies = dependencies();
    let own = version(env!("CARGO_PKG_RUST_VERSION"));
    for package in &dependencies {
        let asked = package["rust_version"].as_str().map(version);
        assert!(asked.is_none_or(|asked| asked <= own), "{}", package["name"]);
    }
    assert!(dependencies.len() > 50, "{}", dependencies.len());
}

/// Whether this much of a licence expression is met; and what is left of it.
fn met<'a>(words: &'a [&'a str], allowed: &HashSet<&str>) -> (bool, &'a [&'a str]) {
    let one = |words: &'a [&'a str]| match words {
        ["(", rest @ ..] => {
            let (is_met, rest) = met(rest, allowed);
            (is_met, &rest[1..])
        }
        [_, "WITH", _, rest @ ..] => (false, rest),
        [licence, rest @ ..] => (allowed.contains(licence), rest),
        [] => panic!("no licence"),
    };
    let (mut any, mut all, mut rest) = (false, true, words);
    loop {
        let (is_met, after) = one(rest);
        all &= is_met;
        match after {
            ["AND", next @ ..] => rest = next,
            ["OR", next @ ..] => (any, all, rest) = (any | all, true, next),
            _ => return (any | all, after),
        }
    }
}

/// As `cargo deny` would ask, which not every machine has.
#[test]
fn licences_are_those_of_deny_toml() {
    let deny = fs::read_to_string(root().join("deny.toml")).unwrap();
    let (_, allow) = deny.split_once("allow = [").expect("a list");
    let (allow, _) = allow.split_once(']').expect("its end");
    let allowed: HashSet<&str> = allow.split('"').skip(1).step_by(2).collect();
    assert!(allowed.contains("MIT"), "{allowed:?}");
    for package in dependencies() {
        let licence = package["license"].as_str().unwrap_or_default();
        let spaced = licence.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        assert!(met(&words, &allowed).0, "{}: {licence}", package["name"]);
    }
}

#[test]
fn the_package_has_what_it_needs_and_no_more() {
    let listed = cargo(|cargo| cargo.args(["package", "--list", "--allow-dirty", "--offline"]));
    let listed: HashSet<&str> = listed.lines().collect();
    for name in ["src/lib.rs", "README.md", "LICENSE", "CHANGELOG.md", "docs/operations.md"] {
        assert!(listed.contains(name), "{name} is missing");
    }
    for name in &listed {
        let first = name.split('/').next();
        assert!(!matches!(first, Some(".ci" | "benches" | "fuzz" | "target")), "{name}");
        // Others are made while it is packed.
        let size = fs::metadata(root().join(name)).map_or(0, |file| file.len());
        assert!(size < 100 << 10, "{name} has {size} bytes");
    }
}
