//! What is public, as a list under version control: `public-api.txt`. CONTRIBUTING.md says
//! how it is renewed.

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{cargo, root};

/// The format that the `public-api` crate of this version reads. Another compiler may
/// write another.
const FORMAT: u64 = 57;

/// The crate as rustdoc describes it to programs. Only rustdoc is told that it may do so:
/// told to cargo, half of all dependencies would be built anew.
fn description() -> PathBuf {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let rustdoc = scratch.join("rustdoc-of-public-api");
    let real = env::var("RUSTDOC").unwrap_or_else(|_| "rustdoc".to_owned());
    fs::write(&rustdoc, format!("#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec \"{real}\" \"$@\"\n")).unwrap();
    fs::set_permissions(&rustdoc, fs::Permissions::from_mode(0o755)).unwrap();
    let target = scratch.parent().expect("the target folder");
    cargo(|cargo| {
        cargo
            .args(["rustdoc", "--lib", "--all-features", "--quiet", "--target-dir"])
            .arg(target)
            .args(["--", "-Zunstable-options", "--output-format", "json", "--cap-lints", "allow"])
            .env("RUSTDOC", rustdoc)
            .env_remove("RUSTDOCFLAGS")
    });
    target.join("doc/tower_singleflight.json")
}

/// Left out is what goes without saying: methods that come with what is derived, whose
/// `impl` is listed, and that a type is `Send`, `Sync`, `Unpin` and `UnwindSafe`, unless it
/// is not, or not always.
fn says_more(line: &str) -> bool {
    const DERIVED: [&str; 7] = ["clone", "fmt", "eq", "hash", "cmp", "partial_cmp", "default"];
    const AUTO: [&str; 5] = [
        " core::marker::Send for ",
        " core::marker::Sync for ",
        " core::marker::Unpin for ",
        " core::panic::unwind_safe::UnwindSafe for ",
        " core::panic::unwind_safe::RefUnwindSafe for ",
    ];
    const NOBODYS: [&str; 3] = ["marker::Freeze", "marker::UnsafeUnpin", "StructuralPartialEq"];
    if line.starts_with("pub fn ") {
        let is =
            |name| [format!("::{name}("), format!("::{name}<")].map(|name| line.contains(&name));
        return !DERIVED.iter().any(|name| is(name).contains(&true));
    }
    let goes_without = AUTO.iter().any(|auto| line.contains(auto)) && !line.contains(" where ");
    !line.starts_with("impl")
        || !goes_without && !NOBODYS.iter().any(|nobodys| line.contains(nobodys))
}

#[test]
fn what_is_public_is_what_is_listed() {
    let description = description();
    let text = fs::read_to_string(&description).unwrap();
    let format =
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["format_version"].as_u64();
    if format != Some(FORMAT) {
        eprintln!(
            "NOT COMPARED with public-api.txt: this rustdoc writes format {format:?}, and the \
             public-api crate in Cargo.toml reads {FORMAT}"
        );
        return;
    }
    let public = public_api::Builder::from_rustdoc_json(description).omit_blanket_impls(true);
    let public = public.build().unwrap().to_string();
    let public: String =
        public.lines().filter(|line| says_more(line)).map(|line| format!("{line}\n")).collect();
    let path = root().join("public-api.txt");
    if env::var_os("RENEW_PUBLIC_API").is_some() {
        return fs::write(path, public).unwrap();
    }
    let listed = fs::read_to_string(path).unwrap_or_default();
    let [public, listed] = [&public, &listed].map(|text| text.lines().collect::<BTreeSet<_>>());
    let gone = listed.difference(&public).map(|line| format!("- {line}\n"));
    let new = public.difference(&listed).map(|line| format!("+ {line}\n"));
    let changes: String = gone.chain(new).collect();
    assert!(
        changes.is_empty(),
        "what is public has changed; where that is meant, run tests/list_public_api.sh\n{changes}"
    );
}

/// Values cross threads, and are moved about; but for what a call has for a moment, and
/// for futures, which nobody shares.
#[test]
fn public_types_are_send_and_sync_and_unpin() {
    let listed = fs::read_to_string(root().join("public-api.txt")).unwrap();
    let mut not = BTreeSet::new();
    for line in listed.lines().filter(|line| line.starts_with("impl")) {
        for auto in ["Send", "Sync", "Unpin"] {
            if let Some((_, name)) = line.split_once(&format!(" !core::marker::{auto} for ")) {
                let name = name.split('<').next().unwrap_or_default();
                not.insert((name.rsplit("::").next().unwrap_or_default(), auto));
            }
        }
    }
    let known = [("Asked", "Send"), ("Asked", "Sync"), ("ResponseFuture", "Sync")];
    assert_eq!(not, BTreeSet::from(known));
}
